#include "kernels/swiglu.hpp"

#include "base/math.hpp"
#include "kernels/elements.hpp"

namespace capstan {

namespace {
/// Consecutive elements that one worker sums: a vector's worth of work on a host, single
/// elements (neighbours to neighbours) on a GPU.
constexpr index_t kRun = kOnHost ? 2048 : 1;

/// Sum of term(x(i)) in T, in an order that depends on n and the number of threads only.
template <class T, class S, class F>
T sum_terms(const char* label, View1<const S> x, const F& term) {
  const index_t n = x.extent(0);
  return par_sum<T>(
      label, (n + kRun - 1) / kRun, KOKKOS_LAMBDA(index_t run, T & sum) {
        const S* from = x.data() + run * kRun;  // a View here would be read by gathers
        const index_t count = n - run * kRun < kRun ? n - run * kRun : kRun;
        T part = 0;
#pragma omp simd reduction(+ : part)
        for (index_t i = 0; i < count; ++i) part += term(from[i]);
        sum += part;
      });
}

struct Square {
  template <class S>
  KOKKOS_INLINE_FUNCTION double operator()(S x) const {
    return double(x) * double(x);
  }
};
struct NotFinite {
  template <class S>
  KOKKOS_INLINE_FUNCTION index_t operator()(S x) const {
    return x - x == S(0) ? 0 : 1;
  }
};
}  // namespace

template <class S>
void swiglu(View1<const S> gate, View1<const S> up, View1<S> y) {
  par_elements(
      "swiglu", y.extent(0),
      KOKKOS_LAMBDA(index_t i) { y(i) = S(silu(Acc<S>(gate(i))) * Acc<S>(up(i))); });
}

template <class S>
void swiglu_backward(View1<const S> gate, View1<const S> up, View1<const S> dy,
                     View1<S> d_gate, View1<S> d_up, View1<S> y) {
  using T = Acc<S>;
  const index_t n = gate.extent(0);
  if (y.extent(0) == 0) {
    par_elements(
        "swiglu_backward", n, KOKKOS_LAMBDA(index_t i) {
          const T g = gate(i), u = up(i), d = dy(i), s = sigmoid(g);
          d_gate(i) = S(d * u * s * (T(1) + g * (T(1) - s)));
          d_up(i) = S(d * g * s);
        });
    return;
  }
  par_elements(
      "swiglu_backward", n, KOKKOS_LAMBDA(index_t i) {
        const T g = gate(i), u = up(i), d = dy(i), s = sigmoid(g);
        d_gate(i) = S(d * u * s * (T(1) + g * (T(1) - s)));
        d_up(i) = S(d * g * s);
        y(i) = S(g * s * u);
      });
}

template <class S>
void add(View1<const S> a, View1<const S> b, View1<S> y) {
  par_elements(
      "add", y.extent(0), KOKKOS_LAMBDA(index_t i) { y(i) = a(i) + b(i); });
}

template <class S>
void add_to(View1<const S> x, View1<S> y) {
  par_elements(
      "add_to", y.extent(0), KOKKOS_LAMBDA(index_t i) { y(i) = y(i) + x(i); });
}

template <class S>
void round_to(View1<const Acc<S>> x, View1<S> y) {
  const Acc<S>* from = x.data();
  S* to = y.data();
  par_elements(
      "round_to", y.extent(0), KOKKOS_LAMBDA(index_t i) { to[i] = S(from[i]); });
}

template <class S>
double sum_squares(View1<const S> x) {
  return sum_terms<double>("sum_squares", x, Square{});
}

template <class S>
index_t count_non_finite(View1<const S> x) {
  return sum_terms<index_t>("count_non_finite", x, NotFinite{});
}

#define CAPSTAN_SWIGLU(S)                                                          \
  template void swiglu<S>(View1<const S>, View1<const S>, View1<S>);               \
  template void swiglu_backward<S>(View1<const S>, View1<const S>, View1<const S>, \
                                   View1<S>, View1<S>, View1<S>);                  \
  template void add<S>(View1<const S>, View1<const S>, View1<S>);                  \
  template void add_to<S>(View1<const S>, View1<S>);                               \
  template void round_to<S>(View1<const Acc<S>>, View1<S>);
CAPSTAN_INSTANTIATE(CAPSTAN_SWIGLU)
#define CAPSTAN_SUMS(S)                           \
  template double sum_squares<S>(View1<const S>); \
  template index_t count_non_finite<S>(View1<const S>);
CAPSTAN_INSTANTIATE_ACC(CAPSTAN_SUMS)

}  // namespace capstan
