#include "model/moe/transport.hpp"

namespace capstan {

DispatchPlan plan_waterfill(const TransportSpec& spec, const Assignments& a,
                            const Grid& grid, Context& ctx) {
  const index_t wanted = total_valid(a) * static_cast<index_t>(a.experts.extent(1));
  const index_t floor = capacity_rows(spec.capacity_receive, wanted, a.n_experts);
  const SortedList list = sort_assignments(a.experts, a.n_experts, ctx);
  const Counts counts = gather_counts(list.counts, grid, ctx);
  const Counts accepted = accept_waterfill(counts, floor, spec.policy);
  DispatchPlan plan =
      plan_by_expert(list, row_of(accepted, grid.expert),
                     arriving_of(accepted, grid.expert), spec, a, grid, ctx);
  plan.tally.receiver = list.rows - plan.sent;
  plan.tally.bank_rows = static_cast<double>(floor * counts.local());
  plan.tally.bank_factor = effective_factor(floor, wanted, a.n_experts);
  return plan;
}

}  // namespace capstan
