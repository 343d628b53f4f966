#pragma once
/// \file Products of small tiles in fast memory, the arithmetic core of attention:
///   C [m, B] (+)= A [m, n] * B [n, B]
/// The B columns ("lanes") are what runs in parallel: vector lanes on a host, threads on
/// a GPU. A lies anywhere (two strides, so a transposed operand needs no copy), the other
/// two in scratch memory. One definition for any team; hosts have an overload that blocks
/// for vector registers.
#include "base/parallel.hpp"

namespace capstan {

/// Bytes of a vector register, and rows by packs of accumulators that fit in the register
/// file.
#if defined(__AVX512F__)
inline constexpr int kPackBytes = 64, kDown = 8, kAcross = 2;
#elif defined(__AVX__)
inline constexpr int kPackBytes = 32, kDown = 4, kAcross = 2;
#else
inline constexpr int kPackBytes = 16, kDown = 4, kAcross = 2;
#endif

/// A vector register of T.
template <class T>
struct PackOf;
template <>
struct PackOf<float> {
  typedef float type __attribute__((vector_size(kPackBytes), may_alias));
};
template <>
struct PackOf<double> {
  typedef double type __attribute__((vector_size(kPackBytes), may_alias));
};

/// The operand A: element (r, k) is at[r * row + k * col].
template <class E>
struct Operand {
  const E* at;
  index_t row, col;
};

/// Any team: blocks of 4 x 4 elements of C, each made by one worker.
template <int B, class AnyTeam, class T, class E>
KOKKOS_INLINE_FUNCTION void tile_product_any(const AnyTeam& team, index_t m, index_t n,
                                             Operand<E> a, const T* b, T* c, bool add) {
  constexpr int kBlock = 4;
  constexpr index_t across = B / kBlock;
  const index_t down = (m + kBlock - 1) / kBlock;
  team.each(down * across, [&](index_t block) {
    const index_t r0 = block / across * kBlock, l0 = block % across * kBlock;
    const int rows = static_cast<int>(m - r0 < kBlock ? m - r0 : kBlock);
    T sum[kBlock][kBlock];
    for (int r = 0; r < kBlock; ++r)
      for (int l = 0; l < kBlock; ++l)
        sum[r][l] = add && r < rows ? c[(r0 + r) * B + l0 + l] : T(0);
    for (index_t k = 0; k < n; ++k) {
      for (int r = 0; r < kBlock; ++r) {
        const index_t row = r0 + (r < rows ? r : 0);
        const T x = static_cast<T>(a.at[row * a.row + k * a.col]);
        for (int l = 0; l < kBlock; ++l) sum[r][l] += x * b[k * B + l0 + l];
      }
    }
    for (int r = 0; r < rows; ++r)
      for (int l = 0; l < kBlock; ++l) c[(r0 + r) * B + l0 + l] = sum[r][l];
  });
}

template <int B, class AnyTeam, class T, class E>
KOKKOS_INLINE_FUNCTION void tile_product(const AnyTeam& team, index_t m, index_t n,
                                         Operand<E> a, const T* b, T* c, bool add) {
  tile_product_any<B>(team, m, n, a, b, c, add);
}

/// R rows by kAcross packs of C in registers while the sum over k runs; `stride` = packs
/// a row.
template <int R, class T, class E>
inline void product_block(index_t n, Operand<E> a, const T* b, T* c, index_t stride,
                          bool add) {
  using Pack = typename PackOf<T>::type;
  const Pack* bp = reinterpret_cast<const Pack*>(b);
  Pack* cp = reinterpret_cast<Pack*>(c);
  Pack sum[R][kAcross];
  for (int r = 0; r < R; ++r)
    for (int p = 0; p < kAcross; ++p) sum[r][p] = add ? cp[r * stride + p] : Pack{};
  for (index_t k = 0; k < n; ++k) {
    for (int r = 0; r < R; ++r) {
      const T x = static_cast<T>(a.at[r * a.row + k * a.col]);
      for (int p = 0; p < kAcross; ++p) sum[r][p] += x * bp[k * stride + p];
    }
  }
  for (int r = 0; r < R; ++r)
    for (int p = 0; p < kAcross; ++p) cp[r * stride + p] = sum[r][p];
}

/// Hosts: b and c are aligned to a pack.
template <int B, class T, class E>
inline void tile_product(const HostTeam&, index_t m, index_t n, Operand<E> a, const T* b,
                         T* c, bool add) {
  constexpr int kLanes = kPackBytes / static_cast<int>(sizeof(T));
  constexpr int kStride = B / kLanes;
  static_assert(B % (kAcross * kLanes) == 0);
  for (index_t r = 0; r < m;) {
    const index_t rows = m - r >= kDown ? kDown : 1;
    const Operand<E> block{a.at + r * a.row, a.row, a.col};
    for (int l = 0; l < B; l += kAcross * kLanes) {
      if (rows == kDown)
        product_block<kDown>(n, block, b + l, c + r * B + l, kStride, add);
      else
        product_block<1>(n, block, b + l, c + r * B + l, kStride, add);
    }
    r += rows;
  }
}

/// Hosts, operand in bf16: widened first, once, rather than at each of its B / kAcross
/// uses. One of its strides is 1.
template <int B>
inline void tile_product(const HostTeam& team, index_t m, index_t n, Operand<bf16> a,
                         const float* b, float* c, bool add) {
  constexpr index_t kMost = 64 * 256;
  alignas(kPackBytes) float wide[kMost];
  if (m * n > kMost) return tile_product_any<B>(team, m, n, a, b, c, add);
  const bool rows = a.col == 1;
  const index_t lines = rows ? m : n, length = rows ? n : m, step = rows ? a.row : a.col;
  for (index_t i = 0; i < lines; ++i) {
    const bf16* from = a.at + i * step;
    float* to = wide + i * length;
#pragma omp simd
    for (index_t j = 0; j < length; ++j) to[j] = from[j];
  }
  const Operand<float> widened{wide, rows ? n : 1, rows ? 1 : m};
  tile_product<B>(team, m, n, widened, b, c, add);
}

}  // namespace capstan
