#include "kernels/directions.hpp"

#include <cmath>

#include "kernels/elements.hpp"

namespace capstan {

template <class T>
void nesterov_direction(double beta, double scale, View1<const T> gradient, View1<T> m,
                        View1<T> u) {
  const T b = T(beta), s = T(scale);
  par_elements(
      "nesterov_direction", m.extent(0), KOKKOS_LAMBDA(index_t i) {
        const T g = s * gradient(i);
        const T momentum = b * m(i) + g;
        m(i) = momentum;
        u(i) = b * momentum + g;
      });
}

template <class T>
void adam_direction(const AdamStep& step, View1<const T> gradient, View1<T> m, View1<T> v,
                    View1<T> u) {
  const T scale = T(step.grad_scale), eps = T(step.eps);
  const T b1 = T(step.beta1), rest1 = T(1 - step.beta1);
  const T b2 = T(step.beta2), rest2 = T(1 - step.beta2);
  const T correct1 = T(1 / (1 - std::pow(step.beta1, double(step.count))));
  const T correct2 = T(1 / (1 - std::pow(step.beta2, double(step.count))));
  par_elements(
      "adam_direction", m.extent(0), KOKKOS_LAMBDA(index_t i) {
        using std::sqrt;
        const T g = scale * gradient(i);
        m(i) = b1 * m(i) + rest1 * g;
        v(i) = b2 * v(i) + rest2 * g * g;
        u(i) = correct1 * m(i) / (sqrt(correct2 * v(i)) + eps);
      });
}

#define CAPSTAN_DIRECTIONS(T)                                                          \
  template void nesterov_direction<T>(double, double, View1<const T>, View1<T>,        \
                                      View1<T>);                                       \
  template void adam_direction<T>(const AdamStep&, View1<const T>, View1<T>, View1<T>, \
                                  View1<T>);
CAPSTAN_INSTANTIATE_ACC(CAPSTAN_DIRECTIONS)

}  // namespace capstan
