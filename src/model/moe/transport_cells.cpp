#include "model/moe/transport.hpp"

namespace capstan {

DispatchPlan plan_cells(const TransportSpec& spec, const Assignments& a, const Grid& grid,
                        Context& ctx) {
  const index_t wanted =
      a.valid.at(grid.expert) * static_cast<index_t>(a.experts.extent(1));
  const index_t capacity = capacity_rows(spec.capacity_send, wanted, a.n_experts);
  const SortedList list = sort_assignments(a.experts, a.n_experts, ctx);
  const auto accepted = accept_cells(list.counts, capacity);
  DispatchPlan plan = plan_by_expert(list, accepted, exchange_counts(accepted, grid, ctx),
                                     spec, a, grid, ctx);
  plan.tally.sender = list.rows - plan.sent;
  plan.tally.pool_rows = static_cast<double>(capacity);
  plan.tally.pool_factor = effective_factor(capacity, wanted, a.n_experts);
  return plan;
}

}  // namespace capstan
