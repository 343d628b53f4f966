#include "model/moe/dispatch.hpp"

#include <numeric>

namespace capstan {

namespace {

/// Fills offsets, arrange and restore from counts by (sender, local expert).
void arrange_rows(const std::vector<std::int64_t>& counts, index_t senders, index_t local,
                  DispatchPlan& plan, Context& ctx) {
  plan.offsets.assign(local + 1, 0);
  for (index_t e = 0; e < local; ++e) {
    plan.offsets[e + 1] = plan.offsets[e];
    for (index_t s = 0; s < senders; ++s) plan.offsets[e + 1] += counts[s * local + e];
  }
  plan.received = plan.offsets[local];
  if (senders == 1) return;
  std::vector<std::int32_t> arrange(plan.received), restore(plan.received);
  std::vector<index_t> next(plan.offsets.begin(), plan.offsets.end() - 1);
  std::int32_t arrived = 0;
  for (index_t s = 0; s < senders; ++s) {
    for (index_t e = 0; e < local; ++e) {
      for (std::int64_t i = 0; i < counts[s * local + e]; ++i, ++arrived) {
        const index_t row = next[e]++;
        arrange[row] = arrived;
        restore[arrived] = static_cast<std::int32_t>(row);
      }
    }
  }
  plan.arrange = ctx.arena.take1<std::int32_t>("dispatch", plan.received);
  plan.restore = ctx.arena.take1<std::int32_t>("dispatch", plan.received);
  copy_to_device(arrange.data(), plan.arrange.data(), plan.received);
  copy_to_device(restore.data(), plan.restore.data(), plan.received);
}

}  // namespace

DispatchPlan plan_dropless(View2<const std::int32_t> experts, index_t n_experts,
                           const Grid& grid, Context& ctx) {
  Arena& arena = ctx.arena;
  DispatchPlan plan;
  const index_t assignments = experts.extent(0) * experts.extent(1);
  plan.order = arena.take1<std::int32_t>("dispatch", assignments);
  plan.slot = arena.take1<std::int32_t>("dispatch", assignments);
  plan.counts = arena.take1<std::int64_t>("dispatch", n_experts);
  {
    const Region region(ctx.timers, "dispatch_plan");
    const auto offsets = arena.take1<std::int64_t>("dispatch", n_experts + 1);
    const auto blocks =
        arena.take2<std::int32_t>("dispatch", sort_blocks(experts.extent(0)), n_experts);
    sort_by_expert(experts, blocks, plan.counts, offsets, plan.order, plan.slot);
  }
  const std::vector<std::int64_t> counts = to_host<std::int64_t>(plan.counts);
  plan.sent = std::accumulate(counts.begin(), counts.end(), std::int64_t(0));
  const index_t ranks = grid.n_expert, local = n_experts / ranks;
  std::vector<std::int64_t> arriving(counts);
  if (ranks > 1) {
    const Region region(ctx.timers, "exchange");
    grid.expert_group.all_to_all_host(counts.data(), arriving.data(), local);
  }
  const Region region(ctx.timers, "dispatch_plan");
  plan.send_rows.assign(ranks, 0);
  plan.receive_rows.assign(ranks, 0);
  for (index_t r = 0; r < ranks; ++r) {
    for (index_t e = 0; e < local; ++e) {
      plan.send_rows[r] += counts[r * local + e];
      plan.receive_rows[r] += arriving[r * local + e];
    }
  }
  arrange_rows(arriving, ranks, local, plan, ctx);
  return plan;
}

template <class S>
View2<S> to_experts(const DispatchPlan& plan, View2<S> rows, const Grid& grid, Context& ctx) {
  if (grid.n_expert == 1) return rows;
  Arena& arena = ctx.arena;
  const index_t width = rows.extent(1);
  const auto out = arena.take2<S>("dispatch", plan.received, width);
  const ArenaScope scope(arena);
  const auto arrived = arena.take2<S>("exchange", plan.received, width);
  {
    const Region region(ctx.timers, "exchange");
    fence();
    grid.expert_group
        .all_to_all_v<S>(rows.data(), plan.send_rows, arrived.data(), plan.receive_rows, width)
        .wait();
  }
  const Region region(ctx.timers, "permute");
  permute_rows<S>(arrived, plan.arrange, out);
  return out;
}

template <class S>
View2<S> from_experts(const DispatchPlan& plan, View2<S> rows, const Grid& grid,
                      Context& ctx) {
  if (grid.n_expert == 1) return rows;
  Arena& arena = ctx.arena;
  const index_t width = rows.extent(1);
  const auto out = arena.take2<S>("dispatch", plan.sent, width);
  const ArenaScope scope(arena);
  const auto leaving = arena.take2<S>("exchange", plan.received, width);
  {
    const Region region(ctx.timers, "permute");
    permute_rows<S>(rows, plan.restore, leaving);
    fence();
  }
  const Region region(ctx.timers, "exchange");
  grid.expert_group
      .all_to_all_v<S>(leaving.data(), plan.receive_rows, out.data(), plan.send_rows, width)
      .wait();
  return out;
}

#define CAPSTAN_DISPATCH(S)                                                                  \
  template View2<S> to_experts<S>(const DispatchPlan&, View2<S>, const Grid&, Context&);     \
  template View2<S> from_experts<S>(const DispatchPlan&, View2<S>, const Grid&, Context&);
CAPSTAN_INSTANTIATE(CAPSTAN_DISPATCH)

}  // namespace capstan
