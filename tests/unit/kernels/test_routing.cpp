// Top-k selection, combine weights, router statistics and the sort by expert against
// plain loops.
#include <gtest/gtest.h>

#include <numeric>

#include "kernels/routing.hpp"
#include "unit/check.hpp"

namespace capstan {
namespace {

using namespace test;

struct Routed {
  std::vector<index_t> experts;
  Values weights, alpha;
};

// A stable sort of the biased values, falling.
Routed reference(const Values& logits, const Values& bias,
                 const std::vector<std::int32_t>& segments, index_t k, Score score,
                 double score_sum) {
  const index_t e = static_cast<index_t>(bias.size());
  Routed out;
  for (std::size_t t = 0; t < segments.size(); ++t) {
    if (segments[t] < 0) {
      out.experts.insert(out.experts.end(), k, -1);
      out.weights.insert(out.weights.end(), k, 0);
      out.alpha.push_back(0);
      continue;
    }
    const double* logit = &logits[t * e];
    std::vector<index_t> order(e);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](index_t a, index_t b) {
      return logit[a] + bias[a] > logit[b] + bias[b];
    });
    const index_t last = order[std::min(k, e - 1)];
    out.alpha.push_back(logit[last] + bias[last]);
    double highest = -1e300, sum = 0;
    Values s;
    for (index_t i = 0; i < k; ++i) highest = std::max(highest, logit[order[i]]);
    for (index_t i = 0; i < k; ++i) {
      const double x = logit[order[i]];
      s.push_back(score == Score::sigmoid ? 1 / (1 + std::exp(-x))
                                          : std::exp(x - highest));
      sum += s.back();
      out.experts.push_back(order[i]);
    }
    for (const double x : s) out.weights.push_back(score_sum * x / (sum + 1e-9));
  }
  return out;
}

template <class S>
Routed compute(const Values& logits, const Values& bias,
               const std::vector<std::int32_t>& segments, index_t k, Score score,
               double score_sum) {
  const index_t tokens = static_cast<index_t>(segments.size());
  const index_t e = static_cast<index_t>(bias.size());
  View2<std::int32_t> experts("experts", tokens, k);
  View2<Acc<S>> weights("weights", tokens, k);
  View1<Acc<S>> alpha("alpha", tokens);
  fill(experts, 77);
  fill(weights, Acc<S>(7));
  fill(alpha, Acc<S>(7));
  route<S>(view2<Acc<S>>(tokens, e, logits), view1<Acc<S>>(bias), view_ints(segments),
           score, static_cast<Acc<S>>(score_sum), experts, weights, alpha);
  const Values chosen = values(experts);
  return {{chosen.begin(), chosen.end()}, values(weights), values(alpha)};
}

void check(const Values& logits, const Values& bias,
           const std::vector<std::int32_t>& segments, index_t k) {
  for (const Score score : {Score::sigmoid, Score::softmax}) {
    const Routed want = reference(logits, bias, segments, k, score, 2.5);
    const Routed as_double = compute<double>(logits, bias, segments, k, score, 2.5);
    EXPECT_EQ(as_double.experts, want.experts);
    EXPECT_LT(relative_error(as_double.weights, want.weights), 1e-14);
    EXPECT_LT(relative_error(as_double.alpha, want.alpha), 1e-15);
    const Routed as_float = compute<float>(logits, bias, segments, k, score, 2.5);
    EXPECT_EQ(as_float.experts, want.experts);
    EXPECT_LT(relative_error(as_float.weights, want.weights), 1e-6);
    EXPECT_LT(relative_error(as_float.alpha, want.alpha), 1e-6);
  }
}

// Multiples of 1/8: sums with the bias are exact in float, and equal values are frequent.
Values coarse(index_t n, std::uint64_t seed, double scale) {
  Values v = normal_values(n, seed, scale);
  for (double& x : v) x = std::round(x * 8) / 8;
  return v;
}

TEST(Route, AgreesWithAStableSort) {
  for (const auto& [e, k] : std::vector<std::pair<index_t, index_t>>{{1, 1},
                                                                     {2, 1},
                                                                     {7, 3},
                                                                     {31, 8},
                                                                     {32, 8},
                                                                     {33, 8},
                                                                     {64, 8},
                                                                     {100, 1},
                                                                     {384, 8}}) {
    std::vector<std::int32_t> segments(40, 0);
    segments[0] = segments[7] = segments[39] = -1;
    check(coarse(40 * e, 1, 2), coarse(e, 2, 1), segments, k);
  }
}

