#pragma once
/// \file Matrices of the BLAS tests: values that repeat, scaled bounds, threads.
#include <cmath>
#include <cstdint>
#include <vector>

#if defined(_OPENMP)
#include <omp.h>
#endif

#include "base/types.hpp"
#include "blas/gemm.hpp"

namespace capstan::test {

using capstan::index_t;

/// An operand where products read it: on the device.
template <class S>
class OnDevice {
 public:
  explicit OnDevice(const std::vector<S>& v) : view_("operand", v.size()) {
    copy_to_device(v.data(), view_.data(), static_cast<index_t>(v.size()));
  }
  S* data() const { return view_.data(); }
  std::vector<S> back() const { return to_host(view_); }

 private:
  View1<S> view_;
};

/// n values in (-1, 1) from a linear congruential generator.
template <class S>
std::vector<S> uniform(index_t n, std::uint64_t seed) {
  std::vector<S> v(static_cast<std::size_t>(n));
  std::uint64_t state = seed * 2654435761u + 1;
  for (S& x : v) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    x = S(double(state >> 40) / double(1 << 23) - 1.0);
  }
  return v;
}

/// Types of the operands and the result of a product.
template <class Operand, class Result = Operand>
struct Types {
  using S = Operand;
  using C = Result;
};

template <class T>
std::vector<double> widened(const std::vector<T>& v) {
  return std::vector<double>(v.begin(), v.end());
}

/// Relative rounding unit of S: that of its sums for operands, its own for results.
template <class S>
constexpr double kUnit = sizeof(S) == 8 ? 1.2e-16 : 6e-8;
template <class S>
constexpr double kRounding = sizeof(S) == 2 ? 0x1p-8 : kUnit<S>;

/// The largest |a - b|; infinity when an element of a is not finite.
template <class S, class T>
double distance(const std::vector<S>& a, const std::vector<T>& b) {
  if (a.size() != b.size()) return INFINITY;
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!std::isfinite(a[i])) return INFINITY;
    worst = std::fmax(worst, std::fabs(double(a[i]) - double(b[i])));
  }
  return worst;
}

/// The bound on the error of a sum of k products of values in (-1, 1), stored as C: the
/// sum's, and one rounding of the largest of the exact `results`.
template <class S, class C = S>
double bound(index_t k, const std::vector<double>& results = {}) {
  double largest = 0;
  for (const double x : results) largest = std::fmax(largest, std::fabs(x));
  return 4 * kUnit<S> * (double(k) + 4) + kRounding<C> * largest;
}

/// Sets the number of threads of products while it lives.
class Threads {
 public:
#if defined(_OPENMP)
  explicit Threads(int n) : before_(omp_get_max_threads()) {
    omp_set_num_threads(n);
  }
  ~Threads() {
    omp_set_num_threads(before_);
  }

 private:
  int before_;
#else
  explicit Threads(int) {}
#endif
};

}  // namespace capstan::test
