// The elementary functions of base/math.hpp against the C library in double.
#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <limits>

#include "base/math.hpp"

namespace capstan {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

TEST(Math, ExpInFloatIsAccurateOverItsRange) {
  double worst = 0;
  for (int i = 0; i <= 2000000; ++i) {
    const float x = -87.3f + static_cast<float>(i * (87.3 + 88.37) / 2000000);
    if (x > 88.37f) break;
    const double exact = std::exp(static_cast<double>(x));
    worst = std::max(worst, std::fabs(static_cast<double>(fexp(x)) / exact - 1));
  }
  EXPECT_LT(worst, 2e-7);
  // Near 0, where sums of softmax are decided.
  for (int i = -100000; i <= 100000; ++i) {
    const float x = static_cast<float>(i) * 1e-5f;
    worst = std::max(worst, std::fabs(fexp(x) / std::exp(static_cast<double>(x)) - 1));
  }
  EXPECT_LT(worst, 2e-7);
  EXPECT_EQ(fexp(0.0f), 1.0f);
  EXPECT_EQ(fexp(-0.0f), 1.0f);
}

TEST(Math, ExpInFloatAtTheEnds) {
  EXPECT_EQ(fexp(-87.31f), 0.0f);
  EXPECT_EQ(fexp(-FLT_MAX), 0.0f);
  EXPECT_EQ(fexp(-kInf), 0.0f);
  for (const float x : {88.4f, 88.7f, 89.0f, 1e6f, FLT_MAX, kInf}) {
    EXPECT_TRUE(std::isfinite(fexp(x))) << x;
    EXPECT_GT(fexp(x), 2e38f) << x;
  }
  EXPECT_TRUE(std::isnan(fexp(kNaN)));
  EXPECT_TRUE(std::isnan(fexp(-kNaN)));
  EXPECT_EQ(fexp(1.5), std::exp(1.5));
}

TEST(Math, SigmoidAndSiluSaturateAndKeepNaN) {
  EXPECT_EQ(sigmoid(0.0f), 0.5f);
  for (const float x :
       {-1000.0f, -100.0f, -88.0f, -20.0f, -1.0f, 0.3f, 5.0f, 88.0f, 1e30f}) {
    const double exact = 1 / (1 + std::exp(-static_cast<double>(x)));
    EXPECT_NEAR(sigmoid(x), exact, 2e-7 * exact + 1e-38) << x;
    EXPECT_NEAR(silu(x), x * exact, 3e-7 * std::fabs(x * exact) + 1e-34) << x;
  }
  EXPECT_EQ(sigmoid(kInf), 1.0f);
  EXPECT_TRUE(std::isnan(sigmoid(kNaN)));
  EXPECT_TRUE(std::isnan(silu(kNaN)));
  EXPECT_TRUE(std::isnan(silu_grad(kNaN)));
}

TEST(Math, SiluGradIsTheDerivative) {
  for (double x = -30; x <= 30; x += 0.37) {
    const double e = 1e-5;
    const double difference = (silu(x + e) - silu(x - e)) / (2 * e);
    EXPECT_NEAR(silu_grad(x), difference, 1e-9) << x;
    EXPECT_NEAR(silu_grad(static_cast<float>(x)), silu_grad(static_cast<float>(x) + 0.0),
                1e-6);
  }
}

TEST(Math, RootsAndLogarithmsKeepTheirType) {
  static_assert(std::is_same_v<decltype(fsqrt(2.0f)), float>);
  static_assert(std::is_same_v<decltype(flog(2.0)), double>);
  EXPECT_EQ(fsqrt(2.0f), std::sqrt(2.0f));
  EXPECT_EQ(fsqrt(2.0), std::sqrt(2.0));
  EXPECT_NEAR(flog(3.0f), std::log(3.0), 1e-7);
  EXPECT_EQ(flog(3.0), std::log(3.0));
}

}  // namespace
}  // namespace capstan
