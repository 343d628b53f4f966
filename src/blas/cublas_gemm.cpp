// Products on NVIDIA GPUs by cuBLAS, on the default stream of Kokkos. cuBLAS is
// column-major: the transpose of a row-major C = A B is C^T = B^T A^T, so operands are
// swapped and kept as stored.
#include "blas/product.hpp"

#if CAPSTAN_CUBLAS
#include <cublas_v2.h>

#include <cstdio>
#include <string>

#include "base/error.hpp"
#include "base/types.hpp"

namespace capstan::blas {

namespace {

void check(cublasStatus_t status) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error(Exit::device, std::string("cuBLAS: ") + cublasGetStatusString(status));
}

/// A cuBLAS handle on Kokkos' default stream. Kokkos destroys it before it leaves the
/// device.
class Handle {
 public:
  Handle() {
    check(cublasCreate(&handle_));
    check(cublasSetStream(handle_, Kokkos::Cuda().cuda_stream()));
    // float stays float: no TF32
    check(cublasSetMathMode(handle_, CUBLAS_DEFAULT_MATH));
    Kokkos::push_finalize_hook([this] { cublasDestroy(handle_); });
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  cublasHandle_t get() const { return handle_; }

 private:
  cublasHandle_t handle_ = nullptr;
};

cublasHandle_t handle() {
  static const Handle made;
  return made.get();
}

cublasOperation_t flag(Op op) {
  return op == Op::N ? CUBLAS_OP_N : CUBLAS_OP_T;
}

void issue(const Product<float>& p) {
  check(cublasSgemm_64(handle(), flag(p.op_b), flag(p.op_a), p.n, p.m, p.k, &p.alpha, p.b,
                       p.ldb, p.a, p.lda, &p.beta, p.c, p.ldc));
}
void issue(const Product<double>& p) {
  check(cublasDgemm_64(handle(), flag(p.op_b), flag(p.op_a), p.n, p.m, p.k, &p.alpha, p.b,
                       p.ldb, p.a, p.lda, &p.beta, p.c, p.ldc));
}

/// cuBLAS scales C itself for k = 0, and does not read it for beta = 0.
template <class S>
void multiply(const Product<S>& p) {
  if (!p.empty()) issue(p);
}

}  // namespace

template <class S>
void gemm(Op op_a, Op op_b, index_t m, index_t n, index_t k, S alpha, const S* a,
          index_t lda, const S* b, index_t ldb, S beta, S* c, index_t ldc) {
  const Product<S> p{op_a, op_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc};
  if (p.empty()) return;
  count_flops(p.flops());
  multiply(p);
}

template <class S>
void grouped_gemm(Op op_w, index_t groups, const index_t* offsets, index_t in,
                  index_t out, S alpha, const S* x, const S* w, S beta, S* y) {
  for (index_t g = 0; g < groups; ++g) {
    const index_t row = offsets[g];
    gemm<S>(Op::N, op_w, offsets[g + 1] - row, out, in, alpha, x + row * in, in,
            w + g * in * out, op_w == Op::N ? out : in, beta, y + row * out, out);
  }
}

template <class S>
void grouped_gemm_weights(index_t groups, const index_t* offsets, index_t in, index_t out,
                          S alpha, const S* x, const S* dy, S beta, S* dw) {
  for (index_t g = 0; g < groups; ++g) {
    const index_t row = offsets[g];
    gemm<S>(Op::T, Op::N, in, out, offsets[g + 1] - row, alpha, x + row * in, in,
            dy + row * out, out, beta, dw + g * in * out, out);
  }
}

const char* backend_float() {
  static char name[32];
  int version = 0;
  check(cublasGetVersion(handle(), &version));
  std::snprintf(name, sizeof name, "cuBLAS %d.%d.%d", version / 10000,
                version / 100 % 100, version % 100);
  return name;
}
const char* backend_double() {
  return backend_float();
}

#define CAPSTAN_MAKE(S)                                                               \
  template void gemm<S>(Op, Op, index_t, index_t, index_t, S, const S*, index_t,      \
                        const S*, index_t, S, S*, index_t);                           \
  template void grouped_gemm<S>(Op, index_t, const index_t*, index_t, index_t, S,     \
                                const S*, const S*, S, S*);                           \
  template void grouped_gemm_weights<S>(index_t, const index_t*, index_t, index_t, S, \
                                        const S*, const S*, S, S*);
CAPSTAN_MAKE(double)
CAPSTAN_MAKE(float)
#undef CAPSTAN_MAKE

}  // namespace capstan::blas
#endif
