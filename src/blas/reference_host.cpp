// The plain loops: the oracle of the tests, and the last resort of a build without a
// BLAS.
#include "blas/gemm.hpp"

namespace capstan::blas::reference {

template <class S, class C>
void gemm(Op op_a, Op op_b, index_t m, index_t n, index_t k, Acc<S> alpha, const S* a,
          index_t lda, const S* b, index_t ldb, Acc<S> beta, C* c, index_t ldc) {
  for (index_t i = 0; i < m; ++i)
    for (index_t j = 0; j < n; ++j) {
      double sum = 0;
      for (index_t p = 0; p < k; ++p) {
        const S x = op_a == Op::N ? a[i * lda + p] : a[p * lda + i];
        const S y = op_b == Op::N ? b[p * ldb + j] : b[j * ldb + p];
        sum += double(x) * double(y);
      }
      C& out = c[i * ldc + j];
      const double before = beta == 0 ? 0.0 : double(beta) * double(out);
      out = C(double(alpha) * sum + before);
    }
}

#define CAPSTAN_MAKE(S, C)                                                               \
  template void gemm<S, C>(Op, Op, index_t, index_t, index_t, Acc<S>, const S*, index_t, \
                           const S*, index_t, Acc<S>, C*, index_t);
CAPSTAN_MAKE(double, double)
CAPSTAN_MAKE(float, float)
CAPSTAN_MAKE(bf16, bf16)
CAPSTAN_MAKE(bf16, float)
#undef CAPSTAN_MAKE

}  // namespace capstan::blas::reference
