#pragma once
/// \file Kernels in bf16 against the same kernels in double, on inputs that bf16 holds
/// exactly: what is left is the arithmetic in float and one rounding of each result.
#include <gtest/gtest.h>

#include "unit/check.hpp"

namespace capstan::test {

/// Half a unit in the last place, relative: bf16 keeps 8 bits.
inline constexpr double kHalfUlp = 0x1p-8;

/// Rounded to bf16.
inline Values as_bf16(Values v) {
  for (double& x : v) x = double(float(bf16(float(x))));
  return v;
}

/// Normal values that bf16 holds exactly.
inline Values bf16_values(index_t n, std::uint64_t seed, double std = 1) {
  return as_bf16(normal_values(n, seed, std));
}

/// Each element of `got` is that of `exact` rounded once, apart from `arithmetic` (a
/// fraction of the largest element, for what float sums lose).
inline void expect_rounded(const Values& got, const Values& exact, const char* what,
                           double arithmetic = 2e-6) {
  ASSERT_EQ(got.size(), exact.size()) << what;
  double largest = 0;
  for (const double x : exact) largest = std::max(largest, std::fabs(x));
  ASSERT_GT(largest, 0) << what;
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_LE(std::fabs(got[i] - exact[i]),
              kHalfUlp * std::fabs(exact[i]) + arithmetic * largest)
        << what << " element " << i;
  }
}

/// A result that stays in Acc<bf16> = float.
inline void expect_float(const Values& got, const Values& exact, const char* what,
                         double tolerance = 2e-6) {
  EXPECT_LT(relative_error(got, exact), tolerance) << what;
}

}  // namespace capstan::test
