// double by OpenBLAS, and float where oneDNN is missing. Inside a parallel region
// OpenBLAS (built with OpenMP) computes with the calling thread.
#include "blas/product.hpp"

#if CAPSTAN_OPENBLAS && !CAPSTAN_CUBLAS
#include <cblas.h>

namespace capstan::blas {

namespace {
CBLAS_TRANSPOSE flag(Op op) {
  return op == Op::N ? CblasNoTrans : CblasTrans;
}
}  // namespace

void library::multiply(const Product<double>& p) {
  cblas_dgemm(CblasRowMajor, flag(p.op_a), flag(p.op_b), p.m, p.n, p.k, p.alpha, p.a,
              p.lda, p.b, p.ldb, p.beta, p.c, p.ldc);
}

const char* backend_double() {
  return openblas_get_config();
}

#if !CAPSTAN_DNNL
void library::multiply(const Product<float>& p) {
  cblas_sgemm(CblasRowMajor, flag(p.op_a), flag(p.op_b), p.m, p.n, p.k, p.alpha, p.a,
              p.lda, p.b, p.ldb, p.beta, p.c, p.ldc);
}

const char* backend_float() {
  return openblas_get_config();
}
#endif

}  // namespace capstan::blas
#endif
