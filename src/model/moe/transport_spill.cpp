#include <algorithm>

#include "model/moe/transport.hpp"

namespace capstan {

namespace {

/// One round of retries: returns how many were placed; room [E] shrinks by them.
std::int64_t retry(const Assignments& a, View2<std::int32_t> kept, index_t round,
                   std::vector<std::int64_t>& room, Context& ctx) {
  const ArenaScope scope(ctx.arena);
  const index_t tokens = a.experts.extent(0);
  const auto candidate = ctx.arena.take2<std::int32_t>("dispatch", tokens, 1);
  const auto choice = ctx.arena.take1<std::int32_t>("dispatch", tokens);
  retry_candidates(a.experts, kept, a.next, round, candidate, choice);
  const SortedList list = sort_assignments(candidate, a.n_experts, ctx);
  std::vector<std::int64_t> accepted(list.counts);
  std::int64_t placed = 0;
  for (std::size_t e = 0; e < room.size(); ++e) {
    accepted[e] = std::min(accepted[e], room[e]);
    room[e] -= accepted[e];
    placed += accepted[e];
  }
  const auto place = choose_kept(list, accepted, DropPolicy::position, a, ctx);
  take_candidates(candidate, choice, list.order, place, kept);
  return placed;
}

}  // namespace

DispatchPlan plan_spill(const TransportSpec& spec, const Assignments& a, const Grid& grid,
                        Context& ctx) {
  const index_t tokens = a.experts.extent(0), k = a.experts.extent(1);
  const index_t wanted = a.valid.at(grid.expert) * k;
  const index_t capacity = capacity_rows(spec.capacity_send, wanted, a.n_experts);
  const auto kept = ctx.arena.take2<std::int32_t>("dispatch", tokens, k);
  std::int64_t assignments = 0, spilled = 0;
  {
    const ArenaScope scope(ctx.arena);
    const SortedList list = sort_assignments(a.experts, a.n_experts, ctx);
    assignments = list.rows;
    std::vector<std::int64_t> room = accept_cells(list.counts, capacity);
    const auto place = choose_kept(list, room, spec.policy, a, ctx);
    mark_kept(list.keys, list.order, place, flat(kept));
    const bool dropped = room != list.counts;
    for (std::int64_t& n : room) n = capacity - n;
    for (index_t round = 0; dropped && round < kSpillChoices; ++round)
      spilled += retry(a, kept, round, room, ctx);
  }
  final_experts(a.experts, kept, a.routed);
  // What is kept now fits: the cells of it lose nothing.
  const SortedList list = sort_assignments(kept, a.n_experts, ctx);
  DispatchPlan plan = plan_by_expert(
      list, list.counts, exchange_counts(list.counts, grid, ctx), spec, a, grid, ctx);
  plan.tally.assignments = assignments;
  plan.tally.sender = assignments - plan.sent;
  plan.tally.spilled = spilled;
  plan.tally.pool_rows = static_cast<double>(capacity);
  plan.tally.pool_factor = effective_factor(capacity, wanted, a.n_experts);
  return plan;
}

}  // namespace capstan
