#pragma once
/// \file Newton-Schulz in plain loops in double, written from the published text:
/// normalise, transpose where rows > cols, five steps, transpose back.
#include "unit/check.hpp"

namespace capstan::test {

struct Matrix {
  index_t rows = 0, cols = 0;
  Values v;
  double& at(index_t i, index_t j) { return v[i * cols + j]; }
  double at(index_t i, index_t j) const { return v[i * cols + j]; }
};

inline Matrix transposed(const Matrix& m) {
  Matrix t{m.cols, m.rows, Values(m.v.size())};
  for (index_t i = 0; i < m.rows; ++i)
    for (index_t j = 0; j < m.cols; ++j) t.at(j, i) = m.at(i, j);
  return t;
}

inline Matrix product(const Matrix& a, const Matrix& b) {
  Matrix c{a.rows, b.cols, Values(a.rows * b.cols, 0.0)};
  for (index_t i = 0; i < a.rows; ++i)
    for (index_t k = 0; k < a.cols; ++k)
      for (index_t j = 0; j < b.cols; ++j) c.at(i, j) += a.at(i, k) * b.at(k, j);
  return c;
}

/// The published coefficients, written down again.
inline constexpr double kPublished[5][3] = {{4.0848, -6.8946, 2.9270},
                                            {3.9505, -6.3029, 2.6377},
                                            {3.7418, -5.5913, 2.3037},
                                            {2.8769, -3.1427, 1.2046},
                                            {2.8366, -3.0525, 1.2012}};

inline Matrix newton_schulz_reference(Matrix x) {
  const bool tall = x.rows > x.cols;
  if (tall) x = transposed(x);
  const double norm = std::sqrt(dot(x.v, x.v)) + 1e-8;
  for (double& e : x.v) e /= norm;
  for (const auto& abc : kPublished) {
    const Matrix a = product(x, transposed(x)), aa = product(a, a);
    const Matrix ax = product(a, x), aax = product(aa, x);
    for (std::size_t i = 0; i < x.v.size(); ++i)
      x.v[i] = abc[0] * x.v[i] + abc[1] * ax.v[i] + abc[2] * aax.v[i];
  }
  return tall ? transposed(x) : x;
}

}  // namespace capstan::test
