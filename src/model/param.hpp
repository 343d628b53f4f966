#pragma once
/// \file Parameters of this rank (those of its pipeline stage): flat buffers of weights,
/// masters and gradients, and a handle per canonical tensor. Dense tensors come first,
/// then expert tensors, so that each class is reduced over its own group in one call.
#include <string>
#include <unordered_map>
#include <vector>

#include "base/context.hpp"
#include "comm/grid.hpp"
#include "model/param_list.hpp"

namespace capstan {

/// Where a tensor lies: rows [row0, row0 + rows) of axis 0 of its global shape are on
/// this rank.
struct ParamSlot {
  ParamSpec spec;
  index_t row0 = 0, rows = 0;  ///< local range of axis 0
  index_t row_size = 1;        ///< elements of one row
  index_t offset = 0;          ///< first element in the flat buffers
  index_t size() const { return rows * row_size; }
  index_t global_size() const;
};

/// Rows of a slot, counted from its row0, whose masters and moments this rank keeps: all
/// of them, or with sharded state some or none.
struct OwnedRows {
  index_t first = 0, rows = 0;
};

/// Views of one tensor: weights (storage type) and gradient.
template <class S>
struct Tensor {
  View1<S> w;
  View1<Acc<S>> d;
  index_t rows = 0,
          cols = 0;  ///< as a matrix: product of all axes but the last, the last
  View2<S> matrix() const { return View2<S>(w.data(), rows, cols); }
  View2<Acc<S>> d_matrix() const { return View2<Acc<S>>(d.data(), rows, cols); }
};

template <class S>
class ParamStore {
 public:
  ParamStore(const ModelShape& shape, const Grid& grid, Context& ctx);

  /// Draws the initial values: a pure function of (seed, tensor name, global index).
  void initialise(std::uint64_t seed);
  /// Error(Exit::internal) when there is no such tensor.
  Tensor<S> tensor(const std::string& name) const;
  bool has(const std::string& name) const { return index_.count(name) > 0; }
  const std::vector<ParamSlot>& slots() const { return slots_; }
  const ParamSlot& slot(const std::string& name) const;

  index_t size() const { return dense_size_ + expert_size_; }
  /// Whole flat buffers (with a few zero elements of padding between tensors), and their
  /// parts. Masters that are kept apart from the weights are whole only where every row
  /// is owned.
  View1<S> weights() const { return weights_; }
  View1<Acc<S>> masters() const { return masters_; }
  View1<Acc<S>> gradients() const { return gradients_; }
  View1<Acc<S>> dense_gradients() const;
  View1<Acc<S>> expert_gradients() const;
  /// Part of a flat buffer that belongs to a tensor.
  template <class T>
  View1<T> part(const View1<T>& buffer, const ParamSlot& slot) const {
    return View1<T>(buffer.data() + slot.offset, slot.size());
  }
  /// From now on the masters are sharded: this rank keeps those of these rows only, one
  /// entry for each slot. Before there are values.
  void own(const std::vector<OwnedRows>& owned, Context& ctx);
  bool sharded() const { return sharded_; }
  /// In the order of slots().
  const std::vector<OwnedRows>& owned() const { return owned_; }
  /// Elements of slot i's owned rows, and their part of a whole flat buffer.
  index_t owned_size(std::size_t i) const { return owned_[i].rows * slots_[i].row_size; }
  template <class T>
  View1<T> owned_part(const View1<T>& buffer, std::size_t i) const {
    const index_t first = slots_[i].offset + owned_[i].first * slots_[i].row_size;
    return View1<T>(buffer.data() + first, owned_size(i));
  }
  /// The masters of slot i's owned rows.
  View1<Acc<S>> owned_masters(std::size_t i) const {
    return View1<Acc<S>>(masters_.data() + master_offset_[i], owned_size(i));
  }
  /// Rounds the owned masters into the weights (nothing to do where they share memory).
  void refresh_weights();

 private:
  std::vector<ParamSlot> slots_;
  std::unordered_map<std::string, std::size_t> index_;
  bool sharded_ = false;
  std::vector<OwnedRows> owned_;
  std::vector<index_t> master_offset_;  ///< of each slot's owned rows in masters_
  index_t dense_size_ = 0, expert_size_ = 0;
  View1<S> weights_;
  View1<Acc<S>> masters_, gradients_;
};

}  // namespace capstan
