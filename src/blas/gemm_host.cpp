// Products on hosts: this file cuts them into one part per thread, a library computes
// each part with one thread. Parts depend on shapes and the number of threads alone, so
// that results are the same from run to run.
#include "blas/gemm.hpp"

#include "blas/product.hpp"

#if !CAPSTAN_CUBLAS
#include <algorithm>
#include <vector>

#if defined(_OPENMP)
#include <omp.h>
#endif

namespace capstan::blas {

namespace {

/// Below this number of operations a product is faster on one thread than a team is
/// woken.
constexpr double kSmallProduct = 4e5;

int threads_for(double flops) {
#if defined(_OPENMP)
  return flops < kSmallProduct || omp_in_parallel() ? 1 : omp_get_max_threads();
#else
  return flops < 0 ? 0 : 1;
#endif
}

/// While it lives, a library called by this thread does not fork. (A team of one thread
/// would make libgomp end the other threads of its pool, so a serial product opens no
/// parallel region.)
class OneThread {
 public:
#if defined(_OPENMP)
  OneThread() : before_(omp_get_max_threads()) {
    omp_set_num_threads(1);
  }
  ~OneThread() {
    omp_set_num_threads(before_);
  }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
#endif
};

/// part(t) for t in [0, parts), each by one thread.
template <class F>
void run_parts(int parts, const F& part) {
  if (parts == 1) {
    [[maybe_unused]] const OneThread guard;
    return part(0);
  }
#pragma omp parallel for schedule(static, 1) num_threads(parts)
  for (int t = 0; t < parts; ++t) part(t);
}

/// C = beta * C, without reading C for beta = 0.
template <class S, class C>
void scale(const Product<S, C>& p) {
  if (p.beta == 1) return;
  for (index_t i = 0; i < p.m; ++i)
    for (index_t j = 0; j < p.n; ++j) {
      C& c = p.c[i * p.ldc + j];
      c = p.beta == 0 ? C(0) : C(p.beta * c);
    }
}

/// C [n] = the sums, or the sums + beta * C.
void round_row(const float* sums, float beta, index_t n, bf16* c) {
  if (beta == 0) {
#pragma omp simd
    for (index_t j = 0; j < n; ++j) c[j] = bf16(sums[j]);
  } else {
#pragma omp simd
    for (index_t j = 0; j < n; ++j) c[j] = bf16(sums[j] + beta * float(c[j]));
  }
}

/// A result in bf16: sums of some rows at a time lie in float in a buffer of the thread
/// that fits its cache, then they are rounded. No fewer rows than hide the packing of B.
void multiply(const Product<bf16, bf16>& p) {
  constexpr index_t kSums = 1 << 17, kFewestRows = 64;
  thread_local std::vector<float> sums;
  const index_t most = std::min(p.m, std::max(kFewestRows, kSums / p.n));
  if (index_t(sums.size()) < most * p.n) sums.resize(most * p.n);
  for (index_t row = 0; row < p.m; row += most) {
    const auto part = p.tile(row, std::min(most, p.m - row), 0, p.n);
    library::multiply(Product<bf16, float>{part.op_a, part.op_b, part.m, part.n, part.k,
                                           part.alpha, part.a, part.lda, part.b, part.ldb,
                                           0, sums.data(), part.n});
    for (index_t i = 0; i < part.m; ++i)
      round_row(sums.data() + i * part.n, part.beta, part.n, part.c + i * part.ldc);
  }
}
template <class S, class C>
void multiply(const Product<S, C>& p) {
  library::multiply(p);
}

/// The product by the calling thread, whatever its extents.
template <class S, class C>
void compute(const Product<S, C>& p) {
  if (p.empty()) return;
  if (p.only_scales()) return scale(p);
  multiply(p);
}

index_t ceil_to(index_t n, index_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

/// How C is cut: down x across tiles of rows x cols elements.
struct Tiling {
  int down = 1, across = 1;
  index_t rows = 0, cols = 0;
};

/// The cut with the least time of the largest tile: its multiply-adds, and the packing of
/// its parts of A and B, which costs about as much as 16 multiply-adds for each element.
Tiling cut(index_t m, index_t n, int threads) {
  Tiling best;
  double least = 0;
  for (int across = threads; across >= 1; --across) {
    if (threads % across != 0) continue;
    Tiling t{threads / across, across, 0, 0};
    t.rows = ceil_to((m + t.down - 1) / t.down, 8);
    t.cols = ceil_to((n + t.across - 1) / t.across, 16);
    const double cost = double(t.rows) * double(t.cols) + 16.0 * double(t.rows + t.cols);
    if (best.rows == 0 || cost < least) {
      best = t;
      least = cost;
    }
  }
  return best;
}

}  // namespace

template <class S, class C>
void gemm(Op op_a, Op op_b, index_t m, index_t n, index_t k, Acc<S> alpha, const S* a,
          index_t lda, const S* b, index_t ldb, Acc<S> beta, C* c, index_t ldc) {
  const Product<S, C> p{op_a, op_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc};
  if (p.empty()) return;
  count_flops(p.flops());
  const int threads = threads_for(p.flops());
  const Tiling t = cut(m, n, threads);
  run_parts(threads, [&](int part) {
    const index_t row = part / t.across * t.rows, col = part % t.across * t.cols;
    compute(p.tile(row, std::min(t.rows, m - row), col, std::min(t.cols, n - col)));
  });
}

template <class S, class C>
void grouped_gemm(Op op_w, index_t groups, const index_t* offsets, index_t in,
                  index_t out, Acc<S> alpha, const S* x, const S* w, Acc<S> beta, C* y) {
  if (groups <= 0) return;
  const index_t first = offsets[0], rows = offsets[groups] - first;
  const Product<S, C> all{Op::N, op_w, rows, out, in,
                          alpha, x,    in,   w,   op_w == Op::N ? out : in,
                          beta,  y,    out};
  if (all.empty()) return;
  count_flops(all.flops());
  const int threads = threads_for(all.flops());
  // Every thread takes the same number of consecutive rows, so no shape of the load idles
  // one.
  run_parts(threads, [&](int part) {
    const index_t begin = first + rows * part / threads;
    const index_t end = first + rows * (part + 1) / threads;
    index_t g = std::upper_bound(offsets, offsets + groups, begin) - offsets - 1;
    for (index_t row = begin; row < end; ++g) {
      const index_t stop = std::min(end, offsets[g + 1]);
      Product<S, C> p = all.tile(row, stop - row, 0, out);
      p.b = w + g * in * out;
      compute(p);
      row = stop;
    }
  });
}

template <class S, class C>
void grouped_gemm_weights(index_t groups, const index_t* offsets, index_t in, index_t out,
                          Acc<S> alpha, const S* x, const S* dy, Acc<S> beta, C* dw) {
  if (groups <= 0 || in <= 0 || out <= 0) return;
  const index_t first = offsets[0], rows = offsets[groups] - first;
  const double flops = 2.0 * double(rows) * double(in) * double(out);
  count_flops(flops);
  const int threads = threads_for(flops);
  // A group costs its rows and, for its writes to dW, about as much as 16 rows more. A
  // thread takes the groups whose middle lies in its part of the total cost.
  constexpr index_t kWriteRows = 16;
  const index_t total = rows + kWriteRows * groups;
  run_parts(threads, [&](int part) {
    for (index_t g = 0; g < groups; ++g) {
      const index_t row = offsets[g], count = offsets[g + 1] - row;
      const index_t middle = row - first + kWriteRows * g + (count + kWriteRows) / 2;
      if (middle * threads / total != part) continue;
      compute(Product<S, C>{Op::T, Op::N, in, out, count, alpha, x + row * in, in,
                            dy + row * out, out, beta, dw + g * in * out, out});
    }
  });
}

#define CAPSTAN_MAKE(S, C)                                                               \
  template void gemm<S, C>(Op, Op, index_t, index_t, index_t, Acc<S>, const S*, index_t, \
                           const S*, index_t, Acc<S>, C*, index_t);                      \
  template void grouped_gemm<S, C>(Op, index_t, const index_t*, index_t, index_t,        \
                                   Acc<S>, const S*, const S*, Acc<S>, C*);              \
  template void grouped_gemm_weights<S, C>(index_t, const index_t*, index_t, index_t,    \
                                           Acc<S>, const S*, const S*, Acc<S>, C*);
CAPSTAN_MAKE(double, double)
CAPSTAN_MAKE(float, float)
CAPSTAN_MAKE(bf16, bf16)
CAPSTAN_MAKE(bf16, float)
#undef CAPSTAN_MAKE

}  // namespace capstan::blas
#endif
