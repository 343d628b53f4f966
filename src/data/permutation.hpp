#pragma once
/// \file A pseudo-random permutation of [0, n) without tables: a balanced Feistel network
/// on the next even number of bits, walked along its cycle until the value lies below n
/// (Black and Rogaway, "Ciphers with arbitrary finite domains", 2002). At most 4 steps in
/// the mean.
#include <cstdint>

#include "base/hash.hpp"

namespace capstan {

class Permutation {
 public:
  /// Of [0, n), n >= 1; equal keys give equal permutations.
  Permutation(std::int64_t n, std::uint64_t key)
      : n_(static_cast<std::uint64_t>(n)), key_(key) {
    while (half_ < 32 && (std::uint64_t{1} << (2 * half_)) < n_) ++half_;
    mask_ = (std::uint64_t{1} << half_) - 1;
  }
  /// Image of i.
  std::int64_t at(std::int64_t i) const {
    auto x = static_cast<std::uint64_t>(i);
    do x = forward(x);
    while (x >= n_);
    return static_cast<std::int64_t>(x);
  }
  /// The i whose image is `value`.
  std::int64_t find(std::int64_t value) const {
    auto x = static_cast<std::uint64_t>(value);
    do x = backward(x);
    while (x >= n_);
    return static_cast<std::int64_t>(x);
  }

 private:
  static constexpr int kRounds = 6;
  std::uint64_t round(int r, std::uint64_t x) const {
    return mix64(x ^ mix64(key_ + static_cast<std::uint64_t>(r))) & mask_;
  }
  std::uint64_t forward(std::uint64_t x) const {
    std::uint64_t left = x >> half_, right = x & mask_;
    for (int r = 0; r < kRounds; ++r) {
      const std::uint64_t next = left ^ round(r, right);
      left = right;
      right = next;
    }
    return (left << half_) | right;
  }
  std::uint64_t backward(std::uint64_t x) const {
    std::uint64_t left = x >> half_, right = x & mask_;
    for (int r = kRounds - 1; r >= 0; --r) {
      const std::uint64_t before = right ^ round(r, left);
      right = left;
      left = before;
    }
    return (left << half_) | right;
  }

  std::uint64_t n_, key_;
  int half_ = 1;
  std::uint64_t mask_ = 1;
};

}  // namespace capstan
