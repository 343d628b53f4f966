#pragma once
/// \file y = x W and its two adjoints, on row-major Views. x [T, in], W [in, out], y [T,
/// out]. Gradients of weights accumulate in Acc<S>.
#include "base/types.hpp"
#include "blas/gemm.hpp"

namespace capstan {

/// y = x W, or y += x W. C: S, or Acc<S> for a result that is not rounded to bf16.
template <class S, class C = S>
void linear(View2<const S> x, View2<const S> w, View2<C> y, bool accumulate = false) {
  const index_t t = x.extent(0), in = w.extent(0), out = w.extent(1);
  blas::gemm<S, C>(blas::Op::N, blas::Op::N, t, out, in, 1, x.data(), in, w.data(), out,
                   accumulate ? 1 : 0, y.data(), out);
}

/// dx = dy W^T, or dx += dy W^T.
template <class S>
void linear_input(View2<const S> dy, View2<const S> w, View2<S> dx,
                  bool accumulate = false) {
  const index_t t = dy.extent(0), in = w.extent(0), out = w.extent(1);
  blas::gemm<S>(blas::Op::N, blas::Op::T, t, in, out, 1, dy.data(), out, w.data(), out,
                accumulate ? 1 : 0, dx.data(), in);
}

/// dW += x^T dy.
template <class S>
void linear_weight(View2<const S> x, View2<const S> dy, View2<Acc<S>> dw) {
  const index_t t = x.extent(0), in = x.extent(1), out = dy.extent(1);
  blas::gemm<S, Acc<S>>(blas::Op::T, blas::Op::N, in, out, t, 1, x.data(), in, dy.data(),
                        out, 1, dw.data(), out);
}

}  // namespace capstan
