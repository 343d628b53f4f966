#pragma once
/// \file Which assignments travel and in which rows, after their experts have been
/// chosen: places in send lists and pools, header rows of pooled waves, retries on later
/// choices. An assignment is t * K + k; arrays over assignments are flat [T * K].
#include "kernels/routing.hpp"

namespace capstan {

/// Rows of a list sorted by key (order, offsets of sort_by_expert): place[r] = place of
/// row r in the run of its key when it is among the first accepted[key] of it, else -1.
void keep_first(View1<const std::int32_t> keys, View1<const std::int32_t> order,
                View1<const std::int64_t> offsets, View1<const std::int64_t> accepted,
                View1<std::int32_t> place);
/// The list of kept rows: row base[key] + place is assignment order[r]. slot [T * K] =
/// that row, -1 where place is -1.
void place_rows(View1<const std::int32_t> keys, View1<const std::int32_t> order,
                View1<const std::int32_t> place, View1<const std::int64_t> base,
                View1<std::int32_t> listed, View1<std::int32_t> slot);

/// Pools of one sender: for each wave and destination, `pool` slots and then `header`
/// rows.
struct PoolLayout {
  index_t waves = 1, ranks = 1, pool = 0, header = 0;
  KOKKOS_INLINE_FUNCTION index_t block_rows() const { return pool + header; }
  KOKKOS_INLINE_FUNCTION index_t rows() const { return waves * ranks * block_rows(); }
};
/// keys = destinations. Place p of a destination goes to wave p mod W, slot p div W.
/// listed [layout.rows()] is filled with -1 elsewhere.
void place_in_pools(View1<const std::int32_t> keys, View1<const std::int32_t> order,
                    View1<const std::int32_t> place, const PoolLayout& layout,
                    View1<std::int32_t> listed, View1<std::int32_t> slot);
/// Header rows of `rows` [layout.rows(), Z]: element j of a block = local expert of slot
/// j plus 1, 0 when unused. experts [T * K].
template <class S>
void pack_ids(View1<const std::int32_t> listed, View1<const std::int32_t> experts,
              index_t local_experts, const PoolLayout& layout, View2<S> rows);
/// Slots whose flag in the header that came back is 0 were dropped by the receiver:
/// listed and slot become -1.
template <class S>
void drop_refused(View2<const S> returned, const PoolLayout& layout,
                  View1<std::int32_t> listed, View1<std::int32_t> slot);

/// Blocks that arrived: block s begins at row first[s] and has pool[s] slots, then
/// headers; first [senders + 1].
struct ArrivedBlocks {
  View1<index_t> first, pool;
};
/// ids [arrived] = what the headers say of each slot (0 in header rows).
template <class S>
void unpack_ids(View2<const S> arrived, const ArrivedBlocks& blocks,
                View1<std::int32_t> ids);
/// Header rows of `leaving` [arrived, Z]: 1 for a slot with restore >= 0, else 0.
template <class S>
void pack_flags(View1<const std::int32_t> restore, const ArrivedBlocks& blocks,
                View2<S> leaving);

/// kept [T * K] = key of the assignments whose rows have a place, -1 of the others.
void mark_kept(View1<const std::int32_t> keys, View1<const std::int32_t> order,
               View1<const std::int32_t> place, View1<std::int32_t> kept);
/// For each token with an assignment that is not kept: choice[t] = the first such k and
/// candidate[t] = next[t, round]; candidate = -1 for others. experts, kept [T, K].
void retry_candidates(View2<const std::int32_t> experts, View2<const std::int32_t> kept,
                      View2<const std::int32_t> next, index_t round,
                      View2<std::int32_t> candidate, View1<std::int32_t> choice);
/// Candidates with a place become the kept experts of their assignments, kept [T, K].
/// order = the sorted list of candidates (row -> token).
void take_candidates(View2<const std::int32_t> candidate,
                     View1<const std::int32_t> choice, View1<const std::int32_t> order,
                     View1<const std::int32_t> place, View2<std::int32_t> kept);
/// routed = kept where it is an expert, else experts; all [T, K].
void final_experts(View2<const std::int32_t> experts, View2<const std::int32_t> kept,
                   View2<std::int32_t> routed);

/// dest [T, K] = expert div local_experts; -1 stays -1.
void destinations(View2<const std::int32_t> experts, index_t local_experts,
                  View2<std::int32_t> dest);
/// Assignments with a row.
std::int64_t count_kept(View1<const std::int32_t> slot);

}  // namespace capstan
