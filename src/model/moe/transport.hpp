#pragma once
/// \file The transports: each turns assignments into a plan of what travels when and what
/// is dropped. One file transport_<name>.cpp each.
#include "model/moe/dispatch.hpp"

namespace capstan {

/// The plan of the transport that `spec` names. T of a capacity are the tokens of a rank
/// that are no padding, from assignments.valid: this rank's for a sender's capacity, the
/// mean of the expert group for a receiver's. Collective over grid.expert_group.
DispatchPlan make_dispatch(const TransportSpec& spec, const Assignments& a,
                           const Grid& grid, Context& ctx);

/// Nothing is dropped; with waves, the experts of a rank are served in that many parts.
/// `reference` is its case of one rank.
DispatchPlan plan_dropless(const TransportSpec& spec, const Assignments& a,
                           const Grid& grid, Context& ctx);
/// Room per sender and expert: ceil(capacity_send T K / E) rows
/// (marin-community/marin#7780).
DispatchPlan plan_cells(const TransportSpec& spec, const Assignments& a, const Grid& grid,
                        Context& ctx);
/// Cells. When all first choices are placed, dropped assignments are retried in three
/// rounds on the token's choices K + 1, K + 2 and K + 3: in round j every token that has
/// a dropped assignment offers the first of them to its choice K + j, in token order, as
/// long as the cell has room (marin-community/marin#7780).
DispatchPlan plan_spill(const TransportSpec& spec, const Assignments& a, const Grid& grid,
                        Context& ctx);
/// Pools per sender, destination and wave of ceil(capacity_send T K / (ranks W)) rows;
/// banks of ceil(capacity_receive T K / (E_local W)) rows per expert and wave; ids in
/// header rows (marin-community/marin#8289, #8347, #8348).
DispatchPlan plan_pooled_wave(const TransportSpec& spec, const Assignments& a,
                              const Grid& grid, Context& ctx);
/// Chunks of E_local / W experts share ceil(capacity_receive T K / W) rows of their
/// receiver (accept_ragged; marin-community/marin#9043).
DispatchPlan plan_ragged(const TransportSpec& spec, const Assignments& a,
                         const Grid& grid, Context& ctx);
/// ceil(capacity_receive ranks T K / E) rows per expert, lent within a receiver
/// (accept_waterfill; marin-community/marin#8311).
DispatchPlan plan_waterfill(const TransportSpec& spec, const Assignments& a,
                            const Grid& grid, Context& ctx);

/// Assignments of this rank sorted by a key (expert or destination rank), tokens in
/// order.
struct SortedList {
  View1<const std::int32_t> keys;    ///< [T * K]
  View1<std::int32_t> order, slot;   ///< row -> assignment and its inverse
  View1<std::int64_t> offsets;       ///< [keys + 1]
  std::vector<std::int64_t> counts;  ///< [keys]
  index_t rows = 0;
};
/// keys [T, K], -1 = left out; kept in the arena.
SortedList sort_assignments(View2<const std::int32_t> keys, index_t n_keys, Context& ctx);

/// place [list.rows] of the accepted[key] assignments of each key that are kept: the
/// first in token order, or those of largest weight (of equal ones the first). In the
/// arena.
View1<std::int32_t> choose_kept(const SortedList& list,
                                const std::vector<std::int64_t>& accepted,
                                DropPolicy policy, const Assignments& a, Context& ctx);

/// Exact-size exchange of accepted[e] rows to each expert, arriving[s * E_local + e] rows
/// from sender s for local expert e, in `waves` parts of the experts of a rank.
DispatchPlan plan_by_expert(const SortedList& list,
                            const std::vector<std::int64_t>& accepted,
                            const std::vector<std::int64_t>& arriving,
                            const TransportSpec& spec, const Assignments& a,
                            const Grid& grid, Context& ctx);
/// The counts of all senders for the experts of this rank, [ranks * E_local].
std::vector<std::int64_t> exchange_counts(const std::vector<std::int64_t>& accepted,
                                          const Grid& grid, Context& ctx);
/// The counts of all senders for all experts.
Counts gather_counts(const std::vector<std::int64_t>& counts, const Grid& grid,
                     Context& ctx);
/// Of `accepted`: what comes to this rank, as exchange_counts gives it.
std::vector<std::int64_t> arriving_of(const Counts& accepted, index_t receiver);
/// Row s of a matrix.
std::vector<std::int64_t> row_of(const Counts& counts, index_t sender);
/// Valid tokens of the whole expert group.
index_t total_valid(const Assignments& a);

}  // namespace capstan
