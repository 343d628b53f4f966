// The rehearsal of a big grid against a serial oracle, and against the published drop
// rates.
#include <gtest/gtest.h>

#include <algorithm>

#include "plan/rehearsal.hpp"

namespace capstan {
namespace {

TransportSpec transport(Transport kind, double factor, index_t waves = 1) {
  TransportSpec spec;
  spec.kind = kind;
  spec.capacity_send = spec.capacity_receive = factor;
  spec.waves = waves;
  return spec;
}

RehearsalSpec published_grid(index_t sequences, index_t tokens) {
  RehearsalSpec spec;
  spec.ranks = 64;
  spec.experts = 384;
  spec.top_k = 8;
  spec.sequences = sequences;
  spec.tokens = tokens;
  spec.correlation = published_correlations(4);
  spec.steps = 1;
  return spec;
}

/// Four senders of three tokens, two choices of four experts (two receivers' worth each),
/// written out by hand; third and later choices serve spill.
std::vector<Routing> by_hand() {
  const std::vector<std::vector<std::int16_t>> chosen = {
      {0, 1, 2, 3, 0, 2, 1, 3, 0, 3, 1, 2}, {0, 1, 2, 3, 0, 1, 3, 2, 1, 0, 2, 3}};
  std::vector<Routing> out;
  for (const auto& experts : chosen) out.push_back({3, 4, experts});
  return out;
}

TEST(Rehearsal, CountsByHand) {
  // Sender 0 picks experts 0:3 1:1 2:1 3:1, sender 1 picks 0:3 1:3. Two receivers,
  // experts 0, 1 on the first.
  const auto routing = by_hand();
  // Cells of ceil(1 * 6 / 4) = 2: each of the three columns of 3 loses one.
  EXPECT_EQ(rehearse_exchange(transport(Transport::cells, 1), routing, 4, 2).sender, 3);
  // Chunk of ceil(1 * 12 / 2) = 6 rows: the first receiver is sent 10.
  EXPECT_EQ(rehearse_exchange(transport(Transport::ragged, 1), routing, 4, 2).receiver,
            4);
  // Floor of 3 rows an expert: 6 and 4 want 6 in all.
  EXPECT_EQ(rehearse_exchange(transport(Transport::waterfill, 1), routing, 4, 2).receiver,
            4);
  // Pools of ceil(6 / 2) = 3: sender 0 wants 4 on the first receiver, sender 1 six. Banks
  // of ceil(6 / 2) = 3 rows: of the rows that come (0,1,0 and 0,1,0) expert 0 has 4, one
  // too many.
  const DropCount pooled =
      rehearse_exchange(transport(Transport::pooled_wave, 1), routing, 4, 2);
  EXPECT_EQ(pooled.sender, 1 + 3);
  EXPECT_EQ(pooled.receiver, 1);
  EXPECT_EQ(pooled.assignments, 12);
}

TEST(Rehearsal, SpillTakesTheNextChoiceWithRoom) {
  const DropCount d = rehearse_exchange(transport(Transport::spill, 1), by_hand(), 4, 2);
  EXPECT_EQ(d.sender + d.spilled, 3);
  EXPECT_GT(d.spilled, 0);
}

TEST(Rehearsal, AmpleCapacityDropsNothing) {
  for (const Transport kind : {Transport::cells, Transport::spill, Transport::pooled_wave,
                               Transport::ragged, Transport::waterfill}) {
    EXPECT_EQ(rehearse_exchange(transport(kind, 6), by_hand(), 4, 2).fraction(), 0);
  }
}

TEST(Rehearsal, TheSameFromRunToRun) {
  RehearsalSpec spec = published_grid(2, 16);
  const std::vector<TransportSpec> list = {transport(Transport::cells, 1.15)};
  const auto a = rehearse(spec, list), b = rehearse(spec, list);
  EXPECT_EQ(a.total[0].sender, b.total[0].sender);
  spec.seed = 2;
  EXPECT_NE(a.total[0].sender, rehearse(spec, list).total[0].sender);
}

TEST(Rehearsal, DropsGrowAsSequencesShrinkInNumber) {
  // 512 tokens a rank as 16 sequences and as 1: fewer documents, more correlated routing.
  const std::vector<TransportSpec> list = {transport(Transport::cells, 1.33),
                                           transport(Transport::pooled_wave, 1.15, 3),
                                           transport(Transport::ragged, 1.15, 2)};
  const auto many = rehearse(published_grid(16, 32), list);
  const auto one = rehearse(published_grid(1, 512), list);
  for (std::size_t i = 0; i < list.size(); ++i) {
    EXPECT_GT(one.total[i].fraction(), 1.5 * many.total[i].fraction());
  }
  // Published: about 40 % with cells at 65K, about 3 % with pools at 4K; this few tokens
  // a cell add noise of their own.
  EXPECT_NEAR(one.total[0].fraction(), 0.40, 0.08);
  EXPECT_NEAR(many.total[1].fraction(), 0.03, 0.025);
  EXPECT_LT(many.total[2].fraction(), 2e-3);
}

TEST(Rehearsal, IndependentTokensBalance) {
  RehearsalSpec spec = published_grid(8, 64);
  spec.correlation = {0.0};
  EXPECT_LT(rehearse(spec, {}).load_max_over_mean, 1.2);
}

}  // namespace
}  // namespace capstan