TEST(Route, TiesTakeTheLowerIndex) {
  const std::vector<std::int32_t> segments(3, 5);
  check(Values(3 * 70, 0.25), Values(70, -1.0), segments, 8);
  const Routed got =
      compute<float>(Values(3 * 70, 0.25), Values(70, 0), segments, 8, Score::sigmoid, 1);
  for (index_t i = 0; i < 8; ++i) EXPECT_EQ(got.experts[i], i);
}

TEST(Route, AllExpertsSelected) {
  check(coarse(20 * 9, 3, 1), coarse(9, 4, 1), std::vector<std::int32_t>(20, 0), 9);
}

TEST(Route, BiasSelectsButDoesNotWeigh) {
  // Expert 2 wins by its bias; its weight comes from its unbiased logit.
  const Routed got =
      compute<double>({1, 0, -1, 0.5}, {0, 0, 10, 0}, {0}, 2, Score::sigmoid, 2.5);
  EXPECT_EQ(got.experts, (std::vector<index_t>{2, 0}));
  const double low = 1 / (1 + std::exp(1.0)), high = 1 / (1 + std::exp(-1.0));
  EXPECT_NEAR(got.weights[0], 2.5 * low / (low + high), 1e-8);
  EXPECT_NEAR(got.alpha[0], 0.5, 1e-15);
}

TEST(Route, WeightsAddUp) {
  const Values logits = normal_values(50 * 64, 5, 3);
  const Routed got = compute<float>(
      logits, Values(64, 0), std::vector<std::int32_t>(50, 0), 8, Score::sigmoid, 2.5);
  for (index_t t = 0; t < 50; ++t) {
    double sum = 0;
    for (index_t i = 0; i < 8; ++i) sum += got.weights[t * 8 + i];
    EXPECT_NEAR(sum, 2.5, 1e-5);
  }
}

TEST(Route, NotANumberStaysInRange) {
  Values logits = normal_values(10 * 16, 6);
  for (std::size_t i = 0; i < logits.size(); i += 3) logits[i] = NAN;
  const Routed got = compute<float>(
      logits, Values(16, 0), std::vector<std::int32_t>(10, 0), 16, Score::sigmoid, 1);
  for (index_t t = 0; t < 10; ++t) {
    std::vector<index_t> row(got.experts.begin() + t * 16,
                             got.experts.begin() + (t + 1) * 16);
    std::sort(row.begin(), row.end());
    for (index_t i = 0; i < 16; ++i) EXPECT_EQ(row[i], i);
  }
}

template <class S>
Values gradient(const Values& logits, const Values& bias,
                const std::vector<std::int32_t>& segments, index_t k, Score score,
                const Values& d_weights) {
  const index_t tokens = static_cast<index_t>(segments.size());
  const index_t e = static_cast<index_t>(bias.size());
  const View2<Acc<S>> l = view2<Acc<S>>(tokens, e, logits);
  View2<std::int32_t> experts("experts", tokens, k);
  View2<Acc<S>> weights("weights", tokens, k), d_logits("d_logits", tokens, e);
  View1<Acc<S>> alpha("alpha", tokens);
  fill(d_logits, Acc<S>(7));
  route<S>(l, view1<Acc<S>>(bias), view_ints(segments), score, Acc<S>(2.5), experts,
           weights, alpha);
  route_backward<S>(l, experts, weights, score, Acc<S>(2.5),
                    view2<Acc<S>>(tokens, k, d_weights), d_logits);
  return values(d_logits);
}

TEST(RouteBackward, FiniteDifferences) {
  const index_t e = 6, k = 3;
  const std::vector<std::int32_t> segments{0, -1, 2};
  const Values logits = as_float(normal_values(3 * e, 8)), bias(e, 0.0);
  const Values d_weights = as_float(normal_values(3 * k, 9));
  for (const Score score : {Score::sigmoid, Score::softmax}) {
    const auto loss = [&](const Values& x) {
      return dot(reference(x, bias, segments, k, score, 2.5).weights, d_weights);
    };
    const Values want = finite_difference(loss, logits, 1e-4);
    const Values got = gradient<double>(logits, bias, segments, k, score, d_weights);
    // The softmax's maximum counts as a constant: an error of the floor's size, 1e-9.
    EXPECT_LT(relative_error(got, want), 5e-9);
    EXPECT_LT(relative_error(gradient<float>(logits, bias, segments, k, score, d_weights),
                             want),
              2e-6);
    for (index_t i = e; i < 2 * e; ++i) EXPECT_EQ(got[i], 0);
  }
}

