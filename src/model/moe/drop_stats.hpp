#pragma once
/// \file What became of the assignments of a step: drops by cause, spilled, capacities.
#include <vector>

#include "comm/grid.hpp"
#include "model/moe/dispatch.hpp"

namespace capstan {

/// Of one optimizer step over all ranks, by layer.
struct DropReport {
  std::vector<std::int64_t> sender, receiver, spilled;
  /// Means over ranks and micro-batches of DropTally's capacities and effective factors.
  std::vector<double> pool_rows, pool_factor, bank_rows, bank_factor;
  std::int64_t total() const;
};

class DropStats {
 public:
  explicit DropStats(index_t layers) : layers_(layers) { begin_step(); }
  void begin_step();
  /// A micro-batch of this rank.
  void add(index_t layer, const DropTally& tally);
  /// Sums over grid.dense (collective). Error(Exit::internal) unless in every layer what
  /// senders kept is what receivers computed.
  DropReport end_step(const Grid& grid) const;

 private:
  static constexpr index_t kCounts = 5, kCapacities = 5;
  index_t layers_;
  std::vector<std::int64_t> counts_;  ///< [L, kCounts]
  std::vector<double> capacities_;    ///< [L, kCapacities], the last = tallies added
};

}  // namespace capstan
