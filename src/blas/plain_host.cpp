// The plain loops where no library serves a scalar type.
#include "blas/product.hpp"

#if !CAPSTAN_OPENBLAS && !CAPSTAN_CUBLAS
namespace capstan::blas {

namespace {
template <class S>
void plain(const Product<S>& p) {
  reference::gemm<S>(p.op_a, p.op_b, p.m, p.n, p.k, p.alpha, p.a, p.lda, p.b, p.ldb,
                     p.beta, p.c, p.ldc);
}
}  // namespace

void library::multiply(const Product<double>& p) {
  plain(p);
}
const char* backend_double() {
  return "plain loops";
}

#if !CAPSTAN_DNNL
void library::multiply(const Product<float>& p) {
  plain(p);
}
const char* backend_float() {
  return "plain loops";
}
#endif

}  // namespace capstan::blas
#endif
