// The fused AdamW update against the formula of Loshchilov & Hutter written out in
// double.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/adamw.hpp"
#include "unit/check.hpp"

using namespace capstan;
using namespace capstan::test;

namespace {

struct State {
  Values w, m, v;
};

/// One step of the published algorithm, element by element.
State reference_step(const AdamStep& s, const Values& gradient, State state) {
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    const double g = gradient[i] * s.grad_scale;
    state.m[i] = s.beta1 * state.m[i] + (1 - s.beta1) * g;
    state.v[i] = s.beta2 * state.v[i] + (1 - s.beta2) * g * g;
    const double m_hat = state.m[i] / (1 - std::pow(s.beta1, s.count));
    const double v_hat = state.v[i] / (1 - std::pow(s.beta2, s.count));
    state.w[i] -=
        s.lr * (m_hat / (std::sqrt(v_hat) + s.eps) + s.weight_decay * state.w[i]);
  }
  return state;
}

AdamStep step_number(index_t count) {
  AdamStep s;
  s.lr = 0.01;
  s.beta1 = 0.8;
  s.beta2 = 0.95;
  s.eps = 1e-6;
  s.weight_decay = 0.1;
  s.grad_scale = 0.7;
  s.count = count;
  return s;
}

template <class S>
class AdamW : public testing::Test {};
using Scalars = testing::Types<float, double>;
TYPED_TEST_SUITE(AdamW, Scalars);

template <class S>
constexpr double kTolerance = sizeof(S) == 4 ? 2e-6 : 1e-13;

}  // namespace

TYPED_TEST(AdamW, FollowsTheFormulaOverSeveralSteps) {
  using S = TypeParam;
  for (const index_t n : {1, 15, 2048, 10007}) {
    State expected{as_float(normal_values(n, 1)), Values(n, 0.0), Values(n, 0.0)};
    auto w = view1<S>(expected.w), m = view1<S>(expected.m), v = view1<S>(expected.v);
    for (index_t count = 1; count <= 4; ++count) {
      const Values gradient = as_float(normal_values(n, 10 + count, 0.3));
      expected = reference_step(step_number(count), gradient, expected);
      adamw<S>(step_number(count), view1<S>(gradient), w, m, v, View1<S>());
      EXPECT_LE(relative_error(values(w), expected.w), kTolerance<S>) << n;
      EXPECT_LE(relative_error(values(m), expected.m), kTolerance<S>) << n;
      EXPECT_LE(relative_error(values(v), expected.v), kTolerance<S>) << n;
    }
  }
}

TYPED_TEST(AdamW, SquaresAreThoseOfTheUpdateInFixedOrder) {
  using S = TypeParam;
  for (const index_t n : {1, 2047, 2048, 2049, 10007}) {
    const Values before = as_float(normal_values(n, 4)), zero(n, 0.0);
    const Values gradient = as_float(normal_values(n, 5, 0.3));
    const State after = reference_step(step_number(1), gradient, {before, zero, zero});
    Values want((n + 2047) / 2048, 0.0);
    for (index_t i = 0; i < n; ++i) {
      want[i / 2048] += (before[i] - after.w[i]) * (before[i] - after.w[i]);
    }
    View1<double> squares("squares", update_blocks(n)), again("again", update_blocks(n));
    View1<double> none;
    const auto run = [&](View1<double> sums) {
      auto w = view1<S>(before), m = view1<S>(zero), v = view1<S>(zero);
      adamw<S>(step_number(1), view1<S>(gradient), w, m, v, View1<S>(), sums);
      return values(w);
    };
    const Values moved = run(squares);
    EXPECT_LE(relative_error(values(squares), want), 5 * kTolerance<S>) << n;
    // The sums change nothing in the update, and one thread adds as several do.
    EXPECT_EQ(moved, run(none));
    with_one_thread([&] { run(again); });
    EXPECT_EQ(values(squares), values(again));
  }
}

TEST(BlockSums, OfConsecutiveElements) {
  for (const index_t n : {0, 1, 2048, 5000}) {
    const Values x = normal_values(n, 6);
    View1<double> sums("sums", update_blocks(n));
    block_sums(view1<double>(x), sums);
    Values want((n + 2047) / 2048, 0.0);
    for (index_t i = 0; i < n; ++i) want[i / 2048] += x[i];
    EXPECT_LE(relative_error(values(sums), want), 1e-12) << n;
  }
}

TYPED_TEST(AdamW, CopiesTheMasterToTheWeights) {
  using S = TypeParam;
  const index_t n = 3001;
  auto w = view1<S>(normal_values(n, 2)), m = view1<S>(Values(n, 0.1));
  auto v = view1<S>(Values(n, 0.2)), copy = view1<S>(Values(n, 99.0));
  const auto gradient = view1<S>(normal_values(n, 3));
  auto w2 = view1<S>(values(w)), m2 = view1<S>(values(m)), v2 = view1<S>(values(v));
  adamw<S>(step_number(2), gradient, w, m, v, copy);
  adamw<S>(step_number(2), gradient, w2, m2, v2, View1<S>());
  EXPECT_EQ(values(copy), values(w));
  EXPECT_EQ(values(w2), values(w));
  EXPECT_EQ(values(m2), values(m));
  EXPECT_EQ(values(v2), values(v));
}

TYPED_TEST(AdamW, FirstStepMovesByTheLearningRate) {
  using S = TypeParam;
  // Bias correction makes the first step lr * sign(g), whatever the size of g.
  AdamStep s;
  s.lr = 0.125;
  s.eps = 0;
  auto w = view1<S>({1, 1, 1}), m = view1<S>({0, 0, 0}), v = view1<S>({0, 0, 0});
  adamw<S>(s, view1<S>({1e-3, -5, 400}), w, m, v, View1<S>());
  EXPECT_LE(relative_error(values(w), {0.875, 1.125, 0.875}), kTolerance<S>);
}

TYPED_TEST(AdamW, ZeroGradientOnlyDecays) {
  using S = TypeParam;
  AdamStep s;
  s.lr = 0.5;
  s.weight_decay = 0.25;
  auto w = view1<S>({2, -4}), m = view1<S>({0, 0}), v = view1<S>({0, 0});
  adamw<S>(s, view1<S>({0, 0}), w, m, v, View1<S>());
  EXPECT_EQ(values(w), (Values{1.75, -3.5}));
}

TYPED_TEST(AdamW, NotANumberIsNotHidden) {
  using S = TypeParam;
  auto w = view1<S>({1, 1}), m = view1<S>({0, 0}), v = view1<S>({0, 0});
  adamw<S>(step_number(1), view1<S>({std::nan(""), 1}), w, m, v, View1<S>());
  EXPECT_TRUE(std::isnan(values(w)[0]));
  EXPECT_TRUE(std::isfinite(values(w)[1]));
}

TYPED_TEST(AdamW, OneThreadMakesTheSameBits) {
  using S = TypeParam;
  const index_t n = 50000;
  const auto gradient = view1<S>(normal_values(n, 5));
  const auto run = [&] {
    auto w = view1<S>(normal_values(n, 6)), m = view1<S>(normal_values(n, 7));
    auto v = view1<S>(Values(n, 0.5));
    adamw<S>(step_number(9), gradient, w, m, v, View1<S>());
    return values(w);
  };
  Values alone;
  const Values together = run();
  with_one_thread([&] { alone = run(); });
  EXPECT_EQ(alone, together);
}
