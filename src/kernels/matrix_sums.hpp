#pragma once
/// \file Sums over each matrix of a batch, in double, in an order that depends on the
/// shape alone: blocks of kSumBlock elements, then the blocks of a matrix one after the
/// other.
#include "base/parallel.hpp"

namespace capstan {

inline constexpr index_t kSumBlock = 4096;

KOKKOS_INLINE_FUNCTION constexpr index_t sum_blocks(index_t size) {
  return (size + kSumBlock - 1) / kSumBlock;
}

/// f(team, matrix, first, n) for every block: elements [first, first + n) of the batch,
/// all of one matrix of `size` elements; block b of a matrix is row matrix * blocks + b.
template <class F>
void par_blocks(const char* label, index_t count, index_t size, const F& f) {
  const index_t blocks = sum_blocks(size);
  par_rows(
      label, count * blocks, 0, KOKKOS_LAMBDA(const Team& team, index_t row) {
        const index_t matrix = row / blocks, begin = row % blocks * kSumBlock;
        const index_t n = size - begin < kSumBlock ? size - begin : kSumBlock;
        f(team, row, matrix, matrix * size + begin, n);
      });
}

/// sums(matrix * terms + k) = the sum of partial(row * terms + k) over the matrix' rows.
inline void add_blocks(const char* label, index_t count, index_t size, index_t terms,
                       View1<const double> partial, View1<double> sums) {
  const index_t blocks = sum_blocks(size);
  par_for(
      label, count * terms, KOKKOS_LAMBDA(index_t i) {
        const index_t matrix = i / terms, k = i % terms;
        double total = 0;
        for (index_t b = 0; b < blocks; ++b)
          total += partial((matrix * blocks + b) * terms + k);
        sums(i) = total;
      });
}

}  // namespace capstan
