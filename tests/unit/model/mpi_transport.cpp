// Transports on 1, 2, 4, 8 and 64 ranks: against an oracle that sees all tokens, and the
// whole model against one rank that has all experts.
#include <gtest/gtest.h>

#include "model/moe/exchange_size.hpp"
#include "unit/model/small_model.hpp"
#include "unit/model/transport_case.hpp"

namespace capstan::test {
namespace {

const Grid& group() {
  static const Grid grid = [] {
    const Comm world = Comm::world();
    return Grid::build(world, 1, 1, world.size());
  }();
  return grid;
}
index_t ranks() {
  return group().n_expert;
}

TransportSpec spec_of(Transport kind, index_t waves, DropPolicy policy, double factor) {
  return {kind, factor, factor, waves, policy};
}

/// All transports, waves and policies on one routing.
void check_all(const Routing& r, double factor) {
  Context ctx(group().expert, true);
  for (const Transport kind : kAllTransports) {
    for (const index_t waves : {index_t(1), index_t(2), r.local}) {
      for (const auto policy :
           {DropPolicy::position, DropPolicy::weight, DropPolicy::rotate}) {
        SCOPED_TRACE(testing::Message() << "transport " << int(kind) << " waves " << waves
                                        << " policy " << int(policy));
        check_exchange(r, spec_of(kind, waves, policy, factor), group(), ctx);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST(Exchange, KeptSetAndDropsEqualTheOracle) {
  check_all(random_routing(ranks(), 4, 2, 30, 1), 1.0);
  check_all(random_routing(ranks(), 2, 1, 41, 2), 0.7);
  check_all(random_routing(ranks(), 4, std::min<index_t>(8, 4 * ranks()), 17, 3), 1.15);
}

TEST(Exchange, AmpleCapacityKeepsAll) {
  const Routing r = random_routing(ranks(), 4, 2, 30, 4);
  for (const Transport kind : kAllTransports) {
    const Outcome all = Oracle(r, spec_of(kind, 2, DropPolicy::position, 1000)).run();
    EXPECT_EQ(all.by, r.experts);
  }
  check_all(r, 1000);
}

TEST(Exchange, ARankWithoutTokens) {
  Routing r = random_routing(ranks(), 4, 2, 30, 5);
  const index_t empty = ranks() - 1;
  std::fill(r.experts[empty].begin(), r.experts[empty].end(), -1);
  std::fill(r.next[empty].begin(), r.next[empty].end(), -1);
  check_all(r, 1.0);
  if (ranks() > 1) {  // and one that has no rows at all
    r.experts[0].clear(), r.next[0].clear(), r.weights[0].clear();
    check_all(r, 1.0);
  }
}

TEST(Exchange, AllTokensToOneExpert) {
  Routing r = random_routing(ranks(), 4, 1, 30, 6, 7);
  for (auto& list : r.experts)
    for (auto& e : list) e = e < 0 ? -1 : static_cast<std::int32_t>(r.n_experts() - 2);
  for (std::size_t s = 0; s < r.next.size(); ++s)
    for (std::size_t i = 0; i < r.next[s].size(); ++i)
      r.next[s][i] = r.experts[s][i / 3] < 0 ? -1 : static_cast<std::int32_t>(i % 2);
  check_all(r, 1.0);
  check_all(r, 1000);
}

TEST(Exchange, OneTokenInAll) {
  Routing r = random_routing(ranks(), 4, 2, 30, 7, 0);
  for (index_t s = 0; s < ranks(); ++s) {
    for (index_t i = 0; i < static_cast<index_t>(r.experts[s].size()); ++i)
      if (s > 0 || i / r.k != 11) r.experts[s][i] = -1;
    for (index_t i = 0; i < static_cast<index_t>(r.next[s].size()); ++i)
      if (s > 0 || i / kSpillChoices != 11) r.next[s][i] = -1;
  }
  check_all(r, 1.0);
}

TEST(Exchange, NoTokenAtAll) {
  Routing r = random_routing(ranks(), 4, 2, 9, 8);
  for (auto& list : r.experts) std::fill(list.begin(), list.end(), -1);
  for (auto& list : r.next) std::fill(list.begin(), list.end(), -1);
  check_all(r, 1.0);
}

TEST(Exchange, UnusedRowsMayHoldNaN) {
  const Routing r = random_routing(ranks(), 4, 2, 30, 9);
  Context ctx(group().expert, true);
  for (const Transport kind : kAllTransports) {
    const TransportSpec spec = spec_of(kind, 2, DropPolicy::position, 1.0);
    check_exchange(r, spec, group(), ctx);
    poison<double>(ctx.arena);
    check_exchange(r, spec, group(), ctx);
  }
}

/// Drops of every rank where all route alike and only receivers lack room.
std::vector<std::int64_t> drops_by_sender(Transport kind, DropPolicy policy) {
  Routing r = random_routing(ranks(), 4, 2, 60, 12, 0, false);
  for (index_t s = 1; s < ranks(); ++s) {
    r.experts[s] = r.experts[0];
    r.next[s] = r.next[0];
    r.weights[s] = r.weights[0];
  }
  TransportSpec spec = spec_of(kind, 2, policy, 0.8);
  spec.capacity_send = 1000;
  Context ctx(group().expert, true);
  Exchange exchange(r, spec, group(), ctx, 3);
  exchange.forward(normal_values(60 * 3, 1));
  const DropTally& tally = exchange.plan().tally;
  EXPECT_EQ(tally.assignments, tally.kept + tally.sender + tally.receiver);
  EXPECT_EQ(tally.sender, 0);
  std::vector<std::int64_t> all(ranks());
  group().expert_group.all_gather_host(&tally.receiver, all.data(), 1);
  return all;
}

TEST(Exchange, UnderEqualLoadNoSenderIsFavouredUnlessThePolicySaysSo) {
  // What does not divide goes to somebody: at most one row of each bank or expert.
  const std::int64_t rest = 4 * ranks() * 2;
  std::int64_t most = 0;
  for (const auto& [kind, policy] :
       {std::pair{Transport::pooled_wave, DropPolicy::position},
        {Transport::pooled_wave, DropPolicy::rotate},
        {Transport::ragged, DropPolicy::rotate},
        {Transport::waterfill, DropPolicy::rotate}}) {
    const auto drops = drops_by_sender(kind, policy);
    const auto [low, high] = std::minmax_element(drops.begin(), drops.end());
    EXPECT_LE(*high - *low, rest) << "transport " << int(kind);
    most = std::max(most, *high);
  }
  EXPECT_GT(most, 0);
  // First sender first: the bias of the reference run's order grows with the rank.
  if (ranks() == 1) return;
  const auto drops = drops_by_sender(Transport::ragged, DropPolicy::position);
  EXPECT_TRUE(std::is_sorted(drops.begin(), drops.end()));
  EXPECT_GT(drops.back(), drops.front());
}

/// Buffers of an exchange, forward and backward, beside the sizes that the planner tells
/// before any token is routed.
void check_sizes(const Routing& r, const TransportSpec& spec, index_t tokens) {
  constexpr index_t z = 5;
  Context ctx(group().expert, true);
  const ExchangeSize size = exchange_size(spec, tokens, r.k, r.n_experts(), ranks(), z);
  const Values x = normal_values(tokens * z, 1);
  Exchange exchange(r, spec, group(), ctx, z);
  exchange.forward(x);
  exchange.backward(x);
  const DispatchPlan& plan = exchange.plan();
  const bool fixed = spec.kind == Transport::pooled_wave;
  EXPECT_EQ(plan.travels, size.travels);
  EXPECT_EQ(static_cast<index_t>(plan.waves.size()), size.waves);
  EXPECT_LE(plan.sent, size.sent);
  if (fixed) {
    EXPECT_EQ(plan.sent, size.sent);
  }
  for (const Wave& wave : plan.waves) {
    EXPECT_LE(wave.room, size.room);
    if (size.travels) {
      EXPECT_LE(wave.arrived, size.arrived);
    }
    if (fixed) {
      EXPECT_EQ(wave.room, size.room);
    }
    if (fixed) {
      EXPECT_EQ(wave.arrived, size.arrived);
    }
  }
  const auto peak = ctx.ledger.at_peak();
  const auto found = peak.find("exchange");
  const index_t bytes = found == peak.end() ? 0 : found->second;
  const index_t foreseen = size.lane_elements(z) * index_t(sizeof(double));
  EXPECT_LE(bytes, foreseen + 5 * 256);  // the arena rounds each of five buffers up
  if (fixed || !size.travels) {
    EXPECT_GE(bytes, foreseen);
  }
}

TEST(Exchange, BuffersAreThoseThatWereForeseen) {
  const index_t tokens = 60;
  const Routing r = random_routing(ranks(), 4, 2, tokens, 11, 0, false);
  for (const Transport kind : kAllTransports) {
    for (const index_t waves : {1, 2, 4}) {
      for (const double factor : {0.6, 1.15, 100.0}) {
        SCOPED_TRACE(testing::Message() << "transport " << int(kind) << " waves " << waves
                                        << " factor " << factor);
        check_sizes(r, spec_of(kind, waves, DropPolicy::position, factor), tokens);
      }
    }
  }
}

/// Loss and gradients of a batch of one sequence or more a rank.
struct Trained {
  double loss = 0;
  Values gradients;
  RouterReport report;
};

ModelShape group_shape() {
  ModelShape s = small_shape();
  s.experts = std::max<index_t>(8, 2 * ranks());
  return s;
}

Trained train(const ModelShape& shape, const Grid& grid, index_t sequences,
              bool empty_rank) {
  Context ctx(0, true);
  const index_t each = sequences * shape.seq_len / grid.n_expert;
  HostBatch all = small_batch(shape, sequences, 3);
  if (empty_rank) {  // the first rank's tokens are padding
    const index_t n = sequences * shape.seq_len / ranks();
    std::fill_n(all.segments.begin(), n, -1);
    std::fill_n(all.targets.begin(), n, -1);
  }
  Model<double> model(shape, grid, each, ctx);
  model.params().initialise(3);
  const ArenaScope scope(ctx.arena);
  const auto part = [&](const std::vector<std::int32_t>& v) {
    return std::vector<std::int32_t>(v.begin() + grid.expert * each,
                                     v.begin() + (grid.expert + 1) * each);
  };
  model.begin_step(std::count_if(all.segments.begin(), all.segments.end(),
                                 [](std::int32_t s) { return s >= 0; }));
  LossSums sums;
  const DeviceBatch b = upload_batch(part(all.tokens), part(all.targets),
                                     part(all.segments), shape.seq_len, 0, true, ctx);
  model.train(b, 0.1, sums, ctx);
  model.reduce_gradients(ctx);
  Trained out;
  out.loss = grid.dense.all_reduce_value(sums.cross_entropy, Reduce::sum);
  for (const ParamSlot& slot : model.params().slots()) {
    const Values mine = values(model.params().part(model.params().gradients(), slot));
    Values whole(slot.global_size());
    if (slot.spec.expert)
      grid.expert_group.all_gather_host(mine.data(), whole.data(), slot.size());
    else
      whole = mine;
    out.gradients.insert(out.gradients.end(), whole.begin(), whole.end());
  }
  out.report = model.routers().end_step(grid, ctx);
  return out;
}

/// Every transport with ample capacity against one rank that has all experts.
void check_ample(const std::vector<index_t>& wave_counts, bool empty_rank) {
  const index_t sequences = 2 * ranks();
  Trained want;
  if (group().world.rank() == 0) {
    ModelShape reference = group_shape();
    reference.transport.kind = Transport::reference;
    want = train(reference, Grid(), sequences, empty_rank);
  }
  for (const Transport kind : kAllTransports) {
    for (const index_t waves : wave_counts) {
      ModelShape s = group_shape();
      s.transport = spec_of(kind, waves, DropPolicy::position, 1000);
      const Trained got = train(s, group(), sequences, empty_rank);
      EXPECT_EQ(got.report.drops.total(), 0);
      if (group().world.rank() != 0) continue;
      EXPECT_NEAR(got.loss, want.loss, 1e-11 * std::fabs(want.loss));
      EXPECT_LT(relative_error(got.gradients, want.gradients), 1e-12)
          << "transport " << int(kind) << " waves " << waves;
      EXPECT_EQ(got.report.load, want.report.load);
    }
  }
}

TEST(Model, AmpleCapacityEqualsOneRankWithAllExperts) {
  check_ample({1, 2}, false);
  if (ranks() > 1) check_ample({1, 2}, true);
}

TEST(Model, DropsAreCountedAndRecomputeChangesNoBit) {
  for (const Transport kind : kAllTransports) {
    ModelShape s = group_shape();
    s.transport = spec_of(kind, 1, DropPolicy::position, 0.8);
    const Trained once = train(s, group(), 2 * ranks(), false);
    EXPECT_EQ(once.report.drops.total() > 0, kind != Transport::dropless);
    s.recompute = Recompute::full;
    const Trained again = train(s, group(), 2 * ranks(), false);
    EXPECT_EQ(once.loss, again.loss);
    EXPECT_EQ(once.gradients, again.gradients);
    EXPECT_EQ(once.report.drops.sender, again.report.drops.sender);
    EXPECT_EQ(once.report.drops.receiver, again.report.drops.receiver);
  }
}

// For 64 ranks, which share few cores on a desk: one case of each kind.
TEST(Wide, KeptSetAndDropsEqualTheOracle) {
  Context ctx(group().expert, true);
  const Routing r = random_routing(ranks(), 2, 2, 12, 1);
  for (const Transport kind : kAllTransports)
    check_exchange(r, spec_of(kind, 2, DropPolicy::position, 1.0), group(), ctx);
}

TEST(Wide, AmpleCapacityEqualsOneRankWithAllExperts) {
  check_ample({2}, false);
}

}  // namespace
}  // namespace capstan::test
