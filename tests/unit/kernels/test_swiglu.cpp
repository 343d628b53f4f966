// SwiGLU's elementwise part, sums and counts against loops in double and finite
// differences.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/swiglu.hpp"
#include "unit/check.hpp"

using namespace capstan;
using namespace capstan::test;

namespace {

Values reference_swiglu(const Values& gate, const Values& up) {
  Values y(gate.size());
  for (std::size_t i = 0; i < y.size(); ++i)
    y[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
  return y;
}

/// What swiglu_backward gives.
struct Backward {
  Values d_gate, d_up, y;
};

template <class S>
Backward run_backward(const Values& gate, const Values& up, const Values& dy,
                      bool in_place, bool again) {
  const index_t n = index_t(gate.size());
  auto g = view1<S>(gate), u = view1<S>(up);
  auto d_gate = in_place ? g : View1<S>("d_gate", n);
  auto d_up = in_place ? u : View1<S>("d_up", n);
  View1<S> y("y", again ? n : 0);
  swiglu_backward<S>(g, u, view1<S>(dy), d_gate, d_up, y);
  return {values(d_gate), values(d_up), values(y)};
}

template <class S>
class Elementwise : public testing::Test {};
using Scalars = testing::Types<float, double>;
TYPED_TEST_SUITE(Elementwise, Scalars);

template <class S>
constexpr double kTolerance = sizeof(S) == 4 ? 1e-6 : 1e-14;

constexpr index_t kSizes[] = {1, 17, 2048, 9001};

}  // namespace

TYPED_TEST(Elementwise, SwigluFollowsTheFormula) {
  using S = TypeParam;
  for (const index_t n : kSizes) {
    const Values gate = as_float(normal_values(n, 1, 3)),
                 up = as_float(normal_values(n, 2));
    View1<S> y("y", n);
    swiglu<S>(view1<S>(gate), view1<S>(up), y);
    EXPECT_LE(relative_error(values(y), reference_swiglu(gate, up)), kTolerance<S>);
  }
}

TYPED_TEST(Elementwise, SwigluHoldsAtTheEnds) {
  using S = TypeParam;
  const Values gate{-200, -90, 0, 90, 200}, up{1, 2, 3, 4, 5};
  View1<S> y("y", 5);
  swiglu<S>(view1<S>(gate), view1<S>(up), y);
  EXPECT_LE(relative_error(values(y), {0, 0, 0, 360, 1000}), kTolerance<S>);
}

TYPED_TEST(Elementwise, BackwardIsTheGradient) {
  using S = TypeParam;
  const index_t n = 23;
  const Values gate = as_float(normal_values(n, 3, 2)),
               up = as_float(normal_values(n, 4));
  const Values dy = as_float(normal_values(n, 5));
  const Backward got = run_backward<S>(gate, up, dy, false, true);
  const Values d_gate = finite_difference(
      [&](const Values& g) { return dot(dy, reference_swiglu(g, up)); }, gate);
  const Values d_up = finite_difference(
      [&](const Values& u) { return dot(dy, reference_swiglu(gate, u)); }, up);
  const double tolerance = std::max(kTolerance<S>, 1e-10);
  EXPECT_LE(relative_error(got.d_gate, d_gate), tolerance);
  EXPECT_LE(relative_error(got.d_up, d_up), tolerance);
  EXPECT_LE(relative_error(got.y, reference_swiglu(gate, up)), kTolerance<S>);
}

TYPED_TEST(Elementwise, BackwardInPlaceAndWithoutForward) {
  using S = TypeParam;
  for (const index_t n : kSizes) {
    const Values gate = normal_values(n, 6), up = normal_values(n, 7);
    const Values dy = normal_values(n, 8);
    const Backward apart = run_backward<S>(gate, up, dy, false, true);
    for (const bool again : {false, true}) {
      const Backward in_place = run_backward<S>(gate, up, dy, true, again);
      EXPECT_EQ(in_place.d_gate, apart.d_gate);
      EXPECT_EQ(in_place.d_up, apart.d_up);
      if (again) {
        EXPECT_EQ(in_place.y, apart.y);
      }
    }
  }
}

TYPED_TEST(Elementwise, Sums) {
  using S = TypeParam;
  for (const index_t n : kSizes) {
    const Values a = as_float(normal_values(n, 9)), b = as_float(normal_values(n, 10));
    Values sum(n);
    for (index_t i = 0; i < n; ++i) sum[i] = double(S(a[i]) + S(b[i]));
    View1<S> y("y", n);
    add<S>(view1<S>(a), view1<S>(b), y);
    EXPECT_EQ(values(y), sum);
    auto in_place = view1<S>(a);
    add<S>(in_place, view1<S>(b), in_place);
    EXPECT_EQ(values(in_place), sum);
    auto target = view1<S>(a);
    add_to<S>(view1<S>(b), target);
    EXPECT_EQ(values(target), sum);
  }
}

TYPED_TEST(Elementwise, SumOfSquaresIsDoubleAndRepeats) {
  using S = TypeParam;
  EXPECT_EQ(sum_squares<S>(View1<S>()), 0.0);
  for (const index_t n : kSizes) {
    const Values x = as_float(normal_values(n, 11));
    const auto v = view1<S>(x);
    const double sum = sum_squares<S>(v), expected = dot(x, x);
    EXPECT_NEAR(sum, expected, 1e-13 * expected);
    for (int again = 0; again < 5; ++again) EXPECT_EQ(sum_squares<S>(v), sum);
  }
  // squares that a float can not hold
  EXPECT_DOUBLE_EQ(sum_squares<S>(view1<S>({1e30, 0})) / 1e60,
                   double(S(1e30)) * 1e-30 * double(S(1e30)) * 1e-30);
}

TYPED_TEST(Elementwise, CountsWhatIsNotFinite) {
  using S = TypeParam;
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(count_non_finite<S>(View1<S>()), 0);
  for (const index_t n : kSizes) {
    Values x = normal_values(n, 12);
    EXPECT_EQ(count_non_finite<S>(view1<S>(x)), 0);
    x.back() = -inf;
    EXPECT_EQ(count_non_finite<S>(view1<S>(x)), 1);
    x.front() = std::nan("");
    if (n > 2) x[n / 2] = inf;
    EXPECT_EQ(count_non_finite<S>(view1<S>(x)), n > 2 ? 3 : 1);
  }
  const double largest = std::numeric_limits<S>::max();
  EXPECT_EQ(count_non_finite<S>(view1<S>({largest, -largest, 0, 1e-45})), 0);
}
