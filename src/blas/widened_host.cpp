// bf16 by the product of float, where no library multiplies bf16 on this processor.
#include <vector>

#include "blas/product.hpp"

#if !CAPSTAN_CUBLAS
namespace capstan::blas {

namespace {
/// The rows [rows, cols] of a matrix as stored, widened and without gaps.
void widen(const bf16* from, index_t rows, index_t cols, index_t stride,
           std::vector<float>& to) {
  to.resize(rows * cols);
  for (index_t i = 0; i < rows; ++i)
    for (index_t j = 0; j < cols; ++j) to[i * cols + j] = from[i * stride + j];
}
}  // namespace

void library::multiply_widened(const Product<bf16, float>& p) {
  thread_local std::vector<float> a, b;
  const index_t a_cols = p.op_a == Op::N ? p.k : p.m;
  const index_t b_cols = p.op_b == Op::N ? p.n : p.k;
  widen(p.a, p.op_a == Op::N ? p.m : p.k, a_cols, p.lda, a);
  widen(p.b, p.op_b == Op::N ? p.k : p.n, b_cols, p.ldb, b);
  multiply(Product<float>{p.op_a, p.op_b, p.m, p.n, p.k, p.alpha, a.data(), a_cols,
                          b.data(), b_cols, p.beta, p.c, p.ldc});
}

#if !CAPSTAN_DNNL_BF16
void library::multiply(const Product<bf16, float>& p) {
  multiply_widened(p);
}
const char* backend_bf16() {
  return backend_float();
}
#endif

}  // namespace capstan::blas
#endif
