// Counts by group, shares, the gradient of the router's losses against differences, and
// the sign-updated bias.
#include <gtest/gtest.h>

#include "kernels/linear.hpp"
#include "kernels/routing.hpp"
#include "unit/check.hpp"

namespace capstan {
namespace {

using namespace test;

TEST(CountByGroup, EveryAssignmentOfTheGroupAndNoPadding) {
  const Rng rng(5, 1);
  const index_t k = 3, e = 21;
  for (const auto& [groups, size] : {std::pair{1, 1}, {1, 700}, {3, 256}, {4, 300}}) {
    const index_t tokens = groups * size;
    std::vector<std::int32_t> experts(tokens * k);
    Values want(groups * e, 0.0);
    for (index_t a = 0; a < tokens * k; ++a) {
      const bool padding = (a / k) % 5 == 0;
      experts[a] = padding ? -1 : static_cast<std::int32_t>(rng.bits(a) % e);
      if (!padding) want[a / (size * k) * e + experts[a]] += 1;
    }
    const View1<std::int32_t> list = view_ints(experts);
    View2<std::int32_t> blocks("blocks", group_blocks(tokens, groups), e);
    View2<std::int64_t> counts("counts", groups, e);
    fill(counts, std::int64_t(9));
    count_by_group(View2<const std::int32_t>(list.data(), tokens, k), blocks, counts);
    EXPECT_EQ(values(counts), want) << groups << " groups of " << size;
  }
}

TEST(RouterStatistics, OfGroupsAreThoseOfTheirTokens) {
  const index_t groups = 3, size = 300, e = 19;
  const Values logits = normal_values(groups * size * e, 8, 2);
  std::vector<std::int32_t> segments(groups * size, 0);
  for (std::size_t t = 0; t < segments.size(); t += 3) segments[t] = -1;
  View2<double> blocks("blocks", group_blocks(groups * size, groups), e + 1);
  View2<double> p("p", groups, e), one("one", 1, e);
  View1<double> z("z", groups), one_z("z", 1);
  const auto all = view2<double>(groups * size, e, logits);
  router_statistics<double>(all, view_ints(segments), blocks, p, z);
  for (index_t g = 0; g < groups; ++g) {
    const View2<double> part(all.data() + g * size * e, size, e);
    const std::vector<std::int32_t> mask(segments.begin() + g * size,
                                         segments.begin() + (g + 1) * size);
    router_statistics<double>(part, view_ints(mask), blocks, one, one_z);
    const Values got = values(p);
    EXPECT_EQ(Values(got.begin() + g * e, got.begin() + (g + 1) * e), values(one));
    EXPECT_EQ(values(z)[g], values(one_z)[0]);
  }
}

TEST(AssignmentShares, SumToOneOrAreZero) {
  View2<std::int64_t> counts("counts", 2, 4);
  const std::vector<std::int64_t> n = {1, 0, 5, 2, 0, 0, 0, 0};
  copy_to_device(n.data(), counts.data(), 8);
  View2<double> shares("shares", 2, 4);
  assignment_shares(counts, shares);
  EXPECT_EQ(values(shares), (Values{0.125, 0, 0.625, 0.25, 0, 0, 0, 0}));
}

/// sum over valid tokens of balance * sum_e f_e p_e + z * logsumexp^2.
double losses(const Values& logits, const std::vector<std::int32_t>& segments,
              const Values& shares, index_t e, double balance, double z) {
  const index_t tokens = static_cast<index_t>(segments.size());
  const index_t size = tokens * e / static_cast<index_t>(shares.size());
  double loss = 0;
  for (index_t t = 0; t < tokens; ++t) {
    if (segments[t] < 0) continue;
    double sum = 0, dot = 0;
    for (index_t i = 0; i < e; ++i) {
      const double x = std::exp(logits[t * e + i]);
      sum += x;
      dot += x * shares[t / size * e + i];
    }
    loss += balance * dot / sum + z * std::log(sum) * std::log(sum);
  }
  return loss;
}

TEST(RouterLosses, GradientEqualsDifferencesAndAdds) {
  const index_t tokens = 6, e = 19;
  const Values logits = as_float(normal_values(tokens * e, 1, 2));
  const std::vector<std::int32_t> segments = {0, 0, -1, 1, 0, -1};
  for (const index_t groups : {1, 2, 3}) {
    Values shares = as_float(normal_values(groups * e, 2));
    for (double& f : shares) f = f * f;
    for (const auto& [balance, z] : {std::pair{0.7, 0.0}, {0.0, 0.3}, {0.7, 0.3}}) {
      const auto loss = [&, balance = balance, z = z](const Values& x) {
        return losses(x, segments, shares, e, balance, z);
      };
      const Values want = finite_difference(loss, logits, 1e-3);
      const auto run = [&, balance = balance, z = z](auto scalar) {
        using S = decltype(scalar);
        const auto d = view2<S>(tokens, e, Values(tokens * e, 0.5));
        router_losses_backward<S>(view2<S>(tokens, e, logits), view_ints(segments),
                                  view2<double>(groups, e, shares), balance, z, d);
        Values got = values(d);
        for (double& x : got) x -= 0.5;
        return got;
      };
      EXPECT_LT(relative_error(run(0.0), want), 1e-9);
      EXPECT_LT(relative_error(run(0.0f), want), 1e-5);
    }
  }
}

TEST(SignBias, MovesEachExpertAgainstItsLoad) {
  View1<std::int64_t> load("load", 4);
  const std::vector<std::int64_t> n = {7, 3, 5, 5};
  copy_to_device(n.data(), load.data(), 4);
  const auto bias = view1<double>({0, 0, 1, 0});
  sign_bias<double>(load, 0.25, bias);
  EXPECT_EQ(values(bias), (Values{-0.25, 0.25, 1, 0}));
}

TEST(SignBias, ThousandSmallUpdatesAddUp) {
  View1<std::int64_t> load("load", 2);
  const std::vector<std::int64_t> n = {std::int64_t(1) << 40,
                                       (std::int64_t(1) << 40) + 2};
  copy_to_device(n.data(), load.data(), 2);
  const View1<float> bias("bias", 2);
  for (int i = 0; i < 1000; ++i) sign_bias<float>(load, 1e-3, bias);
  EXPECT_NEAR(values(bias)[0], 1.0, 1e-4);
  EXPECT_NEAR(values(bias)[1], -1.0, 1e-4);
}

TEST(RouterPrecision, SelectionOfFloatIsThatOfDouble) {
  const index_t tokens = 4096, width = 64, e = 48, k = 4;
  const Values x = as_float(normal_values(tokens * width, 1));
  const Values w = as_float(normal_values(width * e, 2, 0.1));
  const auto select = [&](auto scalar) {
    using S = decltype(scalar);
    View2<S> logits("logits", tokens, e);
    linear<S>(view2<S>(tokens, width, x), view2<S>(width, e, w), logits);
    View2<std::int32_t> experts("experts", tokens, k);
    View2<S> weights("weights", tokens, k);
    View1<S> bias("bias", e), alpha("alpha", tokens);
    route<S>(logits, bias, View1<std::int32_t>("segments", tokens), Score::sigmoid, S(1),
             experts, weights, alpha);
    Values list = values(experts);
    for (index_t t = 0; t < tokens; ++t)
      std::sort(list.begin() + t * k, list.begin() + (t + 1) * k);
    return list;
  };
  const Values a = select(0.0f), b = select(0.0);
  index_t flips = 0;
  for (index_t t = 0; t < tokens; ++t)
    flips += !std::equal(a.begin() + t * k, a.begin() + (t + 1) * k, b.begin() + t * k);
  EXPECT_LE(flips, tokens / 1000);
}

}  // namespace
}  // namespace capstan
