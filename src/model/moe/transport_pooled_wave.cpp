#include <algorithm>

#include "base/error.hpp"
#include "model/moe/transport.hpp"

namespace capstan {

namespace {

/// The slots of a sender's pools: no more than its capacity, nor than its tokens can
/// fill.
index_t pool_slots(index_t capacity, index_t valid, index_t k, index_t local,
                   index_t waves) {
  const index_t most = (valid * std::min(k, local) + waves - 1) / waves;
  return std::max<index_t>(1, std::min(capacity, most));
}

struct Geometry {
  index_t k, ranks, local, waves;
  index_t capacity(const TransportSpec& spec, index_t valid) const {
    return capacity_rows(spec.capacity_send, valid * k, ranks * waves);
  }
};

/// The shapes of all waves, which every rank knows from the valid tokens alone.
void shape_waves(const TransportSpec& spec, const Assignments& a, const Geometry& g,
                 DispatchPlan& plan, Context& ctx) {
  index_t arrived = 0, slots = 0;
  std::vector<index_t> receive_rows;
  for (const index_t valid : a.valid) {
    const index_t pool =
        pool_slots(g.capacity(spec, valid), valid, g.k, g.local, g.waves);
    const index_t rows = pool + header_rows(pool, a.width);
    plan.block_first.push_back(arrived);
    plan.block_pool.push_back(pool);
    receive_rows.push_back(rows);
    arrived += rows;
    slots += pool;
  }
  std::vector<index_t> ends(plan.block_first);
  ends.push_back(arrived);
  plan.blocks.first = ctx.arena.take1<index_t>("dispatch", g.ranks + 1);
  plan.blocks.pool = ctx.arena.take1<index_t>("dispatch", g.ranks);
  copy_to_device(ends.data(), plan.blocks.first.data(), g.ranks + 1);
  copy_to_device(plan.block_pool.data(), plan.blocks.pool.data(), g.ranks);
  const index_t block = plan.layout.block_rows();
  for (index_t w = 0; w < g.waves; ++w) {
    Wave wave;
    wave.rows = g.ranks * block;
    wave.first = w * wave.rows;
    wave.arrived = arrived;
    wave.room = std::min(slots, g.local * plan.bank_capacity);
    wave.computed = -1;  // known when the headers have arrived
    wave.send_rows.assign(g.ranks, block);
    wave.receive_rows = receive_rows;
    wave.offsets.assign(g.local + 1, 0);
    wave.arrange = ctx.arena.take1<std::int32_t>("dispatch", wave.room);
    wave.restore = ctx.arena.take1<std::int32_t>("dispatch", arrived);
    plan.waves.push_back(std::move(wave));
  }
}

}  // namespace

DispatchPlan plan_pooled_wave(const TransportSpec& spec, const Assignments& a,
                              const Grid& grid, Context& ctx) {
  const Region region(ctx.timers, "dispatch_plan");
  const Geometry g{static_cast<index_t>(a.experts.extent(1)), grid.n_expert,
                   a.n_experts / grid.n_expert, spec.waves};
  require(g.local <= kMaxHeaderExperts, "pooled_wave: too many experts for its headers");
  const index_t mine = a.valid.at(grid.expert), capacity = g.capacity(spec, mine);
  const index_t group = total_valid(a) * g.k, banks = a.n_experts * g.waves;
  DispatchPlan plan;
  plan.travels = plan.headers = true;
  plan.bank_capacity = capacity_rows(spec.capacity_receive, group, banks);
  plan.layout = {g.waves, g.ranks, pool_slots(capacity, mine, g.k, g.local, g.waves), 0};
  plan.layout.header = header_rows(plan.layout.pool, a.width);
  plan.sent = plan.layout.rows();
  plan.order = ctx.arena.take1<std::int32_t>("dispatch", plan.sent);
  plan.slot =
      ctx.arena.take1<std::int32_t>("dispatch", static_cast<index_t>(a.experts.size()));
  shape_waves(spec, a, g, plan, ctx);
  const ArenaScope scope(ctx.arena);
  const auto dest =
      ctx.arena.take2<std::int32_t>("dispatch", a.experts.extent(0), a.experts.extent(1));
  destinations(a.experts, g.local, dest);
  const SortedList list = sort_assignments(dest, g.ranks, ctx);
  std::vector<std::int64_t> accepted(list.counts);
  for (std::int64_t& n : accepted) n = std::min<std::int64_t>(n, capacity * g.waves);
  const auto place = choose_kept(list, accepted, spec.policy, a, ctx);
  fill(plan.slot, -1);
  place_in_pools(list.keys, list.order, place, plan.layout, plan.order, plan.slot);
  plan.tally.assignments = list.rows;
  plan.tally.sender = list.rows;
  for (const std::int64_t n : accepted) plan.tally.sender -= n;
  plan.tally.pool_rows = static_cast<double>(capacity);
  plan.tally.pool_factor = effective_factor(capacity, mine * g.k, g.ranks * g.waves);
  plan.tally.bank_rows = static_cast<double>(plan.bank_capacity);
  plan.tally.bank_factor = effective_factor(plan.bank_capacity, group, banks);
  return plan;
}

}  // namespace capstan
