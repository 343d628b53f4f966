// Short convolution against plain loops, finite differences and the borders of documents.
#include <gtest/gtest.h>

#include "kernels/sconv.hpp"
#include "unit/check.hpp"

namespace capstan {
namespace {

using namespace test;
using Ints = std::vector<std::int32_t>;

Values conv_oracle(const Values& x, const Values& w, const Ints& segments,
                   index_t seq_len, index_t width) {
  const index_t rows = static_cast<index_t>(segments.size());
  const index_t taps = static_cast<index_t>(w.size()) / width;
  Values y(x.size(), 0.0);
  for (index_t t = 0; t < rows; ++t) {
    for (index_t j = 0; j < taps; ++j) {
      if (t % seq_len < j || segments[t] < 0 || segments[t - j] != segments[t]) continue;
      for (index_t d = 0; d < width; ++d) {
        y[t * width + d] += w[j * width + d] * x[(t - j) * width + d];
      }
    }
  }
  return y;
}

struct Case {
  index_t seq_len, width, taps;
  Ints segments;
};
class Sconv : public testing::TestWithParam<Case> {
 protected:
  const Case c = GetParam();
  const index_t rows = static_cast<index_t>(c.segments.size());
  Values x = as_float(normal_values(rows * c.width, 1));
  Values w = as_float(normal_values(c.taps * c.width, 2));
  Values residual = as_float(normal_values(rows * c.width, 3));
  Values dy = as_float(normal_values(rows * c.width, 4));

