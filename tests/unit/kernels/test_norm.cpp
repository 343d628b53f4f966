// RMSNorm and GatedNorm's elementwise parts against plain loops and finite differences.
#include <gtest/gtest.h>

#include "kernels/norm.hpp"
#include "unit/check.hpp"

namespace capstan {
namespace {

using namespace test;

constexpr double kEps = 1e-5;

/// The definition, in double.
Values norm_oracle(const Values& x, const Values& gain, index_t rows, index_t width) {
  Values y(x.size());
  for (index_t t = 0; t < rows; ++t) {
    double squares = 0;
    for (index_t d = 0; d < width; ++d) squares += x[t * width + d] * x[t * width + d];
    const double rms = std::sqrt(squares / width + kEps);
    for (index_t d = 0; d < width; ++d)
      y[t * width + d] = x[t * width + d] / rms * gain[d];
  }
  return y;
}

struct Case {
  index_t rows, width;
};
class Norm : public testing::TestWithParam<Case> {
 protected:
  index_t rows = GetParam().rows, width = GetParam().width;
  Values x = as_float(normal_values(rows * width, 1));
  Values gain = as_float(normal_values(width, 2));
  Values dy = as_float(normal_values(rows * width, 3));

  /// {y, inv, dx, d_gain} of the kernels in precision S; dx and d_gain start from
  /// `initial`.
  template <class S>
  std::vector<Values> run(bool accumulate, double initial) {
    const auto vx = view2<S>(rows, width, x), vdy = view2<S>(rows, width, dy);
    const auto vg = view1<S>(gain);
    View2<S> y("y", rows, width), dx("dx", rows, width);
    View1<Acc<S>> inv("inv", rows), dg("dg", width);
    fill(dx, S(initial));
    fill(dg, Acc<S>(initial));
    rms_norm<S>(vx, vg, Acc<S>(kEps), y, inv);
    rms_norm_backward<S>(vx, vg, inv, vdy, accumulate, dx, dg);
    return {values(y), values(inv), values(dx), values(dg)};
  }
};

TEST_P(Norm, MatchesDefinition) {
  const auto d = run<double>(false, 0);
  const auto f = run<float>(false, 0);
  const Values y = norm_oracle(x, gain, rows, width);
  EXPECT_LT(relative_error(d[0], y), 1e-14);
  for (int i = 0; i < 4; ++i)
    EXPECT_LT(relative_error(f[i], d[i]), 2e-6) << "output " << i;
}

TEST_P(Norm, GradientsMatchFiniteDifferences) {
  const auto d = run<double>(false, 0);
  const Values dx = finite_difference(
      [&](const Values& v) { return dot(norm_oracle(v, gain, rows, width), dy); }, x);
  const Values dg = finite_difference(
      [&](const Values& v) { return dot(norm_oracle(x, v, rows, width), dy); }, gain);
  EXPECT_LT(relative_error(d[2], dx), 1e-8);
  EXPECT_LT(relative_error(d[3], dg), 1e-8);
}

TEST_P(Norm, AccumulatesWhenAskedAndGainAlways) {
  const auto plain = run<double>(false, 0), onto = run<double>(true, 2.5);
  const auto over = run<double>(false, NAN);  // dx is overwritten; d_gain keeps its NaN
  for (std::size_t i = 0; i < plain[2].size(); ++i) {
    EXPECT_NEAR(onto[2][i], plain[2][i] + 2.5, 1e-12);
    EXPECT_EQ(over[2][i], plain[2][i]);
  }
  for (std::size_t i = 0; i < plain[3].size(); ++i) {
    EXPECT_NEAR(onto[3][i], plain[3][i] + 2.5, 1e-12);
    EXPECT_TRUE(std::isnan(over[3][i]));
  }
}

TEST_P(Norm, OneThreadGivesTheSameBits) {
  const auto two = run<float>(false, 0);
  std::vector<Values> one;
  with_one_thread([&] { one = run<float>(false, 0); });
  EXPECT_EQ(one, two);
}

INSTANTIATE_TEST_SUITE_P(Sizes, Norm,
                         testing::Values(Case{1, 2}, Case{3, 5}, Case{7, 33}, Case{2, 64},
                                         Case{70, 17}, Case{5, 131}));

TEST(NormProperties, ScaleOfInputIsDividedOut) {
  const index_t rows = 4, width = 48;
  const Values x = normal_values(rows * width, 5);
  Values large = x;
  for (double& v : large) v *= 1e3;
  const auto gain = view1<double>(Values(width, 1.0));
  View2<double> y("y", rows, width), y_large("y", rows, width);
  View1<double> inv("inv", rows);
  rms_norm<double>(view2<double>(rows, width, x), gain, 0.0, y, inv);
  rms_norm<double>(view2<double>(rows, width, large), gain, 0.0, y_large, inv);
  EXPECT_LT(relative_error(values(y_large), values(y)), 1e-14);
}

TEST(NormProperties, OneBadRowStaysAlone) {
  const index_t rows = 3, width = 20;
  Values x = normal_values(rows * width, 6);
  for (index_t d = 0; d < width; ++d) x[width + d] = NAN;
  View2<float> y("y", rows, width);
  View1<float> inv("inv", rows);
  rms_norm<float>(view2<float>(rows, width, x), view1<float>(Values(width, 1.0)), 1e-5f,
                  y, inv);
  const Values out = values(y);
  for (index_t d = 0; d < width; ++d) {
    EXPECT_TRUE(std::isfinite(out[d]));
    EXPECT_TRUE(std::isnan(out[width + d]));
    EXPECT_TRUE(std::isfinite(out[2 * width + d]));
  }
}

double logistic(double x) {
  return 1 / (1 + std::exp(-x));
}

TEST(GatedNorm, SiluAndItsGradient) {
  const index_t rows = 3, width = 837;  // more than one chunk of elements, and a rest
  const Values a = as_float(normal_values(rows * width, 1, 3));
  const Values dh = as_float(normal_values(rows * width, 2));
  Values h(a.size()), da(a.size());
  const double e = 1e-5;
  for (std::size_t i = 0; i < a.size(); ++i) {
    h[i] = a[i] * logistic(a[i]);
    const double high = (a[i] + e) * logistic(a[i] + e),
                 low = (a[i] - e) * logistic(a[i] - e);
    da[i] = dh[i] * (high - low) / (2 * e);
  }
  View2<double> out("h", rows, width), grad("da", rows, width);
  silu_forward<double>(view2<double>(rows, width, a), out);
  silu_backward<double>(view2<double>(rows, width, a), view2<double>(rows, width, dh),
                        grad);
  EXPECT_LT(relative_error(values(out), h), 1e-14);
  EXPECT_LT(relative_error(values(grad), da), 1e-9);

  View2<float> out32("h", rows, width);
  const View2<float> in_place = view2<float>(rows, width, dh);
  silu_forward<float>(view2<float>(rows, width, a), out32);
  silu_backward<float>(view2<float>(rows, width, a), in_place, in_place);
  EXPECT_LT(relative_error(values(out32), h), 5e-7);
  EXPECT_LT(relative_error(values(in_place), values(grad)), 5e-7);
}

TEST(GatedNorm, GateAndItsGradientsAlsoInPlace) {
  const index_t rows = 5, width = 419;
  const Values y = as_float(normal_values(rows * width, 1));
  const Values z = as_float(normal_values(rows * width, 2, 2));
  const Values d = as_float(normal_values(rows * width, 3));
  Values out(y.size()), dy(y.size()), dz(y.size());
  const double e = 1e-5;
  for (std::size_t i = 0; i < y.size(); ++i) {
    out[i] = y[i] * logistic(z[i]);
    dy[i] = d[i] * logistic(z[i]);
    dz[i] = d[i] * y[i] * (logistic(z[i] + e) - logistic(z[i] - e)) / (2 * e);
  }
  const auto vy = view2<double>(rows, width, y), vz = view2<double>(rows, width, z),
             vd = view2<double>(rows, width, d);
  View2<double> o("out", rows, width), gy("dy", rows, width), gz("dz", rows, width);
  gate_forward<double>(vy, vz, o);
  gate_backward<double>(vy, vz, vd, gy, gz);
  EXPECT_LT(relative_error(values(o), out), 1e-14);
  EXPECT_LT(relative_error(values(gy), dy), 1e-14);
  EXPECT_LT(relative_error(values(gz), dz), 1e-9);

  const auto fy = view2<float>(rows, width, y), fz = view2<float>(rows, width, z),
             fd = view2<float>(rows, width, d);
  gate_backward<float>(fy, fz, fd, fd, fz);  // dy is dout's memory, dz is z's
  EXPECT_LT(relative_error(values(fd), dy), 5e-7);
  EXPECT_LT(relative_error(values(fz), dz), 5e-7);
}

TEST(GatedNorm, LargeLogitsSaturateWithoutNaN) {
  const Values z = {-1e4, -200, -90, 90, 200, 1e4};
  const Values expected = {0, 0, 0, 3, 3, 3};
  const auto y = view2<float>(1, 6, Values(6, 3.0));
  View2<float> out("out", 1, 6);
  gate_forward<float>(y, view2<float>(1, 6, z), out);
  EXPECT_LT(relative_error(values(out), expected), 1e-6);
}

}  // namespace
}  // namespace capstan
