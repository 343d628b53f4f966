#include "model/moe/transport.hpp"

namespace capstan {

DispatchPlan plan_dropless(const TransportSpec& spec, const Assignments& a,
                           const Grid& grid, Context& ctx) {
  const SortedList list = sort_assignments(a.experts, a.n_experts, ctx);
  return plan_by_expert(list, list.counts, exchange_counts(list.counts, grid, ctx), spec,
                        a, grid, ctx);
}

}  // namespace capstan
