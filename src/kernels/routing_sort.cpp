#include "base/parallel.hpp"
#include "kernels/routing.hpp"

namespace capstan {

namespace {
/// Tokens of a block, at least: sort_by_expert takes so many more that a block has
/// kPerExpert assignments for each expert's counter, and its cost does not grow with the
/// experts.
constexpr index_t kTokens = 256, kPerExpert = 4;
/// Workers that share a block: worker o alone touches the counters of experts e with
/// e mod kOwners == o, so that no atomics are needed and assignments stay in order.
constexpr std::int32_t kOwners = kOnHost ? 1 : 128;

/// f(assignment, expert) for the assignments of block b whose expert belongs to `owner`,
/// in order.
template <class F>
KOKKOS_INLINE_FUNCTION void owned(const std::int32_t* experts, index_t first,
                                  index_t last, index_t owner, const F& f) {
  for (index_t a = first; a < last; ++a) {
    const std::int32_t e = experts[a];
    if (e >= 0 && e % kOwners == static_cast<std::int32_t>(owner)) f(a, e);
  }
}
}  // namespace

index_t sort_blocks(index_t tokens) {
  return (tokens + kTokens - 1) / kTokens;
}

void sort_by_expert(View2<const std::int32_t> experts, View2<std::int32_t> block_counts,
                    View1<std::int64_t> counts, View1<std::int64_t> offsets,
                    View1<std::int32_t> order, View1<std::int32_t> slot) {
  const index_t tokens = index_t(experts.extent(0)), k = index_t(experts.extent(1));
  const index_t e = index_t(counts.extent(0)), total = tokens * k;
  const index_t times = kPerExpert * e / (kTokens * k);
  const index_t per_block = kTokens * (times > 1 ? times : 1), size = per_block * k;
  const index_t blocks = (tokens + per_block - 1) / per_block;
  const std::int32_t* list = experts.data();
  par_rows(
      "sort_count", blocks, 0, KOKKOS_LAMBDA(const Team& team, index_t b) {
        std::int32_t* count = &block_counts(b, 0);
        team.each(e, [&](index_t i) { count[i] = 0; });
        team.barrier();
        const index_t last = (b + 1) * size < total ? (b + 1) * size : total;
        team.each(kOwners, [&](index_t owner) {
          owned(list, b * size, last, owner,
                [&](index_t, std::int32_t i) { ++count[i]; });
        });
      });
  // Counts of a block become the number of rows of the same expert in earlier blocks.
  par_for(
      "sort_blocks", e, KOKKOS_LAMBDA(index_t i) {
        std::int32_t before = 0;
        for (index_t b = 0; b < blocks; ++b) {
          const std::int32_t n = block_counts(b, i);
          block_counts(b, i) = before;
          before += n;
        }
        counts(i) = before;
      });
  Kokkos::parallel_scan(
      "sort_offsets", Kokkos::RangePolicy<Exec, Kokkos::IndexType<index_t>>(0, e + 1),
      KOKKOS_LAMBDA(index_t i, std::int64_t & sum, bool final) {
        if (final) offsets(i) = sum;
        if (i < e) sum += counts(i);
      });
  par_rows(
      "sort_place", blocks, 0, KOKKOS_LAMBDA(const Team& team, index_t b) {
        std::int32_t* next = &block_counts(b, 0);
        const index_t last = (b + 1) * size < total ? (b + 1) * size : total;
        team.each(last - b * size, [&](index_t i) {
          if (list[b * size + i] < 0) slot(b * size + i) = -1;
        });
        team.each(kOwners, [&](index_t owner) {
          owned(list, b * size, last, owner, [&](index_t a, std::int32_t i) {
            const std::int32_t row = static_cast<std::int32_t>(offsets(i)) + next[i]++;
            order(row) = static_cast<std::int32_t>(a);
            slot(a) = row;
          });
        });
      });
}

index_t group_blocks(index_t tokens, index_t groups) {
  return groups > 0 ? groups * sort_blocks(tokens / groups) : 0;
}

void count_by_group(View2<const std::int32_t> experts, View2<std::int32_t> block_counts,
                    View2<std::int64_t> counts) {
  const index_t k = index_t(experts.extent(1)), groups = index_t(counts.extent(0));
  const index_t e = index_t(counts.extent(1));
  if (groups == 0) return;
  const index_t size = index_t(experts.extent(0)) / groups, per_group = sort_blocks(size);
  const std::int32_t* list = experts.data();
  par_rows(
      "group_count", groups * per_group, 0, KOKKOS_LAMBDA(const Team& team, index_t b) {
        std::int32_t* count = &block_counts(b, 0);
        team.each(e, [&](index_t i) { count[i] = 0; });
        team.barrier();
        const index_t start = b / per_group * size, at = b % per_group * kTokens;
        const index_t end = at + kTokens < size ? at + kTokens : size;
        team.each(kOwners, [&](index_t owner) {
          owned(list, (start + at) * k, (start + end) * k, owner,
                [&](index_t, std::int32_t i) { ++count[i]; });
        });
      });
  par_for(
      "group_count_sum", groups * e, KOKKOS_LAMBDA(index_t i) {
        const index_t g = i / e, expert = i % e;
        std::int64_t sum = 0;
        for (index_t b = g * per_group; b < (g + 1) * per_group; ++b)
          sum += block_counts(b, expert);
        counts(g, expert) = sum;
      });
}

}  // namespace capstan
