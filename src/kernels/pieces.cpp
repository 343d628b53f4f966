#include "kernels/pieces.hpp"

#include "base/parallel.hpp"

namespace capstan {

template <class T>
void pack_pieces(View1<const index_t> table, index_t first, index_t count, index_t origin,
                 const T* buffer, T* packed) {
  par_rows(
      "pack_pieces", count, 0, KOKKOS_LAMBDA(const Team& team, index_t row) {
        const index_t at = (first + row) * kPieceTerms;
        const T* from = buffer + table(at);
        T* to = packed + table(at + 1) - origin;
        team.each(table(at + 2), [&](index_t i) { to[i] = from[i]; });
      });
}

template <class T>
void unpack_pieces(View1<const index_t> table, index_t first, index_t count,
                   index_t origin, const T* packed, T* buffer) {
  par_rows(
      "unpack_pieces", count, 0, KOKKOS_LAMBDA(const Team& team, index_t row) {
        const index_t at = (first + row) * kPieceTerms;
        const T* from = packed + table(at + 1) - origin;
        T* to = buffer + table(at);
        team.each(table(at + 2), [&](index_t i) { to[i] = from[i]; });
      });
}

#define CAPSTAN_PIECES(T)                                                         \
  template void pack_pieces<T>(View1<const index_t>, index_t, index_t, index_t,   \
                               const T*, T*);                                     \
  template void unpack_pieces<T>(View1<const index_t>, index_t, index_t, index_t, \
                                 const T*, T*);
CAPSTAN_PIECES(bf16)
CAPSTAN_PIECES(float)
CAPSTAN_PIECES(double)

}  // namespace capstan
