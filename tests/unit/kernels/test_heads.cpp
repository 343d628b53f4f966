// QK norm with rotary embedding, XSA and the head gate against plain loops and finite
// differences.
#include <gtest/gtest.h>

#include <complex>

#include "kernels/heads.hpp"
#include "unit/check.hpp"

namespace capstan {
namespace {

using namespace test;

struct QkCase {
  index_t sequences, seq_len, heads, head_dim, width, rope_dims;
  double eps;
};

/// The definition with complex numbers: pair k turns by exp(i * position * frequency).
Values qk_oracle(const QkCase& c, const Values& x, double theta, double scale) {
  const index_t h = c.head_dim, rows = c.sequences * c.seq_len;
  Values y(rows * c.heads * h);
  for (index_t t = 0; t < rows; ++t) {
    for (index_t q = 0; q < c.heads; ++q) {
      const double* in = &x[t * c.width + q * h];
      double* out = &y[(t * c.heads + q) * h];
      double squares = 0;
      for (index_t d = 0; d < h; ++d) squares += in[d] * in[d];
      const double inv = c.eps < 0 ? 1 : 1 / std::sqrt(squares / h + c.eps);
      for (index_t d = 0; d < h; ++d) out[d] = in[d] * inv * scale;
      for (index_t k = 0; k < c.rope_dims / 2; ++k) {
        const double frequency = std::exp(-2.0 * k / c.rope_dims * std::log(theta));
        const double position = static_cast<double>(t % c.seq_len);
        const auto turned = std::complex<double>(out[2 * k], out[2 * k + 1]) *
                            std::polar(1.0, position * frequency);
        out[2 * k] = turned.real();
        out[2 * k + 1] = turned.imag();
      }
    }
  }
  return y;
}

class QkNormRope : public testing::TestWithParam<QkCase> {
 protected:
  const QkCase c = GetParam();
  const double theta = 10000, scale = 1.3;
  const index_t rows = c.sequences * c.seq_len, out_width = c.heads * c.head_dim;
  Values x = as_float(normal_values(rows * c.width, 1));
  Values dy = as_float(normal_values(rows * out_width, 2));

