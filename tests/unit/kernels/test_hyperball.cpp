// Hyperball steps and directions against the published text in plain double loops.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/directions.hpp"
#include "kernels/hyperball.hpp"
#include "unit/check.hpp"

using namespace capstan;
using namespace capstan::test;

namespace {

double norm_of(const Values& v) {
  return std::sqrt(dot(v, v));
}

Values part(const Values& v, index_t first, index_t n) {
  return Values(v.begin() + first, v.begin() + first + n);
}

/// p' = p - lr R u / max(|u|, 1e-10), then p' R / max(|p'|, 1e-10).
Values reference(double lr, double radius, Values p, const Values& u) {
  const double norm = std::max(norm_of(u), 1e-10);
  for (std::size_t i = 0; i < p.size(); ++i) p[i] -= lr * radius * u[i] / norm;
  const double moved = std::max(norm_of(p), 1e-10);
  for (double& x : p) x *= radius / moved;
  return p;
}

/// One step of every matrix of a batch, each with its own radius.
template <class S>
void step(double lr, index_t count, index_t size, const Values& radius, View1<S> p,
          View1<S> u, View1<S> weights, double* change = nullptr) {
  const View1<double> partial("partial", hyperball_partials(count, size));
  const View1<double> sums("sums", 3 * count);
  hyperball_sums<S>(count, size, p, u, partial, sums);
  const Values host = values(sums);
  Values factors;
  if (change) *change = 0;
  for (index_t m = 0; m < count; ++m) {
    const auto f = hyperball_factors(lr, radius[m], host.data() + 3 * m);
    factors.push_back(f.keep);
    factors.push_back(f.move);
    if (change) *change += change_squares(f.keep, f.move, host.data() + 3 * m);
  }
  keep_and_move<S>(count, size, view1<double>(factors), u, p, weights);
}

template <class S>
class Hyperball : public testing::Test {};
using Scalars = testing::Types<float, double>;
TYPED_TEST_SUITE(Hyperball, Scalars);

template <class S>
constexpr double kTolerance = sizeof(S) == 4 ? 1e-6 : 1e-13;

}  // namespace

TYPED_TEST(Hyperball, FollowsTheFormula) {
  using S = TypeParam;
  for (const index_t size : {1, 100, 4096, 9001}) {
    const index_t count = 3;
    const Values p = as_float(normal_values(count * size, 1, 0.02));
    const Values u = as_float(normal_values(count * size, 2, 30));
    Values radius, expected;
    for (index_t m = 0; m < count; ++m) {
      radius.push_back(norm_of(part(p, m * size, size)));
      const Values one =
          reference(0.03, radius[m], part(p, m * size, size), part(u, m * size, size));
      expected.insert(expected.end(), one.begin(), one.end());
    }
    const auto view = view1<S>(p), copy = view1<S>(Values(p.size(), 9.0));
    double change = 0;
    step<S>(0.03, count, size, radius, view, view1<S>(u), copy, &change);
    EXPECT_LE(relative_error(values(view), expected), kTolerance<S>) << size;
    EXPECT_EQ(values(copy), values(view)) << size;
    Values moved = expected;
    for (std::size_t i = 0; i < p.size(); ++i) moved[i] -= p[i];
    if (size == 1) continue;  // a number of fixed size does not move
    EXPECT_NEAR(std::sqrt(change) / norm_of(moved), 1, 1e-5) << size;
  }
}

TYPED_TEST(Hyperball, KeepsTheNormOverAThousandSteps) {
  using S = TypeParam;
  const index_t size = 600;
  const Values start = as_float(normal_values(size, 4, 0.01));
  const Values radius = {norm_of(start)};
  const auto p = view1<S>(start);
  for (int n = 0; n < 1000; ++n) {
    step<S>(0.05, 1, size, radius, p, view1<S>(normal_values(size, 100 + n)), View1<S>());
    if (n % 100 == 99) {
      EXPECT_NEAR(norm_of(values(p)) / radius[0], 1, 1e-6) << n;
    }
  }
  EXPECT_NEAR(norm_of(values(p)) / radius[0], 1, 1e-7);
  EXPECT_LT(dot(values(p), start) / (radius[0] * radius[0]), 0.5);  // it did move
}

TYPED_TEST(Hyperball, AZeroDirectionLeavesEveryBit) {
  using S = TypeParam;
  const index_t size = 5000;
  const auto p = view1<S>(normal_values(2 * size, 6));
  const Values before = values(p);
  Values u = normal_values(2 * size, 7);
  std::fill(u.begin(), u.begin() + size, 0.0);
  // A radius that is off would rescale the matrix: with no direction nothing may happen.
  step<S>(0.1, 2, size, {1.5 * norm_of(part(before, 0, size)), 60}, p, view1<S>(u),
          View1<S>());
  EXPECT_EQ(part(values(p), 0, size), part(before, 0, size));
  EXPECT_NE(part(values(p), size, size), part(before, size, size));
}

TYPED_TEST(Hyperball, TinyDirectionsAreFloored) {
  const double sums[3] = {1e-30, 0, 4};  // |u| = 1e-15 counts as 1e-10
  const HyperballFactors f = hyperball_factors(0.5, 2, sums);
  EXPECT_NEAR(f.move, 0.5 * 2 / 1e-10, 1);
  EXPECT_NEAR(f.keep, 1, 1e-9);
}

TYPED_TEST(Hyperball, NesterovKeepsThePublishedMomentum) {
  using S = TypeParam;
  const index_t n = 5003;
  Values m(n, 0.0);
  const auto view = view1<S>(m), u = view1<S>(m);
  for (int k = 0; k < 4; ++k) {
    const Values g = as_float(normal_values(n, 40 + k));
    nesterov_direction<S>(0.95, 0.5, view1<S>(g), view, u);
    Values direction;
    for (index_t i = 0; i < n; ++i) {
      m[i] = 0.95 * m[i] + 0.5 * g[i];
      direction.push_back(0.95 * m[i] + 0.5 * g[i]);
    }
    EXPECT_LE(relative_error(values(view), m), kTolerance<S>);
    EXPECT_LE(relative_error(values(u), direction), kTolerance<S>);
  }
}

TYPED_TEST(Hyperball, AdamDirectionIsWhatAdamMovesAlong) {
  using S = TypeParam;
  const index_t n = 4100;
  AdamStep s;
  s.lr = 1;
  s.beta1 = 0.9;
  s.beta2 = 0.95;
  s.eps = 1e-15;
  s.grad_scale = 0.25;
  s.count = 3;
  const Values g = as_float(normal_values(n, 50)), m0 = normal_values(n, 51, 0.1);
  auto p = view1<S>(Values(n, 0.0)), m = view1<S>(m0), v = view1<S>(Values(n, 0.3));
  auto m2 = view1<S>(m0), v2 = view1<S>(Values(n, 0.3)), u = view1<S>(Values(n, 0.0));
  adamw<S>(s, view1<S>(g), p, m, v, View1<S>());
  adam_direction<S>(s, view1<S>(g), m2, v2, u);
  Values minus = values(p);
  for (double& x : minus) x = -x;
  EXPECT_LE(relative_error(values(u), minus), kTolerance<S>);
  EXPECT_EQ(values(m2), values(m));
  EXPECT_EQ(values(v2), values(v));
}
