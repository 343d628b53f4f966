#include "kernels/dispatch.hpp"

#include "base/parallel.hpp"

namespace capstan {

void keep_first(View1<const std::int32_t> keys, View1<const std::int32_t> order,
                View1<const std::int64_t> offsets, View1<const std::int64_t> accepted,
                View1<std::int32_t> place) {
  par_for(
      "keep_first", index_t(place.extent(0)), KOKKOS_LAMBDA(index_t r) {
        const std::int32_t key = keys(order(r));
        const index_t p = r - offsets(key);
        place(r) = p < accepted(key) ? static_cast<std::int32_t>(p) : -1;
      });
}

void place_rows(View1<const std::int32_t> keys, View1<const std::int32_t> order,
                View1<const std::int32_t> place, View1<const std::int64_t> base,
                View1<std::int32_t> listed, View1<std::int32_t> slot) {
  par_for(
      "place_rows", index_t(place.extent(0)), KOKKOS_LAMBDA(index_t r) {
        const std::int32_t a = order(r), p = place(r);
        if (p < 0) {
          slot(a) = -1;
          return;
        }
        const index_t row = base(keys(a)) + p;
        slot(a) = static_cast<std::int32_t>(row);
        listed(row) = a;
      });
}

void place_in_pools(View1<const std::int32_t> keys, View1<const std::int32_t> order,
                    View1<const std::int32_t> place, const PoolLayout& layout,
                    View1<std::int32_t> listed, View1<std::int32_t> slot) {
  fill(listed, -1);
  const index_t block = layout.block_rows(), waves = layout.waves, ranks = layout.ranks;
  par_for(
      "place_in_pools", index_t(place.extent(0)), KOKKOS_LAMBDA(index_t r) {
        const std::int32_t a = order(r);
        const index_t p = place(r);
        if (p < 0) {
          slot(a) = -1;
          return;
        }
        const index_t row = ((p % waves) * ranks + keys(a)) * block + p / waves;
        slot(a) = static_cast<std::int32_t>(row);
        listed(row) = a;
      });
}

template <class S>
void pack_ids(View1<const std::int32_t> listed, View1<const std::int32_t> experts,
              index_t local_experts, const PoolLayout& layout, View2<S> rows) {
  const index_t z = index_t(rows.extent(1)), block = layout.block_rows();
  const index_t pool = layout.pool, header = layout.header;
  const std::int32_t local = static_cast<std::int32_t>(local_experts);
  par_rows(
      "pack_ids", layout.waves * layout.ranks * header, 0,
      KOKKOS_LAMBDA(const Team& team, index_t h) {
        const index_t begin = h / header * block, line = h % header;
        S* to = &rows(begin + pool + line, 0);
        team.each(z, [&](index_t c) {
          const index_t j = line * z + c;
          const std::int32_t a = j < pool ? listed(begin + j) : -1;
          to[c] = a < 0 ? S(0) : S(float(experts(a) % local + 1));
        });
      });
}

template <class S>
void drop_refused(View2<const S> returned, const PoolLayout& layout,
                  View1<std::int32_t> listed, View1<std::int32_t> slot) {
  const index_t z = index_t(returned.extent(1)), block = layout.block_rows();
  const index_t pool = layout.pool;
  par_for(
      "drop_refused", layout.rows(), KOKKOS_LAMBDA(index_t r) {
        const std::int32_t a = listed(r);
        if (a < 0) return;
        const index_t j = r % block;
        if (returned(r - j + pool + j / z, j % z) == S(1)) return;
        slot(a) = -1;
        listed(r) = -1;
      });
}

template <class S>
void unpack_ids(View2<const S> arrived, const ArrivedBlocks& blocks,
                View1<std::int32_t> ids) {
  const auto first = blocks.first, pool = blocks.pool;
  const index_t z = index_t(arrived.extent(1));
  par_rows(
      "unpack_ids", index_t(pool.extent(0)), 0,
      KOKKOS_LAMBDA(const Team& team, index_t s) {
        const index_t begin = first(s), slots = pool(s);
        team.each(first(s + 1) - begin, [&](index_t j) {
          ids(begin + j) =
              j < slots ? static_cast<std::int32_t>(arrived(begin + slots + j / z, j % z))
                        : 0;
        });
      });
}

template <class S>
void pack_flags(View1<const std::int32_t> restore, const ArrivedBlocks& blocks,
                View2<S> leaving) {
  const auto first = blocks.first, pool = blocks.pool;
  const index_t z = index_t(leaving.extent(1));
  par_rows(
      "pack_flags", index_t(pool.extent(0)), 0,
      KOKKOS_LAMBDA(const Team& team, index_t s) {
        const index_t begin = first(s), slots = pool(s);
        const index_t header = first(s + 1) - begin - slots;
        S* to = header > 0 ? &leaving(begin + slots, 0) : nullptr;
        team.each(header * z, [&](index_t j) {
          to[j] = j < slots && restore(begin + j) >= 0 ? S(1) : S(0);
        });
      });
}

void mark_kept(View1<const std::int32_t> keys, View1<const std::int32_t> order,
               View1<const std::int32_t> place, View1<std::int32_t> kept) {
  fill(kept, -1);
  par_for(
      "mark_kept", index_t(place.extent(0)), KOKKOS_LAMBDA(index_t r) {
        if (place(r) >= 0) kept(order(r)) = keys(order(r));
      });
}

void retry_candidates(View2<const std::int32_t> experts, View2<const std::int32_t> kept,
                      View2<const std::int32_t> next, index_t round,
                      View2<std::int32_t> candidate, View1<std::int32_t> choice) {
  const std::int32_t k = static_cast<std::int32_t>(experts.extent(1));
  par_for(
      "retry_candidates", index_t(experts.extent(0)), KOKKOS_LAMBDA(index_t t) {
        std::int32_t i = 0;
        while (i < k && (experts(t, i) < 0 || kept(t, i) >= 0)) ++i;
        choice(t) = i;
        candidate(t, 0) = i < k ? next(t, round) : -1;
      });
}

void take_candidates(View2<const std::int32_t> candidate,
                     View1<const std::int32_t> choice, View1<const std::int32_t> order,
                     View1<const std::int32_t> place, View2<std::int32_t> kept) {
  par_for(
      "take_candidates", index_t(place.extent(0)), KOKKOS_LAMBDA(index_t r) {
        const std::int32_t t = order(r);
        if (place(r) >= 0) kept(t, choice(t)) = candidate(t, 0);
      });
}

void final_experts(View2<const std::int32_t> experts, View2<const std::int32_t> kept,
                   View2<std::int32_t> routed) {
  const auto first = flat(experts), last = flat(kept);
  const auto to = flat(routed);
  par_for(
      "final_experts", index_t(to.extent(0)),
      KOKKOS_LAMBDA(index_t a) { to(a) = last(a) >= 0 ? last(a) : first(a); });
}

void destinations(View2<const std::int32_t> experts, index_t local_experts,
                  View2<std::int32_t> dest) {
  const std::int32_t local = static_cast<std::int32_t>(local_experts);
  const auto from = flat(experts);
  const auto to = flat(dest);
  par_for(
      "destinations", index_t(from.extent(0)),
      KOKKOS_LAMBDA(index_t a) { to(a) = from(a) < 0 ? -1 : from(a) / local; });
}

std::int64_t count_kept(View1<const std::int32_t> slot) {
  return par_sum<std::int64_t>(
      "count_kept", index_t(slot.extent(0)),
      KOKKOS_LAMBDA(index_t a, std::int64_t & sum) { sum += slot(a) >= 0 ? 1 : 0; });
}

#define CAPSTAN_DISPATCH_KERNELS(S)                                                     \
  template void pack_ids<S>(View1<const std::int32_t>, View1<const std::int32_t>,       \
                            index_t, const PoolLayout&, View2<S>);                      \
  template void drop_refused<S>(View2<const S>, const PoolLayout&, View1<std::int32_t>, \
                                View1<std::int32_t>);                                   \
  template void unpack_ids<S>(View2<const S>, const ArrivedBlocks&,                     \
                              View1<std::int32_t>);                                     \
  template void pack_flags<S>(View1<const std::int32_t>, const ArrivedBlocks&, View2<S>);
CAPSTAN_INSTANTIATE(CAPSTAN_DISPATCH_KERNELS)

}  // namespace capstan