TEST(RouterStatistics, AgreeWithPlainSums) {
  for (const index_t tokens : {0, 1, 256, 300, 700}) {
    const index_t e = 40;
    const Values logits = as_float(normal_values(tokens * e, 10, 3));
    std::vector<std::int32_t> segments(tokens, 0);
    for (index_t t = 0; t < tokens; t += 5) segments[t] = -1;
    Values want(e, 0.0);
    double want_z = 0;
    for (index_t t = 0; t < tokens; ++t) {
      if (segments[t] < 0) continue;
      double sum = 0;
      for (index_t i = 0; i < e; ++i) sum += std::exp(logits[t * e + i]);
      for (index_t i = 0; i < e; ++i) want[i] += std::exp(logits[t * e + i]) / sum;
      want_z += std::log(sum) * std::log(sum);
    }
    View2<double> blocks("blocks", sort_blocks(tokens), e + 1);
    View2<double> probability("p", 1, e);
    View1<double> z("z", 1);
    fill(probability, 7.0);
    fill(z, 7.0);
    router_statistics<float>(view2<float>(tokens, e, logits), view_ints(segments), blocks,
                             probability, z);
    EXPECT_LT(relative_error(values(probability), want), 1e-6);
    EXPECT_NEAR(values(z)[0], want_z, 1e-5 * want_z);
    router_statistics<double>(view2<double>(tokens, e, logits), view_ints(segments),
                              blocks, probability, z);
    EXPECT_LT(relative_error(values(probability), want), 1e-13);
    EXPECT_NEAR(values(z)[0], want_z, 1e-12 * want_z);
  }
}

struct Sorted {
  Values counts, offsets, order, slot;
};

Sorted sort(const std::vector<std::int32_t>& experts, index_t tokens, index_t k,
            index_t e) {
  const View1<std::int32_t> list = view_ints(experts);
  View2<std::int32_t> blocks("blocks", sort_blocks(tokens), e);
  View1<std::int64_t> counts("counts", e), offsets("offsets", e + 1);
  View1<std::int32_t> order("order", tokens * k), slot("slot", tokens * k);
  fill(counts, std::int64_t(9));
  fill(order, -9);
  fill(slot, -9);
  sort_by_expert(View2<const std::int32_t>(list.data(), tokens, k), blocks, counts,
                 offsets, order, slot);
  return {values(counts), values(offsets), values(order), values(slot)};
}

void check_sort(const std::vector<std::int32_t>& experts, index_t tokens, index_t k,
                index_t e) {
  const Sorted got = sort(experts, tokens, k, e);
  index_t row = 0;
  Values slot(experts.size(), -1);
  for (index_t i = 0; i < e; ++i) {
    EXPECT_EQ(got.offsets[i], row);
    for (std::size_t a = 0; a < experts.size(); ++a) {
      if (experts[a] != i) continue;
      ASSERT_EQ(got.order[row], static_cast<double>(a));
      slot[a] = static_cast<double>(row++);
    }
    EXPECT_EQ(got.counts[i], row - got.offsets[i]);
  }
  EXPECT_EQ(got.offsets[e], row);
  EXPECT_EQ(got.slot, slot);
  for (std::size_t r = row; r < got.order.size(); ++r) EXPECT_EQ(got.order[r], -9);
}

TEST(SortByExpert, IsStableAndItsInverseIsRight) {
  const Rng rng(3, 3);
  for (const index_t tokens : {1, 255, 256, 257, 1000}) {
    for (const index_t e : {4, 64}) {
      const index_t k = 3;
      std::vector<std::int32_t> experts(tokens * k);
      for (index_t a = 0; a < tokens * k; ++a)
        experts[a] = static_cast<std::int32_t>(rng.normal(a) * 5 + e / 2) % e;
      for (std::int32_t& x : experts) x = x < 0 ? -1 : x;  // some are left out
      check_sort(experts, tokens, k, e);
    }
  }
}

TEST(SortByExpert, NoTokensAllToOneNoneAtAll) {
  check_sort({}, 0, 2, 5);
  check_sort(std::vector<std::int32_t>(600, 4), 600, 1, 5);
  check_sort(std::vector<std::int32_t>(600, -1), 300, 2, 5);
}

}  // namespace
}  // namespace capstan