  template <class S>
  std::vector<Values> run() {
    const auto vx = view2<S>(rows, c.width, x), vdy = view2<S>(rows, out_width, dy);
    View2<S> y("y", rows, out_width), dx("dx", rows, c.width);
    View2<Acc<S>> inv("inv", rows, c.heads);
    fill(dx, S(NAN));
    qk_norm_rope<S>(vx, c.heads, c.head_dim, c.seq_len, Acc<S>(c.eps), c.rope_dims, theta,
                    Acc<S>(scale), y, inv);
    qk_norm_rope_backward<S>(vx, inv, c.heads, c.head_dim, c.seq_len, Acc<S>(c.eps),
                             c.rope_dims, theta, Acc<S>(scale), vdy, dx);
    return {values(y), values(inv), values(dx)};
  }
};

TEST_P(QkNormRope, MatchesDefinition) {
  const auto d = run<double>(), f = run<float>();
  EXPECT_LT(relative_error(d[0], qk_oracle(c, x, theta, scale)), 2e-13);
  for (int i = 0; i < 3; ++i)
    EXPECT_LT(relative_error(f[i], d[i]), 2e-6) << "output " << i;
}

TEST_P(QkNormRope, GradientMatchesFiniteDifferences) {
  const Values dx = finite_difference(
      [&](const Values& v) { return dot(qk_oracle(c, v, theta, scale), dy); }, x);
  EXPECT_LT(relative_error(run<double>()[2], dx), 1e-8);
}

TEST_P(QkNormRope, HeadsThatAreNotReadMayHoldNaNAndGetNoGradient) {
  const auto clean = run<float>();
  for (index_t t = 0; t < rows; ++t) {
    for (index_t d = out_width; d < c.width; ++d) x[t * c.width + d] = NAN;
  }
  const auto dirty = run<float>();
  EXPECT_EQ(dirty, clean);
  for (index_t t = 0; t < rows; ++t) {
    for (index_t d = out_width; d < c.width; ++d) EXPECT_EQ(dirty[2][t * c.width + d], 0);
  }
}

TEST_P(QkNormRope, OneThreadGivesTheSameBits) {
  const auto two = run<float>();
  std::vector<Values> one;
  with_one_thread([&] { one = run<float>(); });
  EXPECT_EQ(one, two);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, QkNormRope,
    testing::Values(QkCase{1, 1, 1, 2, 2, 2, 1e-6}, QkCase{2, 19, 3, 6, 18, 4, 1e-6},
                    QkCase{1, 5, 2, 10, 33, 10, 1e-6}, QkCase{3, 3, 2, 8, 24, 0, 1e-6},
                    QkCase{1, 18, 2, 32, 64, 16, -1.0}, QkCase{2, 3, 2, 32, 96, 16, 1e-6},
                    QkCase{1, 3, 1, 64, 64, 64, 1e-6},
                    QkCase{1, 2, 1, 128, 128, 64, 1e-6}));

TEST(QkNormRopeProperties, ScoresDependOnDistanceOnly) {
  // The same q and k at every position: <q_i, k_j> must depend on i - j alone, also far
  // out.
  const index_t length = 5000, h = 32;
  const Values q0 = normal_values(h, 1), k0 = normal_values(h, 2);
  Values q, k;
  for (index_t t = 0; t < length; ++t) {
    q.insert(q.end(), q0.begin(), q0.end());
    k.insert(k.end(), k0.begin(), k0.end());
  }
  View2<double> rq("q", length, h), rk("k", length, h), inv("inv", length, 1);
  qk_norm_rope<double>(view2<double>(length, h, q), 1, h, length, 1e-6, h, 1e4, 1.0, rq,
                       inv);
  qk_norm_rope<double>(view2<double>(length, h, k), 1, h, length, 1e-6, h, 1e4, 1.0, rk,
                       inv);
  const Values a = values(rq), b = values(rk);
  const auto score = [&](index_t i, index_t j) {
    double sum = 0;
    for (index_t d = 0; d < h; ++d) sum += a[i * h + d] * b[j * h + d];
    return sum;
  };
  for (const index_t distance : {0, 1, 7, 100}) {
    for (const index_t i : {100, 115, 116, 2047, 4999}) {
      EXPECT_NEAR(score(i, i - distance), score(100, 100 - distance), 1e-10);
    }
  }
  EXPECT_GT(std::fabs(score(100, 93) - score(100, 100)), 1e-3);
}

struct XsaCase {
  index_t rows, heads, kv_heads, head_dim, v_heads;
  bool xsa, gated;
};

Values xsa_oracle(const XsaCase& c, const Values& o, const Values& v,
                  const Values& gate) {
  Values y(o.size());
  const index_t h = c.head_dim;
  for (index_t t = 0; t < c.rows; ++t) {
    for (index_t q = 0; q < c.heads; ++q) {
      const double* in = &o[(t * c.heads + q) * h];
      const double* value = &v[(t * c.v_heads + q / (c.heads / c.kv_heads)) * h];
      double ov = 0, vv = 1e-6;
      for (index_t d = 0; d < h; ++d) {
        ov += in[d] * value[d];
        vv += value[d] * value[d];
      }
      const double factor = c.gated ? 2 / (1 + std::exp(-gate[t * c.heads + q])) : 1;
      for (index_t d = 0; d < h; ++d) {
        y[(t * c.heads + q) * h + d] =
            factor * (in[d] - (c.xsa ? ov / vv * value[d] : 0));
      }
    }
  }
  return y;
}

class XsaGate : public testing::TestWithParam<XsaCase> {
 protected:
  const XsaCase c = GetParam();
  const index_t width = c.heads * c.head_dim, v_width = c.v_heads * c.head_dim;
  Values o = as_float(normal_values(c.rows * width, 1));
  Values v = as_float(normal_values(c.rows * v_width, 2));
  Values gate = as_float(normal_values(c.rows * c.heads, 3));
  Values dy = as_float(normal_values(c.rows * width, 4));

