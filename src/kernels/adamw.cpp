#include "kernels/adamw.hpp"

#include <cmath>

#include "kernels/elements.hpp"

namespace capstan {

namespace {
/// The constants of one step in the type of the update.
template <class T>
struct Factors {
  T scale, beta1, rest1, beta2, rest2, correct1, correct2, lr, eps, decay;

  explicit Factors(const AdamStep& s)
      : scale(T(s.grad_scale)),
        beta1(T(s.beta1)),
        rest1(T(1 - s.beta1)),
        beta2(T(s.beta2)),
        rest2(T(1 - s.beta2)),
        correct1(T(1 / (1 - std::pow(s.beta1, double(s.count))))),
        correct2(T(1 / (1 - std::pow(s.beta2, double(s.count))))),
        lr(T(s.lr)),
        eps(T(s.eps)),
        decay(T(s.weight_decay)) {}

  /// Updates one element.
  KOKKOS_INLINE_FUNCTION void update(T gradient, T& master, T& m, T& v) const {
    const T g = scale * gradient;
    m = beta1 * m + rest1 * g;
    v = beta2 * v + rest2 * g * g;
    using std::sqrt;
    const T direction = correct1 * m / (sqrt(correct2 * v) + eps);
    master -= lr * (direction + decay * master);
  }
};
}  // namespace

template <class S>
void adamw(const AdamStep& step, View1<const Acc<S>> gradient, View1<Acc<S>> master,
           View1<Acc<S>> m, View1<Acc<S>> v, View1<S> weights) {
  using T = Acc<S>;
  const Factors<T> factors(step);
  const index_t n = master.extent(0);
  if (weights.extent(0) == 0) {
    par_elements(
        "adamw", n,
        KOKKOS_LAMBDA(index_t i) { factors.update(gradient(i), master(i), m(i), v(i)); });
    return;
  }
  par_elements(
      "adamw", n, KOKKOS_LAMBDA(index_t i) {
        factors.update(gradient(i), master(i), m(i), v(i));
        weights(i) = S(master(i));
      });
}

#define CAPSTAN_ADAMW(S)                                                      \
  template void adamw<S>(const AdamStep&, View1<const Acc<S>>, View1<Acc<S>>, \
                         View1<Acc<S>>, View1<Acc<S>>, View1<S>);
CAPSTAN_INSTANTIATE(CAPSTAN_ADAMW)

}  // namespace capstan
