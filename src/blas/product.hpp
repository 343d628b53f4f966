#pragma once
/// \file One matrix product as a value, so that it can be cut into tiles, and the seam
/// between the code that spreads products over threads (gemm_host.cpp) and the library
/// that computes one.
#include "blas/gemm.hpp"

namespace capstan::blas {

/// C [m, n] = alpha * op(A) [m, k] * op(B) [k, n] + beta * C, as in gemm.hpp.
template <class S, class C = S>
struct Product {
  Op op_a = Op::N, op_b = Op::N;
  index_t m = 0, n = 0, k = 0;
  Acc<S> alpha = 1;
  const S* a = nullptr;
  index_t lda = 0;
  const S* b = nullptr;
  index_t ldb = 0;
  Acc<S> beta = 0;
  C* c = nullptr;
  index_t ldc = 0;

  /// The part that makes rows [row, row + rows) and columns [col, col + cols) of C.
  Product tile(index_t row, index_t rows, index_t col, index_t cols) const {
    Product t = *this;
    t.m = rows;
    t.n = cols;
    t.a = a + (op_a == Op::N ? row * lda : row);
    t.b = b + (op_b == Op::N ? col : col * ldb);
    t.c = c + row * ldc + col;
    return t;
  }
  bool empty() const { return m <= 0 || n <= 0; }
  /// True when the product adds nothing and only beta * C is left.
  bool only_scales() const { return k <= 0 || alpha == 0; }
  double flops() const { return 2.0 * double(m) * double(n) * double(k); }
};

/// Adds to the counter behind flops_issued().
void count_flops(double flops);

namespace library {
/// The product by the calling thread alone, from inside or outside a parallel region. m,
/// n, k > 0 and alpha != 0. Defined once for each S: onednn_host.cpp, openblas_host.cpp,
/// plain_host.cpp, widened_host.cpp.
void multiply(const Product<bf16, float>& p);
void multiply(const Product<float>& p);
void multiply(const Product<double>& p);
/// bf16 by the product of float, on widened copies of the operands.
void multiply_widened(const Product<bf16, float>& p);
}  // namespace library

}  // namespace capstan::blas
