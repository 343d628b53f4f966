#include "kernels/adamw.hpp"

#include <cmath>

#include "base/parallel.hpp"

namespace capstan {

namespace {
/// Elements of a block.
constexpr index_t kBlock = 2048;

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

  /// Updates one element; returns what it lost.
  KOKKOS_INLINE_FUNCTION T update(T gradient, T& master, T& m, T& v) const {
    const T g = scale * gradient;
    m = beta1 * m + rest1 * g;
    v = beta2 * v + rest2 * g * g;
    using std::sqrt;
    const T direction = correct1 * m / (sqrt(correct2 * v) + eps);
    const T change = lr * (direction + decay * master);
    master -= change;
    return change;
  }
};

/// copy(i) rounds element i into the weights, once it is updated.
template <class T, class Copy>
void update_all(const Factors<T>& factors, View1<const T> gradient, View1<T> master,
                View1<T> m, View1<T> v, View1<double> squares, const Copy& copy) {
  const index_t n = master.extent(0);
  const bool wanted = squares.extent(0) > 0;
  par_rows(
      "adamw", update_blocks(n), 0, KOKKOS_LAMBDA(const Team& team, index_t block) {
        const index_t first = block * kBlock;
        const index_t count = n - first < kBlock ? n - first : kBlock;
        const T sum = team.sum(count, [&](index_t k) {
          const index_t i = first + k;
          const T change = factors.update(gradient(i), master(i), m(i), v(i));
          copy(i);
          return change * change;
        });
        team.once([&] {
          if (wanted) squares(block) = double(sum);
        });
      });
}
}  // namespace

index_t update_blocks(index_t n) {
  return (n + kBlock - 1) / kBlock;
}

void block_sums(View1<const double> x, View1<double> sums) {
  const index_t n = x.extent(0);
  par_rows(
      "block_sums", update_blocks(n), 0, KOKKOS_LAMBDA(const Team& team, index_t block) {
        const index_t first = block * kBlock;
        const index_t count = n - first < kBlock ? n - first : kBlock;
        const double sum = team.sum(count, [&](index_t i) { return x(first + i); });
        team.once([&] { sums(block) = sum; });
      });
}

template <class S>
void adamw(const AdamStep& step, View1<const Acc<S>> gradient, View1<Acc<S>> master,
           View1<Acc<S>> m, View1<Acc<S>> v, View1<S> weights, View1<double> squares) {
  const Factors<Acc<S>> factors(step);
  if (weights.extent(0) == 0) {
    update_all(factors, gradient, master, m, v, squares, KOKKOS_LAMBDA(index_t){});
  } else {
    update_all(
        factors, gradient, master, m, v, squares,
        KOKKOS_LAMBDA(index_t i) { weights(i) = S(master(i)); });
  }
}

#define CAPSTAN_ADAMW(S)                                                      \
  template void adamw<S>(const AdamStep&, View1<const Acc<S>>, View1<Acc<S>>, \
                         View1<Acc<S>>, View1<Acc<S>>, View1<S>, View1<double>);
CAPSTAN_INSTANTIATE(CAPSTAN_ADAMW)

}  // namespace capstan
