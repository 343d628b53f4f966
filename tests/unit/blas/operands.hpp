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

/// Relative rounding unit of S.
template <class S>
constexpr double kUnit = sizeof(S) == 4 ? 6e-8 : 1.2e-16;

/// The largest |a - b|; infinity when an element of a is not finite.
template <class S>
double distance(const std::vector<S>& a, const std::vector<S>& b) {
  if (a.size() != b.size()) return INFINITY;
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!std::isfinite(a[i])) return INFINITY;
    worst = std::fmax(worst, std::fabs(double(a[i]) - double(b[i])));
  }
  return worst;
}

/// The bound on the error of a sum of k products of values in (-1, 1).
template <class S>
double bound(index_t k) {
  return 4 * kUnit<S> * (double(k) + 4);
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
