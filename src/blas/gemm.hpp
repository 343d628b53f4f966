#pragma once
/// \file Matrix products on row-major matrices: cuBLAS on GPUs, oneDNN (float, bf16) and
/// OpenBLAS (double) on hosts, and the plain reference that every build has (the oracle
/// of the tests). S is the type of the operands, C of the result: double, float, or bf16
/// with a result in bf16 or float; bf16 accumulates in float, and so do alpha and beta.
#include <cstdint>

#include "base/bf16.hpp"

namespace capstan::blas {

using index_t = std::int64_t;

/// Whether an operand is used as stored (N) or transposed (T).
enum class Op { N, T };

/// C [m, n] = alpha * op(A) [m, k] * op(B) [k, n] + beta * C, row-major, leading
/// dimension = the number of elements between two rows as stored. beta == 0 never reads
/// C. Pointers are device pointers on a GPU build; the call is asynchronous there.
/// Bit-exact for the same shapes and number of threads. A result in bf16 is rounded once,
/// after beta * C was added. m, n or k of 0 are valid (k = 0 scales C).
template <class S, class C = S>
void gemm(Op op_a, Op op_b, index_t m, index_t n, index_t k, Acc<S> alpha, const S* a,
          index_t lda, const S* b, index_t ldb, Acc<S> beta, C* c, index_t ldc);

/// For every group g with rows [offsets[g], offsets[g+1]) of X (host array, groups + 1
/// entries):
///   Y[rows] = alpha * X[rows] * op(W[g]) + beta * Y[rows]
/// X [rows, in], W [groups, in, out] (N) or [groups, out, in] (T), Y [rows, out]. Groups
/// may be empty. On hosts the groups are spread over the threads, one thread per group.
template <class S, class C = S>
void grouped_gemm(Op op_w, index_t groups, const index_t* offsets, index_t in,
                  index_t out, Acc<S> alpha, const S* x, const S* w, Acc<S> beta, C* y);

/// dW[g] [in, out] = alpha * X[rows]^T [in, rows] * dY[rows] [rows, out] + beta * dW[g].
/// An empty group scales dW[g] by beta.
template <class S, class C = S>
void grouped_gemm_weights(index_t groups, const index_t* offsets, index_t in, index_t out,
                          Acc<S> alpha, const S* x, const S* dy, Acc<S> beta, C* dw);

/// Floating-point operations issued through this file by the calling process since the
/// last reset, 2 m n k each.
double flops_issued();
void reset_flops_issued();

/// Name and version of the library behind gemm of each type, for `capstan -c`.
const char* backend_bf16();
const char* backend_float();
const char* backend_double();

/// The plain loops, host pointers, accumulating in double.
namespace reference {
template <class S, class C = S>
void gemm(Op op_a, Op op_b, index_t m, index_t n, index_t k, Acc<S> alpha, const S* a,
          index_t lda, const S* b, index_t ldb, Acc<S> beta, C* c, index_t ldc);
}  // namespace reference

}  // namespace capstan::blas
