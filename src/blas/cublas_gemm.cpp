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
    // float stays float: no TF32; bf16 sums in float all the way
    check(cublasSetMathMode(
        handle_,
        static_cast<cublasMath_t>(CUBLAS_DEFAULT_MATH |
                                  CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION)));
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
constexpr cudaDataType_t type_of(const bf16*) {
  return CUDA_R_16BF;
}
constexpr cudaDataType_t type_of(const float*) {
  return CUDA_R_32F;
}
template <class C>
void issue(const Product<bf16, C>& p) {
  check(cublasGemmEx_64(handle(), flag(p.op_b), flag(p.op_a), p.n, p.m, p.k, &p.alpha,
                        p.b, CUDA_R_16BF, p.ldb, p.a, CUDA_R_16BF, p.lda, &p.beta, p.c,
                        type_of(p.c), p.ldc, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
}

/// cuBLAS scales C itself for k = 0, and does not read it for beta = 0.
template <class S, class C>
void multiply(const Product<S, C>& p) {
  if (!p.empty()) issue(p);
}

}  // namespace

template <class S, class C>
void gemm(Op op_a, Op op_b, index_t m, index_t n, index_t k, Acc<S> alpha, const S* a,
          index_t lda, const S* b, index_t ldb, Acc<S> beta, C* c, index_t ldc) {
  const Product<S, C> p{op_a, op_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc};
  if (p.empty()) return;
  count_flops(p.flops());
  multiply(p);
}

template <class S, class C>
void grouped_gemm(Op op_w, index_t groups, const index_t* offsets, index_t in,
                  index_t out, Acc<S> alpha, const S* x, const S* w, Acc<S> beta, C* y) {
  for (index_t g = 0; g < groups; ++g) {
    const index_t row = offsets[g];
    gemm<S, C>(Op::N, op_w, offsets[g + 1] - row, out, in, alpha, x + row * in, in,
               w + g * in * out, op_w == Op::N ? out : in, beta, y + row * out, out);
  }
}

template <class S, class C>
void grouped_gemm_weights(index_t groups, const index_t* offsets, index_t in, index_t out,
                          Acc<S> alpha, const S* x, const S* dy, Acc<S> beta, C* dw) {
  for (index_t g = 0; g < groups; ++g) {
    const index_t row = offsets[g];
    gemm<S, C>(Op::T, Op::N, in, out, offsets[g + 1] - row, alpha, x + row * in, in,
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
const char* backend_bf16() {
  return backend_float();
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
