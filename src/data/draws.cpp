#include "data/draws.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace capstan {

namespace {
constexpr double kMillion = 1e6;
constexpr index_t kLongest = 4000000;
}  // namespace

void Draws::fix_shares(const std::vector<double>& weights) {
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  bool usable =
      !weights.empty() && weights.size() < 65536 && std::isfinite(total) && total > 0;
  for (const double w : weights) usable &= w >= 0;
  if (!usable)
    throw Error(Exit::deck, "mixture: weights must be >= 0, and one of them > 0");
  const auto round_with = [&](double scale) {
    share_.clear();
    for (const double w : weights) share_.push_back(std::llround(w * scale));
    index_t divisor = 0;
    for (const index_t s : share_) divisor = std::gcd(divisor, s);
    for (index_t& s : share_) s /= std::max<index_t>(divisor, 1);
    period_ = std::accumulate(share_.begin(), share_.end(), index_t{0});
  };
  const bool exact =
      total < 1e9 && std::all_of(weights.begin(), weights.end(), [](double w) {
        return std::abs(w * kMillion - std::round(w * kMillion)) < 1e-3;
      });
  if (exact) round_with(kMillion);
  if (!exact || period_ > kLongest) round_with(kMillion / total);
  for (std::size_t s = 0; s < weights.size(); ++s) {
    if (weights[s] > 0 && share_[s] == 0) {
      throw Error(Exit::deck, "mixture: weight " + std::to_string(weights[s]) +
                                  " of source " + std::to_string(s + 1) +
                                  " is under a millionth of the sum");
    }
  }
}

Draws::Draws(const std::vector<double>& weights, bool permuted, std::uint64_t key)
    : permuted_(permuted), key_(mix64(key)) {
  fix_shares(weights);
  const auto n = static_cast<index_t>(share_.size());
  const index_t positive = n - std::count(share_.begin(), share_.end(), index_t{0});
  order_.resize(static_cast<std::size_t>(period_));
  // In Tijdeman's terms, all times d * period: at draw t, a source may be taken once
  // share * t - period * count >= period / d, d = 2n - 2, and the one is taken that would
  // first break its bound. Without the division by share: compare cross products (below
  // 2^63).
  const index_t d = std::max<index_t>(2 * positive - 2, 1);
  std::vector<index_t> owed(share_.size(), 0);  // share * t - period * count
  std::vector<std::int32_t> count(share_.size(), 0);
  for (index_t t = 0; t < period_; ++t) {
    if (t % kStride == 0) counted_.insert(counted_.end(), count.begin(), count.end());
    index_t best = -1, best_slack = 0;
    for (index_t s = 0; s < n; ++s) {
      owed[s] += share_[s];
      if (share_[s] == 0 || owed[s] * d < period_) continue;
      const index_t slack = period_ * (d - 1) - owed[s] * d;
      if (best < 0 ||
          static_cast<double>(slack) * static_cast<double>(share_[best]) <
              static_cast<double>(best_slack) * static_cast<double>(share_[s])) {
        best = s;
        best_slack = slack;
      }
    }
    require(best >= 0, "draws: no source may be drawn");
    owed[best] -= period_;
    ++count[best];
    order_[t] = static_cast<std::uint16_t>(best);
  }
}

index_t Draws::count(int s, index_t n) const {
  if (!permuted_) return count_in_order(s, n);
  const index_t first = n / kBlock * kBlock;
  const Permutation order = block_order(first);
  index_t c = count_in_order(s, first);
  for (index_t i = 0; i < n - first; ++i)
    c += order_[(first + order.at(i)) % period_] == s;
  return c;
}

index_t Draws::count_in_order(int s, index_t n) const {
  const index_t whole = n / period_, rest = n % period_;
  const index_t stride = rest / kStride;
  index_t c = whole * share_[s] + counted_[stride * sources() + s];
  for (index_t t = stride * kStride; t < rest; ++t) c += order_[t] == s;
  return c;
}

}  // namespace capstan
