#include "kernels/newton_schulz.hpp"

#include <cmath>
#include <utility>
#include <vector>

#include "blas/gemm.hpp"
#include "kernels/elements.hpp"
#include "kernels/matrix_sums.hpp"

namespace capstan {

namespace {

using blas::Op;

/// What one orthogonalisation works with: Views of [count, rows, cols] (x, y) and of
/// [count, small, small] (gram, poly).
template <class T>
struct Work {
  BatchShape shape;
  std::vector<index_t> offsets;  ///< of the rows of each matrix
  View1<T> x, y, gram, poly;
};

/// y = x / (|x| + 1e-8), matrix by matrix.
template <class T>
void normalise(const Work<T>& w, View1<double> sums) {
  const index_t count = w.shape.count, size = w.shape.size();
  const View1<const T> x = w.x;
  const View1<T> y = w.y;
  const View1<double> squares(sums.data(), count);
  const View1<double> partial(sums.data() + count, count * sum_blocks(size));
  par_blocks(
      "ns_norm", count, size,
      KOKKOS_LAMBDA(const Team& team, index_t row, index_t, index_t first, index_t n) {
        const T* from = x.data() + first;
        const double sum =
            team.sum(n, [&](index_t i) { return double(from[i]) * double(from[i]); });
        team.once([&] { partial(row) = sum; });
      });
  add_blocks("ns_norm", count, size, 1, partial, squares);
  par_blocks(
      "ns_scale", count, size,
      KOKKOS_LAMBDA(const Team& team, index_t, index_t matrix, index_t first, index_t n) {
        using std::sqrt;
        const double factor = 1.0 / (sqrt(squares(matrix)) + 1e-8);
        const T* from = x.data() + first;
        T* to = y.data() + first;
        team.each(n, [&](index_t i) { to[i] = T(factor * double(from[i])); });
      });
}

/// gram = X X^T, or X^T X where there are more rows than columns.
template <class T>
void make_gram(const Work<T>& w, const T* x) {
  const BatchShape& s = w.shape;
  const bool tall = s.rows > s.cols;
  const T one = 1, zero = 0;
  if (s.count == 1) {  // spread over the threads by tiles rather than by matrices
    blas::gemm<T>(tall ? Op::T : Op::N, tall ? Op::N : Op::T, s.small(), s.small(),
                  tall ? s.rows : s.cols, one, x, s.cols, x, s.cols, zero, w.gram.data(),
                  s.small());
  } else if (tall) {
    blas::grouped_gemm_weights<T>(s.count, w.offsets.data(), s.cols, s.cols, one, x, x,
                                  zero, w.gram.data());
  } else {
    blas::grouped_gemm<T>(Op::T, s.count, w.offsets.data(), s.cols, s.rows, one, x, x,
                          zero, w.gram.data());
  }
}

/// c [count, n, cols] = a [count, n, n] b [count, n, cols].
template <class T>
void square_times(const BatchShape& s, const T* a, const T* b, index_t n, index_t cols,
                  T alpha, T* c) {
  if (s.count == 1) {
    blas::gemm<T>(Op::N, Op::N, n, cols, n, alpha, a, n, b, cols, T(0), c, cols);
    return;
  }
  std::vector<index_t> offsets;
  for (index_t g = 0; g <= s.count; ++g) offsets.push_back(g * n);
  blas::grouped_gemm<T>(Op::N, s.count, offsets.data(), n, cols, alpha, a, b, T(0), c);
}

/// out = (a I + b G + c G^2) X, or X (a I + b G + c G^2) where X is tall.
template <class T>
void step(const Work<T>& w, const double* abc, const T* x, T* out) {
  const BatchShape& s = w.shape;
  const index_t n = s.small();
  make_gram(w, x);
  square_times<T>(s, w.gram.data(), w.gram.data(), n, n, T(abc[2]), w.poly.data());
  const View1<const T> gram = w.gram;
  const View1<T> poly = w.poly;
  const T a = T(abc[0]), b = T(abc[1]);
  par_elements(
      "ns_polynomial", s.count * n * n,
      KOKKOS_LAMBDA(index_t i) { poly(i) += b * gram(i); });
  par_for(
      "ns_diagonal", s.count * n,
      KOKKOS_LAMBDA(index_t i) { poly(i / n * n * n + i % n * (n + 1)) += a; });
  if (s.rows <= s.cols) {
    square_times<T>(s, w.poly.data(), x, n, s.cols, T(1), out);
  } else if (s.count == 1) {
    blas::gemm<T>(Op::N, Op::N, s.rows, n, n, T(1), x, n, w.poly.data(), n, T(0), out, n);
  } else {
    blas::grouped_gemm<T>(Op::N, s.count, w.offsets.data(), n, n, T(1), x, w.poly.data(),
                          T(0), out);
  }
}

}  // namespace

index_t newton_schulz_scratch(const BatchShape& s) {
  return s.count * (s.size() + 2 * s.small() * s.small());
}

index_t newton_schulz_sums(const BatchShape& s) {
  return s.count * (1 + sum_blocks(s.size()));
}

double newton_schulz_flops(const BatchShape& s) {
  const double n = double(s.small());
  const double one = 4 * n * double(s.size()) + 2 * n * n * n;
  return kNewtonSchulzSteps * double(s.count) * one;
}

template <class T>
void newton_schulz(const BatchShape& shape, View1<T> x, View1<T> scratch,
                   View1<double> sums) {
  const index_t all = shape.count * shape.size();
  const index_t grams = shape.count * shape.small() * shape.small();
  if (all == 0) return;
  Work<T> w{shape,
            {},
            x,
            View1<T>(scratch.data(), all),
            View1<T>(scratch.data() + all, grams),
            View1<T>(scratch.data() + all + grams, grams)};
  for (index_t g = 0; g <= shape.count; ++g) w.offsets.push_back(g * shape.rows);
  normalise(w, sums);
  T *from = w.y.data(), *to = w.x.data();
  for (const auto& abc : kNewtonSchulz) {  // an odd number of steps: the last ends in x
    step(w, abc, from, to);
    std::swap(from, to);
  }
}

#define CAPSTAN_NEWTON_SCHULZ(S) \
  template void newton_schulz<S>(const BatchShape&, View1<S>, View1<S>, View1<double>);
CAPSTAN_INSTANTIATE_ACC(CAPSTAN_NEWTON_SCHULZ)

}  // namespace capstan