  /// {y, y with residual, dx, dw}.
  template <class S>
  std::vector<Values> run(double dw_before = 0) {
    const auto vx = view2<S>(rows, c.width, x), vw = view2<S>(c.taps, c.width, w),
               vr = view2<S>(rows, c.width, residual), vdy = view2<S>(rows, c.width, dy);
    const auto segments = view_ints(c.segments);
    View2<S> y("y", rows, c.width), onto("y", rows, c.width), dx("dx", rows, c.width);
    View2<Acc<S>> dw("dw", c.taps, c.width);
    fill(y, S(NAN));
    fill(onto, S(NAN));
    fill(dx, S(NAN));
    fill(dw, Acc<S>(dw_before));
    sconv<S>(vx, vw, segments, c.seq_len, View2<const S>(), y);
    sconv<S>(vx, vw, segments, c.seq_len, vr, onto);
    sconv_backward<S>(vx, vw, segments, c.seq_len, vdy, dx, dw);
    return {values(y), values(onto), values(dx), values(dw)};
  }
};

TEST_P(Sconv, MatchesDefinition) {
  const auto d = run<double>(), f = run<float>();
  Values y = conv_oracle(x, w, c.segments, c.seq_len, c.width);
  EXPECT_LT(relative_error(d[0], y), 1e-14);
  for (std::size_t i = 0; i < y.size(); ++i) y[i] += residual[i];
  EXPECT_LT(relative_error(d[1], y), 1e-14);
  for (int i = 0; i < 4; ++i)
    EXPECT_LT(relative_error(f[i], d[i]), 2e-6) << "output " << i;
}

TEST_P(Sconv, GradientsMatchFiniteDifferences) {
  const auto d = run<double>(), onto = run<double>(0.25);
  const auto loss = [&](const Values& a, const Values& b) {
    return dot(conv_oracle(a, b, c.segments, c.seq_len, c.width), dy);
  };
  const Values dx =
      finite_difference([&](const Values& a) { return loss(a, w); }, x, 0.1);
  const Values dw =
      finite_difference([&](const Values& b) { return loss(x, b); }, w, 0.1);
  EXPECT_LT(relative_error(d[2], dx), 1e-11);
  EXPECT_LT(relative_error(d[3], dw), 1e-11);
  for (std::size_t i = 0; i < dw.size(); ++i)
    EXPECT_NEAR(onto[3][i], d[3][i] + 0.25, 1e-12);
}

TEST_P(Sconv, PaddingMayHoldNaNAndGivesZero) {
  const auto clean = run<float>();
  for (index_t t = 0; t < rows; ++t) {
    if (c.segments[t] >= 0) continue;
    for (index_t d = 0; d < c.width; ++d) x[t * c.width + d] = dy[t * c.width + d] = NAN;
  }
  const auto dirty = run<float>();
  EXPECT_EQ(dirty, clean);
  for (index_t t = 0; t < rows; ++t) {
    if (c.segments[t] >= 0) continue;
    for (index_t d = 0; d < c.width; ++d) {
      EXPECT_EQ(dirty[0][t * c.width + d], 0);
      EXPECT_EQ(dirty[1][t * c.width + d], residual[t * c.width + d]);
      EXPECT_EQ(dirty[2][t * c.width + d], 0);
    }
  }
}

TEST_P(Sconv, DocumentsDoNotTouchEachOther) {
  // Whatever happens outside the document of token 0 must not change a bit inside it.
  const auto before = run<float>();
  const auto inside = [&](index_t t) {
    return t < c.seq_len && c.segments[t] == c.segments[0];
  };
  for (index_t t = 0; t < rows; ++t) {
    if (inside(t)) continue;
    for (index_t d = 0; d < c.width; ++d) {
      x[t * c.width + d] = 1e6 + d;
      dy[t * c.width + d] = NAN;
    }
  }
  const auto after = run<float>();
  for (index_t t = 0; t < rows; ++t) {
    if (!inside(t) || c.segments[0] < 0) continue;
    for (index_t d = 0; d < c.width; ++d) {
      EXPECT_EQ(after[0][t * c.width + d], before[0][t * c.width + d]);
      EXPECT_EQ(after[2][t * c.width + d], before[2][t * c.width + d]);
    }
  }
}

TEST_P(Sconv, OneThreadGivesTheSameBits) {
  const auto two = run<float>();
  std::vector<Values> one;
  with_one_thread([&] { one = run<float>(); });
  EXPECT_EQ(one, two);
}

INSTANTIATE_TEST_SUITE_P(
    Cases, Sconv,
    testing::Values(
        // one token; no document border; several documents; documents of one token
        Case{1, 3, 4, {0}}, Case{7, 5, 4, {0, 0, 0, 0, 0, 0, 0}},
        Case{10, 17, 4, {0, 0, 0, 0, 0, 1, 1, 2, 2, 2}}, Case{4, 1, 4, {0, 1, 2, 3}},
        // two sequences with the same segment numbers; padding at the end, everywhere
        Case{5, 67, 4, {0, 0, 0, 1, -1, 1, 1, 1, 1, 1}}, Case{3, 4, 4, {-1, -1, -1}},
        // other numbers of taps; more taps than tokens; a segment number that comes back
        Case{6, 9, 1, {0, 0, 0, 1, 1, 1}}, Case{6, 9, 2, {0, 0, 0, 1, 1, 1}},
        Case{6, 9, 3, {0, 0, 0, 0, 1, 1}}, Case{8, 6, 7, {0, 0, 0, 0, 0, 0, 0, 0}},
        Case{2, 6, 4, {0, 0, 0, 0}}, Case{6, 10, 4, {0, 1, 0, 0, 1, 0}}));

TEST(SconvProperties, IdentityAtInitialisation) {
  const index_t rows = 9, width = 40;
  Values w(4 * width, 0.0);
  for (index_t d = 0; d < width; ++d) w[d] = 1;
  const Values x = as_float(normal_values(rows * width, 1));
  View2<float> y("y", rows, width);
  sconv<float>(view2<float>(rows, width, x), view2<float>(4, width, w),
               view_ints(Ints(rows, 0)), rows, View2<const float>(), y);
  EXPECT_EQ(values(y), x);
}

TEST(SconvProperties, TapGradientOverManyRows) {
  // More rows than one tile of the sum.
  const index_t rows = 300, width = 70;
  const Values x = normal_values(rows * width, 1), dy = normal_values(rows * width, 2);
  View2<double> dx("dx", rows, width), dw("dw", 4, width);
  Ints segments(rows);
  for (index_t t = 0; t < rows; ++t)
    segments[t] = static_cast<std::int32_t>(t % 100 / 37);
  sconv_backward<double>(view2<double>(rows, width, x), View2<const double>(dw),
                         view_ints(segments), 100, view2<double>(rows, width, dy), dx,
                         dw);
  Values expected(4 * width, 0.0);
  for (index_t t = 0; t < rows; ++t) {
    for (index_t j = 0; j < 4 && j <= t % 100 % 37; ++j) {
      for (index_t d = 0; d < width; ++d) {
        expected[j * width + d] += dy[t * width + d] * x[(t - j) * width + d];
      }
    }
  }
  EXPECT_LT(relative_error(values(dw), expected), 1e-13);
}

}  // namespace
}  // namespace capstan
