#pragma once
/// \file Shared helpers of the unit tests: deterministic values, Views from vectors and
/// back, relative errors, finite differences, a kernel run by one thread.
#include <algorithm>
#include <cmath>
#include <functional>
#include <type_traits>
#include <vector>

#include "base/rng.hpp"
#include "base/types.hpp"

namespace capstan::test {

using Values = std::vector<double>;

/// n standard normal values times `scale`; the same for the same seed.
inline Values normal_values(index_t n, std::uint64_t seed, double scale = 1) {
  const Rng rng(seed, 77);
  Values out(static_cast<std::size_t>(n));
  for (index_t i = 0; i < n; ++i)
    out[i] = scale * rng.normal(static_cast<std::uint64_t>(i));
  return out;
}

/// The values as a float holds them, so that float and double kernels see equal input.
inline Values as_float(Values v) {
  for (double& x : v) x = static_cast<double>(static_cast<float>(x));
  return v;
}

template <class S>
View1<S> view1(const Values& v) {
  const index_t n = static_cast<index_t>(v.size());
  std::vector<S> converted(v.begin(), v.end());
  View1<S> out("test", n);
  copy_to_device<S>(converted.data(), out.data(), n);
  return out;
}
template <class S>
View2<S> view2(index_t n0, index_t n1, const Values& v) {
  std::vector<S> converted(v.begin(), v.end());
  View2<S> out("test", n0, n1);
  copy_to_device<S>(converted.data(), out.data(), n0 * n1);
  return out;
}
inline View1<std::int32_t> view_ints(const std::vector<std::int32_t>& v) {
  const index_t n = static_cast<index_t>(v.size());
  View1<std::int32_t> out("test", n);
  copy_to_device<std::int32_t>(v.data(), out.data(), n);
  return out;
}

/// The elements of a View of any rank as doubles.
template <class V>
Values values(const V& v) {
  using T = typename V::non_const_value_type;
  fence();
  std::vector<T> raw(v.size());
  copy_to_host<T>(v.data(), raw.data(), static_cast<index_t>(v.size()));
  return Values(raw.begin(), raw.end());
}

/// max |a - b| over max |b| (over 1 when b is smaller than 1e-30 everywhere); infinity
/// when sizes differ or an element is not finite.
inline double relative_error(const Values& a, const Values& b) {
  if (a.size() != b.size()) return INFINITY;
  double worst = 0, largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!std::isfinite(a[i]) || !std::isfinite(b[i])) return INFINITY;
    worst = std::max(worst, std::fabs(a[i] - b[i]));
    largest = std::max(largest, std::fabs(b[i]));
  }
  return worst / (largest > 1e-30 ? largest : 1.0);
}

/// Gradient of loss(x) by central differences of fourth order, in double.
inline Values finite_difference(const std::function<double(const Values&)>& loss,
                                Values x, double step = 1e-3) {
  Values gradient(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double at = x[i];
    const auto shifted = [&](double by) {
      x[i] = at + by;
      return loss(x);
    };
    const double near = shifted(step) - shifted(-step);
    const double far = shifted(2 * step) - shifted(-2 * step);
    gradient[i] = (8 * near - far) / (12 * step);
    x[i] = at;
  }
  return gradient;
}

/// sum a_i b_i.
inline double dot(const Values& a, const Values& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

/// Runs f so that every kernel in it is executed by one thread: inside a parallel region
/// Kokkos does not fork again. Without OpenMP f simply runs.
template <class F>
void with_one_thread(const F& f) {
#if defined(_OPENMP)
#pragma omp parallel num_threads(2)
#pragma omp master
#endif
  f();
}

}  // namespace capstan::test
