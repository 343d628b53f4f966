// Cross-entropy with z-loss against its definition and finite differences.
#include <gtest/gtest.h>

#include "kernels/cross_entropy.hpp"
#include "unit/check.hpp"

namespace capstan {
namespace {

using namespace test;
using Ints = std::vector<std::int32_t>;

struct Result {
  Values ce, z, gradient;
  bool operator==(const Result&) const = default;
};

template <class S>
Result run(index_t width, const Values& logits, const Ints& targets, double scale,
           double z_coefficient, bool gradient) {
  const index_t rows = static_cast<index_t>(targets.size());
  const auto x = view2<Acc<S>>(rows, width, logits);
  View2<S> d("d", gradient ? rows : 0, width);  // else in place
  if constexpr (std::is_same_v<S, Acc<S>>) {
    if (gradient) d = x;
  }
  View1<Acc<S>> ce("ce", rows), z("z", rows);
  fill(ce, Acc<S>(NAN));
  fill(z, Acc<S>(NAN));
  cross_entropy<S>(x, view_ints(targets), Acc<S>(scale), Acc<S>(z_coefficient), d, ce, z);
  return {values(ce), values(z), gradient ? values(d) : values(x)};
}

/// The definition in long double, without subtracting a maximum.
double log_sum_exp(const double* x, index_t width) {
  long double sum = 0;
  for (index_t i = 0; i < width; ++i) sum += std::exp(static_cast<long double>(x[i]));
  return static_cast<double>(std::log(sum));
}

struct Case {
  index_t width;
  Ints targets;
};
class CrossEntropy : public testing::TestWithParam<Case> {
 protected:
  const index_t width = GetParam().width;
  const Ints targets = GetParam().targets;
  const index_t rows = static_cast<index_t>(targets.size());
  const double scale = 0.37, coefficient = 0.02;
  Values logits = as_float(normal_values(rows * width, 1, 4));
};

TEST_P(CrossEntropy, MatchesDefinition) {
  const Result d = run<double>(width, logits, targets, scale, coefficient, false);
  const Result f = run<float>(width, logits, targets, scale, coefficient, false);
  EXPECT_EQ(d.gradient, logits);  // untouched when no gradient is wanted
  EXPECT_EQ(f.gradient, logits);
  Values ce(rows, 0.0), z(rows, 0.0);
  for (index_t t = 0; t < rows; ++t) {
    if (targets[t] < 0) continue;
    const double lse = log_sum_exp(&logits[t * width], width);
    ce[t] = lse - logits[t * width + targets[t]];
    z[t] = lse * lse;
  }
  EXPECT_LT(relative_error(d.ce, ce), 1e-13);
  EXPECT_LT(relative_error(d.z, z), 1e-13);
  EXPECT_LT(relative_error(f.ce, ce), 1e-6);
  EXPECT_LT(relative_error(f.z, z), 1e-6);
}

TEST_P(CrossEntropy, GradientMatchesFiniteDifferences) {
  const Result d = run<double>(width, logits, targets, scale, coefficient, true);
  const Result f = run<float>(width, logits, targets, scale, coefficient, true);
  const Result plain = run<double>(width, logits, targets, scale, coefficient, false);
  EXPECT_EQ(d.ce, plain.ce);
  EXPECT_EQ(d.z, plain.z);
  for (index_t t = 0; t < rows; ++t) {
    const Values row(logits.begin() + t * width, logits.begin() + (t + 1) * width);
    const Values expected = finite_difference(
        [&](const Values& x) {
          if (targets[t] < 0) return 0.0;
          const double lse = log_sum_exp(x.data(), width);
          return scale * (lse - x[targets[t]] + coefficient * lse * lse);
        },
        row);
    const auto slice = [&](const Values& v) {
      return Values(v.begin() + t * width, v.begin() + (t + 1) * width);
    };
    EXPECT_LT(relative_error(slice(d.gradient), expected), 1e-8);
    EXPECT_LT(relative_error(slice(f.gradient), expected), 2e-6);
  }
}

TEST_P(CrossEntropy, UncountedRowsMayHoldNaN) {
  for (index_t t = 0; t < rows; ++t) {
    for (index_t i = 0; targets[t] < 0 && i < width; ++i) logits[t * width + i] = NAN;
  }
  const Result f = run<float>(width, logits, targets, scale, coefficient, true);
  for (index_t t = 0; t < rows; ++t) {
    EXPECT_EQ(f.ce[t] == 0 && f.z[t] == 0, targets[t] < 0);
    for (index_t i = 0; i < width; ++i) {
      const double g = f.gradient[t * width + i];
      EXPECT_TRUE(targets[t] < 0 ? g == 0 : std::isfinite(g));
    }
  }
}

TEST_P(CrossEntropy, OneThreadGivesTheSameBits) {
  const Result two = run<float>(width, logits, targets, scale, coefficient, true);
  Result one;
  with_one_thread(
      [&] { one = run<float>(width, logits, targets, scale, coefficient, true); });
  EXPECT_EQ(one, two);
}

INSTANTIATE_TEST_SUITE_P(Cases, CrossEntropy,
                         testing::Values(Case{2, {1}}, Case{7, {0, -1, 6}},
                                         Case{16, {3, 15}},
                                         Case{257, {256, -1, 0, 100, -1}}));

TEST(CrossEntropyProperties, UniformLogitsGiveLogOfVocabulary) {
  const index_t width = 8192;
  const Result f = run<float>(width, Values(width, 3.0), {17}, 1, 0, true);
  EXPECT_NEAR(f.ce[0], std::log(8192.0), 2e-6);
  double sum = 0;
  for (const double g : f.gradient) sum += g;
  EXPECT_NEAR(sum, 0, 1e-5);  // without z-loss the gradient of a row sums to 0
  EXPECT_NEAR(f.gradient[17], 1.0 / 8192 - 1, 1e-6);
}

TEST(CrossEntropyProperties, LargeLogitsDoNotOverflow) {
  for (const double shift : {-1e4, 1e4}) {
    const Values logits = {shift, shift + 1, shift - 1, shift};
    const Result f = run<float>(4, logits, {1}, 1, 0, true);
    const double expected = std::log(2 * std::exp(-1.0) + 1 + std::exp(-2.0));
    EXPECT_NEAR(f.ce[0], expected, 2e-3);  // logits near 1e4 are known to 1e-3
    for (const double g : f.gradient) EXPECT_TRUE(std::isfinite(g));
  }
}

TEST(CrossEntropyProperties, BadLogitIsSeenInTheLoss) {
  for (const double bad : {static_cast<double>(NAN), static_cast<double>(INFINITY)}) {
    Values logits(40, 0.0);
    logits[33] = bad;
    EXPECT_FALSE(std::isfinite(run<float>(40, logits, {1}, 1, 0, false).ce[0]));
  }
}

}  // namespace
}  // namespace capstan
