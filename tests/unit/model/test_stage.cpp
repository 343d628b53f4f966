// Which layers a stage has: the dearest stage of every possible split, by hand, and
// whatever a deck says.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "base/error.hpp"
#include "base/rng.hpp"
#include "model/stage.hpp"
#include "unit/model/small_model.hpp"

using namespace capstan;
using namespace capstan::test;

namespace {

std::vector<index_t> counts(const std::vector<LayerRange>& split) {
  std::vector<index_t> n;
  for (const LayerRange& r : split) n.push_back(r.count());
  return n;
}

/// Costs of the stages of a split.
std::vector<double> stages_of(const StageCosts& c, const std::vector<index_t>& counts) {
  std::vector<double> costs;
  std::size_t layer = 0;
  for (const index_t n : counts) {
    costs.push_back(costs.empty() ? c.embedding : 0);
    for (index_t i = 0; i < n; ++i) costs.back() += c.layer[layer++];
  }
  costs.back() += c.head;
  return costs;
}

/// The least (dearest, sum of squares) over every split there is.
std::pair<double, double> best_of_all(const StageCosts& c, index_t stages) {
  std::pair<double, double> best = {1e300, 0};
  std::vector<index_t> counts;
  const std::function<void(index_t)> choose = [&](index_t left) {
    const index_t to_come = stages - index_t(counts.size());
    if (to_come == 0) {
      if (left > 0) return;
      const auto costs = stages_of(c, counts);
      double squares = 0;
      for (const double x : costs) squares += x * x;
      best = std::min(best, {*std::max_element(costs.begin(), costs.end()), squares});
      return;
    }
    for (index_t n = 1; n <= left; ++n) {
      counts.push_back(n);
      choose(left - n);
      counts.pop_back();
    }
  };
  choose(index_t(c.layer.size()));
  return best;
}

}  // namespace

TEST(Stages, TheBalancedSplitIsTheBestOfAll) {
  const Rng rng(1, 2);
  for (std::uint64_t draw = 0; draw < 40; ++draw) {
    const auto n = index_t(1 + draw % 9);
    StageCosts costs;
    for (index_t l = 0; l < n; ++l) costs.layer.push_back(rng.uniform(100 * draw + l));
    costs.embedding = 0.2 * rng.uniform(100 * draw + 50);
    costs.head = 2 * rng.uniform(100 * draw + 51);
    for (index_t stages = 1; stages <= n; ++stages) {
      const auto split = balanced_split(costs, stages);
      index_t next = 0;
      for (const LayerRange& r : split) {
        EXPECT_EQ(r.first, next);
        EXPECT_GT(r.last, r.first);
        next = r.last;
      }
      EXPECT_EQ(next, n);
      const auto mine = stages_of(costs, counts(split));
      const auto best = best_of_all(costs, stages);
      double squares = 0;
      for (const double x : mine) squares += x * x;
      EXPECT_NEAR(*std::max_element(mine.begin(), mine.end()), best.first, 1e-12);
      EXPECT_NEAR(squares, best.second, 1e-12);
    }
  }
}

TEST(Stages, ADearHeadHasFewerLayersBeforeIt) {
  StageCosts costs;
  costs.layer.assign(12, 1.0);
  EXPECT_EQ(counts(balanced_split(costs, 3)), (std::vector<index_t>{4, 4, 4}));
  costs.head = 2;
  EXPECT_EQ(counts(balanced_split(costs, 2)), (std::vector<index_t>{7, 5}));
  EXPECT_THROW(balanced_split(costs, 13), Error);
}

TEST(Stages, ADeckMayGiveTheSplit) {
  ModelShape shape = small_shape();
  shape.layers = 7;
  shape.layers_per_stage = {1, 4, 2};
  EXPECT_EQ(counts(split_layers(shape, 3)), shape.layers_per_stage);
  for (const index_t stages : {1, 2, 4}) EXPECT_THROW(split_layers(shape, stages), Error);
  shape.layers_per_stage = {0, 5, 2};
  EXPECT_THROW(split_layers(shape, 3), Error);
}

TEST(Stages, EveryTensorHasOneStage) {
  ModelShape shape = small_shape();
  shape.layers = 5;
  for (const index_t stages : {1, 2, 5}) {
    for (const ParamSpec& spec : param_list(shape)) {
      std::vector<index_t> holders;
      for (index_t s = 0; s < stages; ++s)
        if (stage_of(shape, stages, s).holds(spec)) holders.push_back(s);
      ASSERT_EQ(holders.size(), 1u) << spec.name;
      const bool front = spec.name == "embed/table";
      const bool back = spec.name == "head/table" || spec.name == "final/norm";
      if (front || back) {
        EXPECT_EQ(holders[0], front ? 0 : stages - 1) << spec.name;
      }
    }
  }
}
