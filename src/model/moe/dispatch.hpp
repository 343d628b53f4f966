#pragma once
/// \file From assignments to rows on the ranks that own the experts, and back. One plan serves
/// forward and backward.
#include <vector>

#include "base/context.hpp"
#include "comm/grid.hpp"
#include "kernels/routing.hpp"

namespace capstan {

/// Rows to send are the assignments sorted by expert; expert e lives on rank e div (E / n_expert).
/// Views lie in the arena of the caller.
struct DispatchPlan {
  index_t sent = 0, received = 0;
  View1<std::int32_t> order, slot;   ///< row -> assignment t*K + k, and its inverse
  View1<std::int64_t> counts;        ///< [E] assignments of this rank, before any drop
  std::vector<index_t> send_rows, receive_rows;  ///< by rank of the expert group
  std::vector<index_t> offsets;      ///< [E_local + 1] received rows of each local expert
  /// Received rows come by sender, then expert. arrange[r] = place in that order of row r in
  /// expert order; restore is its inverse. Empty when one rank has all experts.
  View1<std::int32_t> arrange, restore;
};

/// Transport `dropless` (and `reference`, its case of one rank): every assignment is accepted.
/// Collective over grid.expert_group. experts [T, K], -1 = padding.
DispatchPlan plan_dropless(View2<const std::int32_t> experts, index_t n_experts,
                           const Grid& grid, Context& ctx);

/// rows [sent, Z] in send order -> rows [received, Z] in expert order (in the arena, or `rows`
/// itself when nothing has to move). Collective over grid.expert_group.
template <class S>
View2<S> to_experts(const DispatchPlan& plan, View2<S> rows, const Grid& grid, Context& ctx);
/// The way back: rows [received, Z] in expert order -> [sent, Z] in send order.
template <class S>
View2<S> from_experts(const DispatchPlan& plan, View2<S> rows, const Grid& grid, Context& ctx);

}  // namespace capstan
