// Who keeps the state of what: everything once, matrices whole, balanced, the same answer
// always.
#include <gtest/gtest.h>

#include <numeric>

#include "optim/ownership.hpp"
#include "unit/optim/optimizer_case.hpp"

using namespace capstan;
using namespace capstan::test;

namespace {

using Cuts = std::vector<std::vector<index_t>>;

/// Sum over tensors of what rank r has, each row worth `of(t)`.
template <class F>
std::vector<double> sums(const Cuts& cuts, index_t ranks, const F& of) {
  std::vector<double> out(static_cast<std::size_t>(ranks), 0.0);
  for (std::size_t t = 0; t < cuts.size(); ++t)
    for (std::size_t r = 0; r < out.size(); ++r)
      out[r] += double(cuts[t][r + 1] - cuts[t][r]) * of(t);
  return out;
}

double greatest(const std::vector<double>& x) {
  return *std::max_element(x.begin(), x.end());
}
double mean(const std::vector<double>& x) {
  return std::accumulate(x.begin(), x.end(), 0.0) / double(x.size());
}

TEST(Ownership, LongestProcessingTimeFirst) {
  // By hand: 7 -> rank 0, 6 -> 1, 5 -> 1 (6 + 5), no: rank 0 has 7, rank 1 has 6, so 5
  // goes to 1 (11), 4 to 0 (11), and the twos one to each.
  const std::vector<DealtTensor> tensors = {
      {1, 10, 1, 4}, {2, 1, 1, 2}, {1, 10, 1, 7}, {1, 10, 1, 5}, {1, 10, 1, 6}};
  EXPECT_EQ(deal_out(tensors, 2),
            (Cuts{{0, 10, 10}, {0, 1, 2}, {0, 10, 10}, {0, 0, 10}, {0, 0, 10}}));
}

TEST(Ownership, RowsFillUpWhoHasLeast) {
  // A matrix of 60 on one rank of four; 100 rows of 1 on all: (60, 34, 33, 33) at best.
  const std::vector<DealtTensor> tensors = {{1, 8, 60, 1}, {100, 1, 1, 0}};
  const Cuts cuts = deal_out(tensors, 4);
  EXPECT_EQ(cuts[0], (std::vector<index_t>{0, 8, 8, 8, 8}));
  EXPECT_EQ(cuts[1], (std::vector<index_t>{0, 0, 33, 67, 100}));
  EXPECT_EQ(deal_out({{2, 1, 5, 0}}, 3)[0].back(), 2);  // fewer rows than ranks
  EXPECT_EQ(deal_out({{0, 1, 5, 0}}, 2), (Cuts{{0, 0, 0}}));
}

TEST(Ownership, EverythingOnceMatricesWholeAndBalanced) {
  const Deck deck = Deck::load({std::string(CAPSTAN_SOURCE_DIR) + "/inputs/535b.deck"},
                               {"model/layers=8", "schedule/tokens=1e12"});
  const auto list = param_list(ModelShape::from_deck(deck));
  const auto groups = groups_from_deck(deck);
  for (const auto& [data, expert] : {std::pair<index_t, index_t>{2, 8}, {3, 16}}) {
    const Cuts cuts = share_state(list, groups, data, expert);
    EXPECT_EQ(cuts, share_state(list, groups, data, expert));
    std::vector<double> work(list.size()), state(list.size());
    Cuts dense;
    double largest = 0;
    for (std::size_t i = 0; i < list.size(); ++i) {
      const OptimizerKind kind = groups[group_of(groups, list[i].name)].kind;
      const index_t rows = list[i].shape[0] / (list[i].expert ? expert : 1);
      const index_t ranks = list[i].expert ? data : data * expert;
      ASSERT_EQ(index_t(cuts[i].size()), ranks + 1);
      EXPECT_EQ(cuts[i].front(), 0);
      EXPECT_EQ(cuts[i].back(), rows) << list[i].name;
      EXPECT_TRUE(std::is_sorted(cuts[i].begin(), cuts[i].end()));
      for (const index_t cut : cuts[i]) {
        const bool whole = orthogonalises(kind) && list[i].shape.size() == 2;
        EXPECT_TRUE(!whole || cut == 0 || cut == rows) << list[i].name;
      }
      if (list[i].expert) continue;
      const DealtTensor t = dealt_tensor(list[i], kind, expert);
      dense.push_back(cuts[i]);
      largest = std::max(largest, t.work);
      work[dense.size() - 1] = t.work / double(t.rows_per_unit);
      state[dense.size() - 1] = t.state / double(t.rows_per_unit);
    }
    const auto works = sums(dense, data * expert, [&](auto t) { return work[t]; });
    // LPT is within 4/3 of the best, which is no less than the mean or a whole matrix.
    EXPECT_LE(greatest(works), 4.0 / 3 * std::max(mean(works), largest));
    const auto states = sums(dense, data * expert, [&](auto t) { return state[t]; });
    EXPECT_LE(greatest(states), 1.3 * mean(states));
  }
}

}  // namespace
