// Quantile balancing: range, histogram and quantile against exact sorts, and the
// convergence of a fixed batch, which needs margins of the unbiased logits.
#include <gtest/gtest.h>

#include <numeric>

#include "kernels/routing.hpp"
#include "unit/check.hpp"

namespace capstan {
namespace {

using namespace test;

constexpr double kHuge = std::numeric_limits<double>::max();

template <class S>
Values range_of(const Values& logits, const Values& alpha,
                const std::vector<std::int32_t>& segments) {
  const index_t tokens = static_cast<index_t>(segments.size());
  const index_t e = tokens > 0 ? static_cast<index_t>(logits.size()) / tokens : 4;
  View1<double> range("range", 2);
  margin_range<S>(view2<Acc<S>>(tokens, e, logits), view1<Acc<S>>(alpha),
                  view_ints(segments), range);
  return values(range);
}

TEST(MarginRange, LowestAndHighestOfTheValidTokens) {
  for (const index_t e : {1, 15, 16, 17, 40}) {
    const index_t tokens = 77;
    const Values logits = as_float(normal_values(tokens * e, 1));
    const Values alpha = as_float(normal_values(tokens, 2));
    std::vector<std::int32_t> segments(tokens, 0);
    for (index_t t = 0; t < tokens; t += 3) segments[t] = -1;
    double lo = kHuge, hi = -kHuge;
    for (index_t t = 0; t < tokens; ++t)
      for (index_t i = 0; i < e && segments[t] >= 0; ++i) {
        lo = std::min(lo, logits[t * e + i] - alpha[t]);
        hi = std::max(hi, logits[t * e + i] - alpha[t]);
      }
    EXPECT_EQ(range_of<double>(logits, alpha, segments), (Values{lo, hi}));
    EXPECT_EQ(range_of<float>(logits, alpha, segments), (Values{lo, hi}));
  }
}

TEST(MarginRange, NoValidToken) {
  EXPECT_EQ(range_of<float>({}, {}, {}), (Values{kHuge, -kHuge}));
  EXPECT_EQ(range_of<float>({1, 2}, {0, 0}, {-1, -1}), (Values{kHuge, -kHuge}));
}

template <class S>
void add_histogram(const Values& logits, const Values& alpha,
                   const std::vector<std::int32_t>& segments, double lo, double hi,
                   View2<std::int32_t> counts) {
  const index_t tokens = static_cast<index_t>(segments.size());
  margin_histogram<S>(view2<Acc<S>>(tokens, counts.extent(0), logits),
                      view1<Acc<S>>(alpha), view_ints(segments), lo, hi, counts);
  fence();
}

TEST(MarginHistogram, CountsEveryMarginOnceAndAdds) {
  const index_t tokens = 600, e = 37, bins = 50;
  const Values logits = as_float(normal_values(tokens * e, 3));
  const Values alpha = as_float(normal_values(tokens, 4));
  std::vector<std::int32_t> segments(tokens, 0);
  for (index_t t = 0; t < tokens; t += 7) segments[t] = -1;
  // A range smaller than the margins: those outside fall into the end bins.
  const double lo = -3, hi = 3;
  Values want(e * bins, 5.0);
  for (index_t t = 0; t < tokens; ++t)
    for (index_t i = 0; i < e && segments[t] >= 0; ++i) {
      const double bin =
          std::floor((logits[t * e + i] - alpha[t] - lo) * (bins / (hi - lo)));
      want[i * bins + static_cast<index_t>(std::clamp(bin, 0.0, bins - 1.0))] += 1;
    }
  View2<std::int32_t> counts("counts", e, bins);
  fill(counts, std::int32_t(5));
  add_histogram<float>(logits, alpha, segments, lo, hi, counts);
  EXPECT_EQ(values(counts), want);
  fill(counts, std::int32_t(5));
  add_histogram<double>(logits, alpha, segments, lo, hi, counts);
  EXPECT_EQ(values(counts), want);
}

TEST(MarginHistogram, DoesNotDependOnTheSplit) {
  const index_t tokens = 500, e = 20, bins = 1000;
  const Values logits = normal_values(tokens * e, 5), alpha = normal_values(tokens, 6);
  View2<std::int32_t> whole("whole", e, bins), parts("parts", e, bins);
  add_histogram<float>(logits, alpha, std::vector<std::int32_t>(tokens, 0), -6, 6, whole);
  for (const auto& [first, last] : {std::pair{0, 1}, {1, 140}, {140, 396}, {396, 500}})
    add_histogram<float>(Values(logits.begin() + first * e, logits.begin() + last * e),
                         Values(alpha.begin() + first, alpha.begin() + last),
                         std::vector<std::int32_t>(last - first, 0), -6, 6, parts);
  EXPECT_EQ(values(parts), values(whole));
  EXPECT_EQ(dot(values(whole), Values(e * bins, 1.0)), static_cast<double>(tokens * e));
}

// Margins of one expert per row of `margins` [E][n]; returns beta without the mean.
Values quantiles(const std::vector<Values>& margins, double lo, double hi, index_t bins,
                 double target, bool as_float_bias) {
  const index_t e = static_cast<index_t>(margins.size());
  const index_t n = static_cast<index_t>(margins[0].size());
  Values logits(n * e);
  for (index_t i = 0; i < e; ++i)
    for (index_t t = 0; t < n; ++t) logits[t * e + i] = margins[i][t];
  View2<std::int32_t> counts("counts", e, bins);
  add_histogram<double>(logits, Values(n, 0.0), std::vector<std::int32_t>(n, 0), lo, hi,
                        counts);
  if (as_float_bias) {
    View1<float> bias("bias", e);
    quantile_bias<float>(counts, lo, hi, target, bias);
    return values(bias);
  }
  View1<double> bias("bias", e);
  quantile_bias<double>(counts, lo, hi, target, bias);
  return values(bias);
}

TEST(QuantileBias, WithinABinOfTheExactQuantile) {
  const index_t e = 6, n = 4096, target = 512;
  std::vector<Values> margins;
  for (index_t i = 0; i < e; ++i) {
    margins.push_back(normal_values(n, 10 + i, 0.5 + 0.2 * i));
    for (double& x : margins.back()) x += 0.3 * i - 1;
  }
  double lo = kHuge, hi = -kHuge;
  for (const Values& m : margins)
    for (const double x : m) lo = std::min(lo, x), hi = std::max(hi, x);
  for (const index_t bins : {100, 256, 1000, 10000}) {
    Values beta;
    for (Values m : margins) {
      std::sort(m.rbegin(), m.rend());
      beta.push_back(m[target - 1]);
    }
    const double mean = std::accumulate(beta.begin(), beta.end(), 0.0) / e;
    const Values got = quantiles(margins, lo, hi, bins, target, false);
    const Values got_float = quantiles(margins, lo, hi, bins, target, true);
    // Each beta is off by a bin at most, and so is their mean.
    const double width = (hi - lo) / bins;
    for (index_t i = 0; i < e; ++i) {
      EXPECT_NEAR(got[i], mean - beta[i], 2 * width);
      EXPECT_NEAR(got_float[i], got[i], 1e-6);
    }
    EXPECT_NEAR(std::accumulate(got.begin(), got.end(), 0.0), 0, 1e-12);
  }
}

TEST(QuantileBias, InterpolatesInsideTheCrossingBin) {
  // Bins of width 1. Expert 0: 4 margins in bin 2; expert 1: 2 in bin 1. Target 1 lies a
  // quarter below the upper edge of bin 2, and half way into bin 1: beta = 2.75 and 1.5.
  const Values got =
      quantiles({{2.1, 2.2, 2.3, 2.4}, {1.1, 1.9, 0, 0.5}}, 0, 4, 4, 1, false);
  EXPECT_NEAR(got[0], -0.625, 1e-15);
  EXPECT_NEAR(got[1], 0.625, 1e-15);
}

TEST(QuantileBias, TargetOutOfReach) {
  // Expert 0 has all margins in the top bin of 300, expert 1 in the lowest; target 9
  // of 4.
  const Values got = quantiles({{1, 1, 1, 1}, {0, 0, 0, 0}}, 0, 1, 300, 9, false);
  EXPECT_EQ(got, (Values{0, 0}));
}

// Steps of routing and balancing on one fixed batch; returns max/mean of the load per
// step. With `biased_margins` the margins are taken from biased logits: the mistake that
// must show.
template <class S>
Values converge(index_t steps, bool biased_margins) {
  using A = Acc<S>;
  const index_t tokens = 4096, e = 64, k = 8, bins = 1000;
  Values raw = normal_values(tokens * e, 20);
  const Values offset = normal_values(e, 21, 0.7);
  for (index_t i = 0; i < tokens * e; ++i) raw[i] += offset[i % e];
  const View2<A> logits = view2<A>(tokens, e, raw);
  const View1<std::int32_t> segments("segments", tokens);
  View1<A> bias("bias", e), alpha("alpha", tokens);
  View2<std::int32_t> experts("experts", tokens, k);
  View2<A> weights("weights", tokens, k);
  View2<std::int32_t> counts("counts", e, bins);
  View1<double> range("range", 2);
  Values loads;
  for (index_t step = 0; step <= steps; ++step) {
    route<S>(logits, bias, segments, Score::sigmoid, A(2.5), experts, weights, alpha);
    Values load(e, 0.0);
    for (const double x : values(experts)) load[static_cast<index_t>(x)] += 1;
    loads.push_back(*std::max_element(load.begin(), load.end()) / (tokens * k / e));
    View2<A> used = logits;
    if (biased_margins) {
      Values shifted = raw;
      const Values b = values(bias);
      for (index_t i = 0; i < tokens * e; ++i) shifted[i] += b[i % e];
      used = view2<A>(tokens, e, shifted);
    }
    margin_range<S>(used, alpha, segments, range);
    const Values r = values(range);
    fill(counts, std::int32_t(0));
    margin_histogram<S>(used, alpha, segments, r[0], r[1], counts);
    quantile_bias<S>(counts, r[0], r[1], double(tokens * k) / e, bias);
  }
  return loads;
}

TEST(QuantileBalancing, FixedBatchConverges) {
  for (const Values& loads : {converge<float>(10, false), converge<double>(10, false)}) {
    EXPECT_GT(loads[0], 2);
    EXPECT_LT(loads[2], 1.15);
    EXPECT_LE(loads[10], 1.03);
  }
}

TEST(QuantileBalancing, MarginsOfBiasedLogitsDoNotConverge) {
  const Values loads = converge<float>(10, true);
  EXPECT_GT(std::max(loads[9], loads[10]), 1.5);
}

}  // namespace
}  // namespace capstan
