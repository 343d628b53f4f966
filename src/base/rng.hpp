#pragma once
/// \file Counter-based random numbers: a value is a pure function of (key, counter), so
/// that tensors come out the same on any grid, in any order, on host and device.
#include <Kokkos_Core.hpp>
#include <cmath>
#include <cstdint>
#include <string>

#include "base/hash.hpp"

namespace capstan {

class Rng {
 public:
  /// Streams with different (seed, stream) are independent.
  KOKKOS_INLINE_FUNCTION Rng(std::uint64_t seed, std::uint64_t stream)
      : key_(mix64(mix64(seed) ^ (stream * 0xd1342543de82ef95ull + 1))) {}

  KOKKOS_INLINE_FUNCTION std::uint64_t bits(std::uint64_t counter) const {
    return mix64(mix64(counter ^ key_) + key_);
  }
  /// Uniform in (0, 1).
  KOKKOS_INLINE_FUNCTION double uniform(std::uint64_t counter) const {
    return (static_cast<double>(bits(counter) >> 11) + 0.5) * 0x1.0p-53;
  }
  /// Standard normal (Box-Muller, two counters).
  KOKKOS_INLINE_FUNCTION double normal(std::uint64_t counter) const {
    const double u = uniform(2 * counter), v = uniform(2 * counter + 1);
    return ::sqrt(-2.0 * ::log(u)) * ::cos(6.283185307179586 * v);
  }
  /// Standard normal conditioned on |x| <= limit, by drawing again up to 16 times.
  KOKKOS_INLINE_FUNCTION double truncated_normal(std::uint64_t counter,
                                                 double limit) const {
    double x = 0;
    for (std::uint64_t tries = 0; tries < 16; ++tries) {
      x = normal(16 * counter + tries);
      if (::fabs(x) <= limit) return x;
    }
    return 0;
  }

 private:
  std::uint64_t key_;
};

/// A stream number from a name (a tensor's, a source's).
inline std::uint64_t stream_of(const std::string& name) {
  return hash_bytes(name.data(), name.size());
}

}  // namespace capstan
