#pragma once
/// \file Sums over rows for a block of columns, in a fixed order and without atomics:
/// what the gradients of gains, convolution taps and embedding rows need.
#include "base/parallel.hpp"

namespace capstan {

/// Columns of one block: whole cache lines on a host, many small blocks on a GPU.
inline constexpr index_t kSumColumns = kOnHost ? 64 : 8;
/// Columns of one block where rows are few and blocks are many.
inline constexpr index_t kWideSumColumns = kOnHost ? 64 : 32;
/// Hosts sum a tile of rows, then tiles; GPUs sum rows r, r + g, ..., then these g
/// groups.
inline constexpr index_t kSumTile = 64, kSumWorkers = 128;

/// Scratch bytes that column_sums needs for `outputs` sums per column of type A.
template <class A>
constexpr int column_sums_bytes(index_t outputs, index_t columns) {
  const index_t parts =
      kOnHost ? 2 : (kSumWorkers / columns > 0 ? kSumWorkers / columns : 1);
  return static_cast<int>(parts * outputs * columns * static_cast<index_t>(sizeof(A)));
}

/// acc[k * columns + c] = sum over rows r with use(r, k) of term(r, k, c), for k in [0,
/// outputs), c in [0, columns), columns <= max_columns (the number given to
/// column_sums_bytes). The order of the sum depends on nothing but the sizes. acc lies at
/// the start of the scratch memory. Every worker may read it afterwards.
template <class A, class Mask, class Term>
KOKKOS_INLINE_FUNCTION A* column_sums(const Team& team, index_t rows, index_t outputs,
                                      index_t columns, index_t max_columns,
                                      const Mask& mask, const Term& term) {
  A* acc = reinterpret_cast<A*>(team.scratch());
  const index_t size = outputs * columns;
  if constexpr (kOnHost) {
    A* part = acc + outputs * max_columns;
    team.each(size, [&](index_t i) { acc[i] = 0; });
    for (index_t first = 0; first < rows; first += kSumTile) {
      const index_t last = first + kSumTile < rows ? first + kSumTile : rows;
      team.each(size, [&](index_t i) { part[i] = 0; });
      for (index_t r = first; r < last; ++r) {
        const std::uint64_t used = mask(r);
        for (index_t k = 0; k < outputs; ++k) {
          if ((used >> k & 1) == 0) continue;
          A* p = part + k * columns;
          team.each(columns, [&](index_t c) { p[c] += term(r, k, c); });
        }
      }
      team.each(size, [&](index_t i) { acc[i] += part[i]; });
    }
  } else {
    const index_t groups = kSumWorkers / max_columns > 0 ? kSumWorkers / max_columns : 1;
    team.each(groups * columns, [&](index_t i) {
      const index_t g = i / columns, c = i % columns;
      for (index_t k = 0; k < outputs; ++k) {
        A sum = 0;
        for (index_t r = g; r < rows; r += groups) {
          if (mask(r) >> k & 1) sum += term(r, k, c);
        }
        acc[g * size + k * columns + c] = sum;
      }
    });
    team.barrier();
    team.each(size, [&](index_t i) {
      for (index_t g = 1; g < groups; ++g) acc[i] += acc[g * size + i];
    });
    team.barrier();
  }
  return acc;
}

}  // namespace capstan
