#pragma once
/// \file Storage type bf16: the upper half of a float, rounded to nearest even.
/// Arithmetic is done in float.
#include <Kokkos_Core.hpp>
#include <cstdint>

namespace capstan {

struct bf16 {
  std::uint16_t bits = 0;

  bf16() = default;
  KOKKOS_INLINE_FUNCTION bf16(float x) {
    union {
      float f;
      std::uint32_t u;
    } v{x};
    const bool nan = (v.u & 0x7fffffffu) > 0x7f800000u;
    const std::uint32_t rounded = v.u + 0x7fffu + ((v.u >> 16) & 1u);
    bits = static_cast<std::uint16_t>(nan ? (v.u >> 16) | 0x40u : rounded >> 16);
  }
  KOKKOS_INLINE_FUNCTION operator float() const {
    union {
      std::uint32_t u;
      float f;
    } v{static_cast<std::uint32_t>(bits) << 16};
    return v.f;
  }
};
static_assert(sizeof(bf16) == 2);

}  // namespace capstan
