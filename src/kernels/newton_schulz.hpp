#pragma once
/// \file Newton-Schulz orthogonalisation of a batch of matrices: what Muon does to its
/// momentum (Jordan et al. 2024), with the coefficients of each step as published for
/// the reference run (marin-community/marin#8435).
#include "base/types.hpp"

namespace capstan {

/// Steps, and the coefficients (a, b, c) of X <- a X + b (X X^T) X + c (X X^T)^2 X.
inline constexpr int kNewtonSchulzSteps = 5;
inline constexpr double kNewtonSchulz[kNewtonSchulzSteps][3] = {
    {4.0848, -6.8946, 2.9270},
    {3.9505, -6.3029, 2.6377},
    {3.7418, -5.5913, 2.3037},
    {2.8769, -3.1427, 1.2046},
    {2.8366, -3.0525, 1.2012}};

/// A batch of equally shaped matrices that lie one after the other, row-major.
struct BatchShape {
  index_t count = 1, rows = 0, cols = 0;
  index_t size() const { return rows * cols; }  ///< elements of one matrix
  index_t small() const { return rows < cols ? rows : cols; }
};

/// Elements of `scratch` that newton_schulz needs, and of `sums` (see matrix_sums.hpp).
index_t newton_schulz_scratch(const BatchShape& shape);
index_t newton_schulz_sums(const BatchShape& shape);
/// Operations of its matrix products.
double newton_schulz_flops(const BatchShape& shape);

/// x [count, rows, cols] <- the near-orthogonal factor of each matrix: X / (|X| + 1e-8),
/// then the steps above, on the transpose where rows > cols (so that the Gram matrix has
/// the smaller extent; nothing is transposed in memory). A zero matrix stays zero, and a
/// finite one gives a finite result: norms are sums in double. Contents of scratch and
/// sums are undefined before and after.
template <class T>
void newton_schulz(const BatchShape& shape, View1<T> x, View1<T> scratch,
                   View1<double> sums);
/// The same with products of bf16 operands, summed in float and rounded once each, as the
/// reference run has it. Norms are the same sums in double.
template <class T>
void newton_schulz_bf16(const BatchShape& shape, View1<T> x, View1<T> scratch,
                        View1<double> sums);

}  // namespace capstan
