#include "kernels/embedding.hpp"

#include <algorithm>
#include <numeric>

#include "base/parallel.hpp"
#include "kernels/column_sums.hpp"

namespace capstan {

template <class S>
void embedding(View1<const std::int32_t> tokens, View2<const S> table, View2<S> y) {
  const index_t width = table.extent(1);
  par_rows(
      "embedding", tokens.extent(0), 0, KOKKOS_LAMBDA(const Team& team, index_t row) {
        const index_t token = tokens(row);
        S* to = y.data() + row * width;
        if (token < 0) {
          team.each(width, [&](index_t i) { to[i] = S(0); });
        } else {
          const S* from = table.data() + token * width;
          team.each(width, [&](index_t i) { to[i] = from[i]; });
        }
      });
}

TokenGroups group_tokens(const std::int32_t* tokens, index_t n) {
  TokenGroups groups;
  for (index_t row = 0; row < n; ++row) {
    if (tokens[row] >= 0) groups.order.push_back(static_cast<std::int32_t>(row));
  }
  std::sort(groups.order.begin(), groups.order.end(),
            [&](std::int32_t a, std::int32_t b) {
              return tokens[a] != tokens[b] ? tokens[a] < tokens[b] : a < b;
            });
  for (std::size_t i = 0; i < groups.order.size(); ++i) {
    const std::int32_t token = tokens[groups.order[i]];
    if (groups.tokens.empty() || groups.tokens.back() != token) {
      groups.tokens.push_back(token);
      groups.starts.push_back(static_cast<std::int32_t>(i));
    }
  }
  groups.starts.push_back(static_cast<std::int32_t>(groups.order.size()));
  return groups;
}

template <class S>
void embedding_backward(View1<const std::int32_t> order, View1<const std::int32_t> starts,
                        View1<const std::int32_t> tokens, View2<const S> dy,
                        View2<Acc<S>> d_table) {
  // Work item = (block of columns, group), blocks outermost: groups differ in size, and
  // so every thread gets the same rows of other columns.
  using A = Acc<S>;
  const index_t width = dy.extent(1), groups = tokens.extent(0);
  const index_t blocks = (width + kWideSumColumns - 1) / kWideSumColumns;
  par_rows(
      "embedding_backward", blocks * groups, column_sums_bytes<A>(1, kWideSumColumns),
      KOKKOS_LAMBDA(const Team& team, index_t item) {
        const index_t group = item % groups, first = item / groups * kWideSumColumns;
        const index_t columns =
            width - first < kWideSumColumns ? width - first : kWideSumColumns;
        const index_t start = starts(group), rows = starts(group + 1) - start;
        const std::int32_t* list = order.data() + start;
        const S* from = dy.data() + first;
        A* to = d_table.data() + tokens(group) * width + first;
        const A* sums = column_sums<A>(
            team, rows, 1, columns, kWideSumColumns,
            [&](index_t) { return std::uint64_t(1); },
            [&](index_t r, index_t, index_t c) { return A(from[list[r] * width + c]); });
        team.each(columns, [&](index_t c) { to[c] += sums[c]; });
      });
}

#define CAPSTAN_EMBEDDING(S)                                                           \
  template void embedding<S>(View1<const std::int32_t>, View2<const S>, View2<S>);     \
  template void embedding_backward<S>(                                                 \
      View1<const std::int32_t>, View1<const std::int32_t>, View1<const std::int32_t>, \
      View2<const S>, View2<Acc<S>>);
CAPSTAN_INSTANTIATE(CAPSTAN_EMBEDDING)

}  // namespace capstan
