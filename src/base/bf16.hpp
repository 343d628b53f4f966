#pragma once
/// \file Storage type bf16: the upper half of a float, rounded to nearest even.
/// Arithmetic is done in float. Without Kokkos, so that *_host.cpp files may use it.
#include <cstdint>

#if defined(__CUDACC__) || defined(__HIPCC__)
#define CAPSTAN_BOTH __host__ __device__ inline
#else
#define CAPSTAN_BOTH inline
#endif

namespace capstan {

struct bf16 {
  std::uint16_t bits = 0;

  bf16() = default;
  bf16(const bf16&) = default;
  /// Written out, because compilers vectorise a store of the bits, not of the struct.
  CAPSTAN_BOTH bf16& operator=(const bf16& o) {
    bits = o.bits;
    return *this;
  }
  CAPSTAN_BOTH bf16(float x) {
    union {
      float f;
      std::uint32_t u;
    } v{x};
    const std::uint32_t rounded = v.u + 0x7fffu + ((v.u >> 16) & 1u);
    const std::uint32_t kept = x != x ? v.u | 0x400000u : rounded;  // NaN stays NaN
    bits = static_cast<std::uint16_t>(kept >> 16);
  }
  CAPSTAN_BOTH operator float() const {
    union {
      std::uint32_t u;
      float f;
    } v{static_cast<std::uint32_t>(bits) << 16};
    return v.f;
  }
};
static_assert(sizeof(bf16) == 2);

#undef CAPSTAN_BOTH

/// The type of sums, statistics, masters, moments and gradients of scalar S.
template <class S>
struct AccOf {
  using type = S;
};
template <>
struct AccOf<bf16> {
  using type = float;
};
template <class S>
using Acc = typename AccOf<S>::type;

}  // namespace capstan
