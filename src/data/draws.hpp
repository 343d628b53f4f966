#pragma once
/// \file Which source each sequence of a mixture comes from: exact counts at every
/// prefix, or, permuted, at the end of every block.
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "data/permutation.hpp"

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
  /// With `permuted`, each block of kBlock draws comes in an order of its own, made of
  /// `key`: the counts above then hold at the ends of blocks, and no rank of a grid whose
  /// batch is a multiple of the period is bound to one source.
  explicit Draws(const std::vector<double>& weights, bool permuted = false,
                 std::uint64_t key = 0);

  static constexpr index_t kBlock = 1024;

  int sources() const { return static_cast<int>(share_.size()); }
  /// Share of source s = share(s) / period().
  index_t share(int s) const { return share_[s]; }
  index_t period() const { return period_; }
  /// The source of draw n (from 0).
  int source(index_t n) const {
    if (!permuted_) return order_[n % period_];
    const index_t first = n / kBlock * kBlock;
    return order_[(first + block_order(first).at(n - first)) % period_];
  }
  /// Draws of source s among the first n.
  index_t count(int s, index_t n) const;

 private:
  static constexpr index_t kStride = 1024;
  void fix_shares(const std::vector<double>& weights);
  index_t count_in_order(int s, index_t n) const;
  /// Of the block that begins at draw `first`.
  Permutation block_order(index_t first) const {
    return Permutation(kBlock, mix64(key_ ^ static_cast<std::uint64_t>(first / kBlock)));
  }
  bool permuted_;
  std::uint64_t key_;
  std::vector<index_t> share_;
  index_t period_ = 1;
  std::vector<std::uint16_t> order_;  // [period]
  std::vector<std::int32_t>
      counted_;  // [period / kStride, sources]: counts before each stride
};

}  // namespace capstan
