#pragma once
/// \file Which source each sequence of a mixture comes from: exact counts at every
/// prefix.
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.hpp"

namespace capstan {

using index_t = std::int64_t;

/// After any number N of draws, source s has been drawn within 1 of share_s * N times, so
/// that a source with one expected draw or more has been drawn. The order is that of R.
/// Tijdeman, "The chairman assignment problem" (1980); shares are integers over their
/// sum, so it repeats with that period and any draw is found without the ones before it.
class Draws {
 public:
  /// Weights >= 0, some > 0. Shares are the weights to six decimals, exactly, when their
  /// reduced sum is at most 4e6; else shares of the total rounded to a millionth.
  /// Error(Exit::deck) when a positive weight would round to nothing.
  explicit Draws(const std::vector<double>& weights);

  int sources() const { return static_cast<int>(share_.size()); }
  /// Share of source s = share(s) / period().
  index_t share(int s) const { return share_[s]; }
  index_t period() const { return period_; }
  /// The source of draw n (from 0).
  int source(index_t n) const { return order_[n % period_]; }
  /// Draws of source s among the first n.
  index_t count(int s, index_t n) const;

 private:
  static constexpr index_t kStride = 1024;
  void fix_shares(const std::vector<double>& weights);
  std::vector<index_t> share_;
  index_t period_ = 1;
  std::vector<std::uint16_t> order_;  // [period]
  std::vector<std::int32_t>
      counted_;  // [period / kStride, sources]: counts before each stride
};

}  // namespace capstan
