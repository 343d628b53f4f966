#pragma once
/// \file Sharded state on the move: gradients are summed at the ranks that own their
/// rows, and the owners' new weights go to everybody.
#include <vector>

#include "model/param.hpp"
#include "optim/ownership.hpp"

namespace capstan {

/// The moves of one class of tensors (dense, or experts') in one group of ranks. Each
/// rank's owned rows, one tensor after the other, are its stream; a bucket is the next
/// piece of every stream, so that all ranks send and sum alike much whatever they own,
/// and scratch memory is bounded. Nothing moves in a group of one rank.
class ShardGroup {
 public:
  struct Run {
    index_t first = 0, n = 0;  ///< elements of the flat buffers
  };
  /// streams [size of group]. `bucket`: elements of all ranks' pieces together.
  ShardGroup(const Comm& group, const std::vector<std::vector<Run>>& streams,
             index_t bucket, Ledger& ledger);

  /// The owner's rows of `buffer` = the sums over the group, added in rank order; other
  /// rows keep what they were. Collective over the group, as is gather.
  template <class T>
  void reduce(const View1<T>& buffer, Context& ctx) const;
  /// All rows of `buffer` = the owner's.
  template <class T>
  void gather(const View1<T>& buffer, Context& ctx) const;

 private:
  struct Bucket {
    std::vector<index_t> counts;    ///< elements of each rank's piece
    index_t total = 0, mine = 0;    ///< of all; where this rank's piece starts
    index_t first = 0, pieces = 0;  ///< in the table
    index_t first_mine = 0, pieces_mine = 0;
  };
  Comm group_;
  std::vector<Bucket> buckets_;
  View1<index_t> table_;  ///< kernels/pieces.hpp
};

/// Elements that move at once; scratch is about twice as much.
inline constexpr index_t kShardBucket = index_t(1) << 22;

/// The moves of all parameters.
template <class S>
class Shards {
 public:
  /// cuts: of every slot, as share_state deals them out for the grid.
  Shards(const ParamStore<S>& params, const std::vector<std::vector<index_t>>& cuts,
         const Grid& grid, index_t bucket, Ledger& ledger);
  /// The rows of every slot that this rank owns.
  const std::vector<OwnedRows>& owned() const { return owned_; }

  /// Of a flat buffer laid out as the parameters. Collective over grid.dense.
  template <class T>
  void reduce(const View1<T>& buffer, Context& ctx) const {
    for (const ShardGroup& group : groups_) group.reduce(buffer, ctx);
  }
  template <class T>
  void gather(const View1<T>& buffer, Context& ctx) const {
    for (const ShardGroup& group : groups_) group.gather(buffer, ctx);
  }

 private:
  std::vector<OwnedRows> owned_;
  std::vector<ShardGroup> groups_;  ///< dense, experts
};

}  // namespace capstan
