#include "kernels/newton_schulz.hpp"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "blas/gemm.hpp"
#include "kernels/elements.hpp"
#include "kernels/matrix_sums.hpp"

namespace capstan {

namespace {

using blas::Op;

/// What the steps work with, in the type W of their products: Views of [count, rows,
/// cols] (from, to) and of [count, small, small] (gram, poly).
template <class W>
struct Work {
  BatchShape shape;
  std::vector<index_t> offsets;  ///< of the rows of each matrix
  View1<W> from, to, gram, poly;
};

/// y = x / (|x| + 1e-8), matrix by matrix.
template <class T, class W>
void normalise(const BatchShape& shape, View1<const T> x, View1<W> y,
               View1<double> sums) {
  const index_t count = shape.count, size = shape.size();
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
        W* to = y.data() + first;
        team.each(n, [&](index_t i) { to[i] = W(Acc<W>(factor * double(from[i]))); });
      });
}

/// b = a, whatever their types.
template <class A, class B>
void convert(View1<const A> a, View1<B> b) {
  par_elements(
      "ns_convert", b.extent(0), KOKKOS_LAMBDA(index_t i) { b(i) = B(Acc<A>(a(i))); });
}

/// gram = X X^T, or X^T X where there are more rows than columns.
template <class W>
void make_gram(const Work<W>& w) {
  const BatchShape& s = w.shape;
  const bool tall = s.rows > s.cols;
  const W* x = w.from.data();
  if (s.count == 1) {  // spread over the threads by tiles rather than by matrices
    blas::gemm<W>(tall ? Op::T : Op::N, tall ? Op::N : Op::T, s.small(), s.small(),
                  tall ? s.rows : s.cols, 1, x, s.cols, x, s.cols, 0, w.gram.data(),
                  s.small());
  } else if (tall) {
    blas::grouped_gemm_weights<W>(s.count, w.offsets.data(), s.cols, s.cols, 1, x, x, 0,
                                  w.gram.data());
  } else {
    blas::grouped_gemm<W>(Op::T, s.count, w.offsets.data(), s.cols, s.rows, 1, x, x, 0,
                          w.gram.data());
  }
}

/// c [count, n, cols] = alpha a [count, n, n] b [count, n, cols] + beta c.
template <class W>
void square_times(const BatchShape& s, const W* a, const W* b, index_t n, index_t cols,
                  double alpha, double beta, W* c) {
  const auto f = Acc<W>(alpha), g = Acc<W>(beta);
  if (s.count == 1) {
    blas::gemm<W>(Op::N, Op::N, n, cols, n, f, a, n, b, cols, g, c, cols);
    return;
  }
  std::vector<index_t> offsets;
  for (index_t m = 0; m <= s.count; ++m) offsets.push_back(m * n);
  blas::grouped_gemm<W>(Op::N, s.count, offsets.data(), n, cols, f, a, b, g, c);
}

/// to = a X + (b G + c G^2) X, or a X + X (b G + c G^2) where X is tall. Both sums happen
/// in the products, so that a result in bf16 is rounded once.
template <class W>
void step(const Work<W>& w, const double* abc) {
  const BatchShape& s = w.shape;
  const index_t n = s.small();
  const W* x = w.from.data();
  make_gram(w);
  convert<W, W>(w.gram, w.poly);
  square_times<W>(s, w.gram.data(), w.gram.data(), n, n, abc[2], abc[1], w.poly.data());
  convert<W, W>(w.from, w.to);
  const auto a = Acc<W>(abc[0]);
  W* out = w.to.data();
  if (s.rows <= s.cols) {
    square_times<W>(s, w.poly.data(), x, n, s.cols, 1, abc[0], out);
  } else if (s.count == 1) {
    blas::gemm<W>(Op::N, Op::N, s.rows, n, n, 1, x, n, w.poly.data(), n, a, out, n);
  } else {
    blas::grouped_gemm<W>(Op::N, s.count, w.offsets.data(), n, n, 1, x, w.poly.data(), a,
                          out);
  }
}

/// Matrices that are orthogonalised together: scratch memory of large stacks is bounded.
index_t chunk_of(const BatchShape& s) {
  constexpr index_t kElements = kOnHost ? index_t(1) << 20 : index_t(1) << 26;
  return std::min(s.count,
                  std::max<index_t>(1, kElements / std::max<index_t>(1, s.size())));
}

/// f(chunk, first element) for all chunks of a batch.
template <class F>
void for_chunks(const BatchShape& shape, const F& f) {
  const index_t most = chunk_of(shape);
  for (index_t first = 0; first < shape.count; first += most) {
    const index_t count = std::min(most, shape.count - first);
    f(BatchShape{count, shape.rows, shape.cols}, first * shape.size());
  }
}

/// All steps; the result is in w.from.
template <class W>
void iterate(Work<W>& w) {
  for (index_t g = 0; g <= w.shape.count; ++g) w.offsets.push_back(g * w.shape.rows);
  for (const auto& abc : kNewtonSchulz) {
    step(w, abc);
    std::swap(w.from, w.to);
  }
}

}  // namespace

index_t newton_schulz_scratch(const BatchShape& s) {
  return chunk_of(s) * (s.size() + 2 * s.small() * s.small());
}

index_t newton_schulz_sums(const BatchShape& s) {
  return chunk_of(s) * (1 + sum_blocks(s.size()));
}

double newton_schulz_flops(const BatchShape& s) {
  const double n = double(s.small());
  const double one = 4 * n * double(s.size()) + 2 * n * n * n;
  return kNewtonSchulzSteps * double(s.count) * one;
}

template <class T>
void newton_schulz(const BatchShape& shape, View1<T> x, View1<T> scratch,
                   View1<double> sums) {
  for_chunks(shape, [&](const BatchShape& s, index_t first) {
    const index_t all = s.count * s.size(), grams = s.count * s.small() * s.small();
    const View1<T> part(x.data() + first, all);
    Work<T> w{s,
              {},
              View1<T>(scratch.data(), all),
              part,
              View1<T>(scratch.data() + all, grams),
              View1<T>(scratch.data() + all + grams, grams)};
    normalise<T, T>(s, part, w.from, sums);
    iterate(w);  // an odd number of steps: the last one ends in x
  });
}

template <class T>
void newton_schulz_bf16(const BatchShape& shape, View1<T> x, View1<T> scratch,
                        View1<double> sums) {
  // Four arrays of bf16 need no more bytes than three of T.
  auto* rounded = reinterpret_cast<bf16*>(scratch.data());
  for_chunks(shape, [&](const BatchShape& s, index_t first) {
    const index_t all = s.count * s.size(), grams = s.count * s.small() * s.small();
    const View1<T> part(x.data() + first, all);
    Work<bf16> w{s,
                 {},
                 View1<bf16>(rounded, all),
                 View1<bf16>(rounded + all, all),
                 View1<bf16>(rounded + 2 * all, grams),
                 View1<bf16>(rounded + 2 * all + grams, grams)};
    normalise<T, bf16>(s, part, w.from, sums);
    iterate(w);
    convert<bf16, T>(w.from, part);
  });
}

#define CAPSTAN_NEWTON_SCHULZ(S)                                                        \
  template void newton_schulz<S>(const BatchShape&, View1<S>, View1<S>, View1<double>); \
  template void newton_schulz_bf16<S>(const BatchShape&, View1<S>, View1<S>,            \
                                      View1<double>);
CAPSTAN_INSTANTIATE_ACC(CAPSTAN_NEWTON_SCHULZ)

}  // namespace capstan
