#pragma once
/// \file Elementary functions that compilers vectorise on hosts (no library call, no
/// branch) and that map to the device's own on GPUs.
#include <Kokkos_Core.hpp>
#include <cmath>
#include <cstdint>

namespace capstan {

/// Overloads by type (the C functions of these names compute in double).
KOKKOS_INLINE_FUNCTION double fsqrt(double x) {
  return ::sqrt(x);
}
KOKKOS_INLINE_FUNCTION float fsqrt(float x) {
  return ::sqrtf(x);
}
KOKKOS_INLINE_FUNCTION double flog(double x) {
  return ::log(x);
}
KOKKOS_INLINE_FUNCTION float flog(float x) {
  return ::logf(x);
}
KOKKOS_INLINE_FUNCTION double fexp(double x) {
  return ::exp(x);
}

/// exp in float with a relative error below 2e-7; 0 below -87.3, capped
/// above 88.376 (2.4e38, the last power of two whose scale is finite); NaN stays NaN.
/// Cody-Waite reduction, then a polynomial of degree 6 (coefficients of Cephes expf).
KOKKOS_INLINE_FUNCTION float fexp(float x) {
#if defined(__CUDA_ARCH__) || defined(__HIP_DEVICE_COMPILE__)
  return ::expf(x);
#else
  const float c = x > 88.3762626f ? 88.3762626f : (x < -87.3f ? -87.3f : x);
  const float magic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  const float shifted = c * 1.44269504088896341f + magic;
  const float n = shifted - magic;
  float r = c - n * 0.693359375f;
  r = r - n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  union {
    float f;
    std::int32_t i;
  } s{shifted};
  union {
    std::int32_t i;
    float f;
  } scale{(s.i - 0x4b400000 + 127) << 23};
  const float y = p * scale.f;
  return x < -87.3f ? 0.0f : y;
#endif
}

/// 1 / (1 + exp(-x)), without overflow for any finite x.
template <class T>
KOKKOS_INLINE_FUNCTION T sigmoid(T x) {
  return T(1) / (T(1) + fexp(-x));
}
template <class T>
KOKKOS_INLINE_FUNCTION T silu(T x) {
  return x * sigmoid(x);
}
/// d silu(x) / dx.
template <class T>
KOKKOS_INLINE_FUNCTION T silu_grad(T x) {
  const T s = sigmoid(x);
  return s * (T(1) + x * (T(1) - s));
}

}  // namespace capstan