  template <class S>
  std::vector<Values> run(double dv_before = 0) {
    const auto vo = view2<S>(c.rows, width, o), vv = view2<S>(c.rows, v_width, v),
               vdy = view2<S>(c.rows, width, dy);
    const auto vg = c.gated ? view2<S>(c.rows, c.heads, gate) : View2<S>();
    View2<S> y("y", c.rows, width), d_o("d_o", c.rows, width), dv("dv", c.rows, v_width);
    View2<S> dg("dg", c.gated ? c.rows : 0, c.heads);
    fill(dv, S(dv_before));
    fill(d_o, S(NAN));
    fill(dg, S(NAN));
    xsa_gate<S>(vo, vv, vg, c.heads, c.kv_heads, c.head_dim, c.xsa, y);
    xsa_gate_backward<S>(vo, vv, vg, c.heads, c.kv_heads, c.head_dim, c.xsa, vdy, d_o, dv,
                         dg);
    return {values(y), values(d_o), values(dv), values(dg)};
  }
};

TEST_P(XsaGate, MatchesDefinition) {
  const auto d = run<double>(), f = run<float>();
  EXPECT_LT(relative_error(d[0], xsa_oracle(c, o, v, gate)), 1e-14);
  for (int i = 0; i < 4; ++i)
    EXPECT_LT(relative_error(f[i], d[i]), 3e-6) << "output " << i;
}

TEST_P(XsaGate, GradientsMatchFiniteDifferences) {
  const auto d = run<double>();
  const auto loss = [&](const Values& a, const Values& b, const Values& g) {
    return dot(xsa_oracle(c, a, b, g), dy);
  };
  const auto d_o =
      finite_difference([&](const Values& a) { return loss(a, v, gate); }, o);
  const auto dv =
      finite_difference([&](const Values& b) { return loss(o, b, gate); }, v, 1e-4);
  EXPECT_LT(relative_error(d[1], d_o), 1e-8);
  EXPECT_LT(relative_error(d[2], dv), 1e-7);
  if (c.gated) {
    const auto dg =
        finite_difference([&](const Values& g) { return loss(o, v, g); }, gate);
    EXPECT_LT(relative_error(d[3], dg), 1e-8);
  }
}

TEST_P(XsaGate, AddsToGradientOfValuesAndReadsOnlyItsHeads) {
  const auto plain = run<double>();
  for (index_t t = 0; t < c.rows; ++t) {
    for (index_t d = c.kv_heads * c.head_dim; d < v_width; ++d) v[t * v_width + d] = NAN;
  }
  const auto onto = run<double>(0.5);
  EXPECT_EQ(onto[0], plain[0]);
  for (std::size_t i = 0; i < onto[2].size(); ++i) {
    EXPECT_NEAR(onto[2][i], plain[2][i] + 0.5, 1e-12);
  }
}

TEST_P(XsaGate, OneThreadGivesTheSameBits) {
  const auto two = run<float>();
  std::vector<Values> one;
  with_one_thread([&] { one = run<float>(); });
  EXPECT_EQ(one, two);
}

INSTANTIATE_TEST_SUITE_P(Shapes, XsaGate,
                         testing::Values(XsaCase{3, 4, 2, 5, 3, true, true},
                                         XsaCase{5, 3, 3, 7, 3, true, false},
                                         XsaCase{5, 6, 1, 4, 2, false, true},
                                         XsaCase{2, 4, 2, 32, 2, true, true},
                                         XsaCase{1, 2, 1, 64, 1, true, true},
                                         XsaCase{1, 1, 1, 128, 1, true, true}));

TEST(XsaGateProperties, OutputIsOrthogonalToTheValueAndZeroGateIsOne) {
  const index_t h = 16;
  const Values o = normal_values(h, 1), v = normal_values(h, 2);
  View2<double> y("y", 1, h), plain("y", 1, h);
  xsa_gate<double>(view2<double>(1, h, o), view2<double>(1, h, v),
                   view2<double>(1, 1, {0.0}), 1, 1, h, true, y);
  xsa_gate<double>(view2<double>(1, h, o), view2<double>(1, h, v), View2<double>(), 1, 1,
                   h, true, plain);
  EXPECT_LT(std::fabs(dot(values(y), v)), 1e-5);
  EXPECT_EQ(values(y), values(plain));
}

TEST(XsaGateProperties, ZeroValueGivesNoNaN) {
  const index_t h = 8;
  View2<float> v("v", 1, h), y("y", 1, h);
  const auto o = view2<float>(1, h, normal_values(h, 1));
  xsa_gate<float>(o, v, View2<float>(), 1, 1, h, true, y);
  EXPECT_EQ(values(y), values(o));
}

}  // namespace
}  // namespace capstan
