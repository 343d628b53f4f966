// The exact-size exchange of the transports whose waves are parts of the experts.
#include <numeric>

#include "model/moe/transport.hpp"

namespace capstan {

namespace {

/// Local experts of wave w: w * size .. (w + 1) * size - 1.
struct Parts {
  index_t ranks, local, size;
};

/// First row of each expert in the send list: by wave, then destination, then expert.
std::vector<std::int64_t> list_rows(const std::vector<std::int64_t>& accepted,
                                    const Parts& parts, DispatchPlan& plan) {
  std::vector<std::int64_t> base(accepted.size());
  std::int64_t row = 0;
  for (index_t w = 0; w < static_cast<index_t>(plan.waves.size()); ++w) {
    Wave& wave = plan.waves[w];
    wave.first = row;
    wave.send_rows.assign(parts.ranks, 0);
    for (index_t r = 0; r < parts.ranks; ++r) {
      for (index_t i = 0; i < parts.size; ++i) {
        const index_t e = r * parts.local + w * parts.size + i;
        base[e] = row;
        row += accepted[e];
        wave.send_rows[r] += accepted[e];
      }
    }
    wave.rows = row - wave.first;
  }
  plan.sent = row;
  return base;
}

/// Row counts of what arrives in wave w, and offsets of the local experts in it.
void count_arriving(const std::vector<std::int64_t>& arriving, const Parts& parts,
                    index_t w, Wave& wave) {
  wave.receive_rows.assign(parts.ranks, 0);
  wave.offsets.assign(parts.local + 1, 0);
  const index_t first = w * parts.size, last = first + parts.size;
  for (index_t e = 0; e < parts.local; ++e) {
    wave.offsets[e + 1] = wave.offsets[e];
    if (e < first || e >= last) continue;
    for (index_t s = 0; s < parts.ranks; ++s) {
      wave.offsets[e + 1] += arriving[s * parts.local + e];
      wave.receive_rows[s] += arriving[s * parts.local + e];
    }
  }
  wave.arrived = wave.computed = wave.room = wave.offsets.back();
}

/// Rows arrive by sender, then expert: arrange and restore.
void arrange_rows(const std::vector<std::int64_t>& arriving, const Parts& parts,
                  index_t w, Wave& wave, Context& ctx) {
  const index_t n = wave.arrived;
  std::vector<std::int32_t> arrange(n), restore(n);
  std::vector<index_t> next(wave.offsets.begin(), wave.offsets.end() - 1);
  std::int32_t arrived = 0;
  for (index_t s = 0; s < parts.ranks; ++s) {
    for (index_t e = w * parts.size; e < (w + 1) * parts.size; ++e) {
      for (std::int64_t i = 0; i < arriving[s * parts.local + e]; ++i, ++arrived) {
        const index_t row = next[e]++;
        arrange[row] = arrived;
        restore[arrived] = static_cast<std::int32_t>(row);
      }
    }
  }
  wave.arrange = ctx.arena.take1<std::int32_t>("dispatch", n);
  wave.restore = ctx.arena.take1<std::int32_t>("dispatch", n);
  copy_to_device(arrange.data(), wave.arrange.data(), n);
  copy_to_device(restore.data(), wave.restore.data(), n);
}

}  // namespace

DispatchPlan plan_by_expert(const SortedList& list,
                            const std::vector<std::int64_t>& accepted,
                            const std::vector<std::int64_t>& arriving,
                            const TransportSpec& spec, const Assignments& a,
                            const Grid& grid, Context& ctx) {
  const Region region(ctx.timers, "dispatch_plan");
  DispatchPlan plan;
  const Parts parts{grid.n_expert, a.n_experts / grid.n_expert,
                    a.n_experts / grid.n_expert / spec.waves};
  plan.travels = grid.n_expert > 1;
  plan.waves.resize(spec.waves);
  plan.tally.assignments = list.rows;
  const std::vector<std::int64_t> base = list_rows(accepted, parts, plan);
  plan.slot = list.slot;
  const bool as_sorted = accepted == list.counts && (spec.waves == 1 || !plan.travels);
  if (as_sorted) {
    plan.order = View1<std::int32_t>(list.order.data(), plan.sent);
  } else {
    plan.order = ctx.arena.take1<std::int32_t>("dispatch", plan.sent);
    const ArenaScope scope(ctx.arena);
    const auto place = choose_kept(list, accepted, spec.policy, a, ctx);
    const auto first =
        ctx.arena.take1<std::int64_t>("dispatch", static_cast<index_t>(base.size()));
    copy_to_device(base.data(), first.data(), static_cast<index_t>(base.size()));
    place_rows(list.keys, list.order, place, first, plan.order, plan.slot);
  }
  for (index_t w = 0; w < spec.waves; ++w) {
    count_arriving(arriving, parts, w, plan.waves[w]);
    if (plan.travels) arrange_rows(arriving, parts, w, plan.waves[w], ctx);
  }
  return plan;
}

}  // namespace capstan
