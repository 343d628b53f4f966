#include "model/moe/drop_stats.hpp"

#include <algorithm>
#include <numeric>

#include "base/log.hpp"

namespace capstan {

std::int64_t DropReport::total() const {
  return std::accumulate(sender.begin(), sender.end(), std::int64_t(0)) +
         std::accumulate(receiver.begin(), receiver.end(), std::int64_t(0));
}

void DropStats::begin_step() {
  counts_.assign(layers_ * kCounts, 0);
  capacities_.assign(layers_ * kCapacities, 0.0);
}

void DropStats::add(index_t layer, const DropTally& t) {
  const std::int64_t counts[kCounts] = {t.sender, t.receiver, t.spilled, t.kept,
                                        t.computed};
  const double capacities[kCapacities] = {t.pool_rows, t.pool_factor, t.bank_rows,
                                          t.bank_factor, 1.0};
  for (index_t i = 0; i < kCounts; ++i) counts_[layer * kCounts + i] += counts[i];
  for (index_t i = 0; i < kCapacities; ++i)
    capacities_[layer * kCapacities + i] += capacities[i];
}

DropReport DropStats::end_step(const Grid& grid) const {
  std::vector<std::int64_t> counts(counts_);
  std::vector<double> capacities(capacities_);
  grid.dense.all_reduce_host(counts.data(), layers_ * kCounts, Reduce::sum);
  grid.dense.all_reduce_host(capacities.data(), layers_ * kCapacities, Reduce::sum);
  DropReport report;
  for (index_t l = 0; l < layers_; ++l) {
    const std::int64_t* n = &counts[l * kCounts];
    if (n[3] != n[4]) {
      throw Error(Exit::internal,
                  format("layer %lld: senders kept %lld assignments, receivers computed "
                         "%lld",
                         static_cast<long long>(l), static_cast<long long>(n[3]),
                         static_cast<long long>(n[4])));
    }
    report.sender.push_back(n[0]);
    report.receiver.push_back(n[1]);
    report.spilled.push_back(n[2]);
    const double* c = &capacities[l * kCapacities];
    const double times = std::max(1.0, c[kCapacities - 1]);
    report.pool_rows.push_back(c[0] / times);
    report.pool_factor.push_back(c[1] / times);
    report.bank_rows.push_back(c[2] / times);
    report.bank_factor.push_back(c[3] / times);
  }
  return report;
}

}  // namespace capstan
