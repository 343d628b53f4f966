#pragma once
/// \file What goes between a stage and its neighbours: buffers and messages under way.
#include <vector>

#include "base/context.hpp"
#include "comm/grid.hpp"

namespace capstan {

/// Activations come from the stage before and go to the one behind, gradients the other
/// way. A message travels while its neighbours in time are worked on: the next one is
/// awaited in a buffer of its own, and a buffer that was sent from is used again two
/// messages later. At the ends of the pipeline there are no such messages, nor buffers.
template <class S>
class StageLinks {
 public:
  struct Sizes {
    std::vector<index_t> tokens;  ///< of every micro-batch
    index_t width = 0;            ///< elements of a token
    index_t in_flight = 1;        ///< inputs that are kept at a time
    bool backward = true;         ///< gradients are exchanged too
  };
  /// Takes its buffers from the arena's current lane.
  StageLinks(const Grid& grid, Sizes sizes, Context& ctx);
  StageLinks(const StageLinks&) = delete;

  /// [T, D] that came from the stage before, kept until the backward pass of
  /// micro-batch i is done.
  View2<S> input(index_t i);
  /// Where the forward pass of i puts what goes to the stage behind.
  View2<S> output(index_t i);
  void send_output(index_t i);
  /// [T, D] for the backward pass of i, with what came from the stage behind.
  View2<S> gradient(index_t i);
  void send_gradient(index_t i);
  /// Until all that was sent has left.
  void finish();

  /// Seconds in which this rank has waited for messages.
  double waited() const { return waited_; }

 private:
  struct Buffer {
    View2<S> memory;
    Pending pending;  ///< arrival or departure
  };
  std::vector<Buffer> make_buffers(index_t n);
  View2<S> part(std::vector<Buffer>& ring, index_t i) const;
  void receive(std::vector<Buffer>& ring, index_t i, const Comm& from, int rank);
  void wait(Buffer& buffer);
  Buffer& at(std::vector<Buffer>& ring, index_t i) const {
    return ring[static_cast<std::size_t>(i) % ring.size()];
  }

  const Grid& grid_;
  Sizes sizes_;
  Context& ctx_;
  bool has_previous_, has_next_;
  std::vector<Buffer> inputs_, outputs_, gradients_;
  double waited_ = 0;
};

}  // namespace capstan
