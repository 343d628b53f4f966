#include "kernels/hyperball.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/matrix_sums.hpp"

namespace capstan {

namespace {
constexpr index_t kTerms = 3;
}

index_t hyperball_partials(index_t count, index_t size) {
  return count * sum_blocks(size) * kTerms;
}

template <class T>
void hyperball_sums(index_t count, index_t size, View1<const T> p, View1<const T> u,
                    View1<double> partial, View1<double> sums) {
  par_blocks(
      "hyperball_sums", count, size,
      KOKKOS_LAMBDA(const Team& team, index_t row, index_t, index_t first, index_t n) {
        const T *a = p.data() + first, *b = u.data() + first;
        const double uu =
            team.sum(n, [&](index_t i) { return double(b[i]) * double(b[i]); });
        const double pu =
            team.sum(n, [&](index_t i) { return double(a[i]) * double(b[i]); });
        const double pp =
            team.sum(n, [&](index_t i) { return double(a[i]) * double(a[i]); });
        team.once([&] {
          partial(row * kTerms) = uu;
          partial(row * kTerms + 1) = pu;
          partial(row * kTerms + 2) = pp;
        });
      });
  add_blocks("hyperball_sums", count, size, kTerms, partial, sums);
}

HyperballFactors hyperball_factors(double lr, double radius, const double* sums) {
  const double uu = sums[0], pu = sums[1], pp = sums[2];
  if (uu == 0) return {};
  const double c = lr * radius / std::max(std::sqrt(uu), kLeastNorm);
  const double moved = std::max(pp - 2 * c * pu + c * c * uu, 0.0);
  HyperballFactors f;
  f.keep = radius / std::max(std::sqrt(moved), kLeastNorm);
  f.move = f.keep * c;
  return f;
}

double change_squares(double keep, double move, const double* sums) {
  const double uu = sums[0], pu = sums[1], pp = sums[2], k = keep - 1;
  return std::max(k * k * pp - 2 * k * move * pu + move * move * uu, 0.0);
}

template <class S>
void keep_and_move(index_t count, index_t size, View1<const double> factors,
                   View1<const Acc<S>> u, View1<Acc<S>> p, View1<S> weights) {
  using T = Acc<S>;
  const bool copies = weights.extent(0) > 0;
  par_blocks(
      "keep_and_move", count, size,
      KOKKOS_LAMBDA(const Team& team, index_t, index_t matrix, index_t first, index_t n) {
        const double keep = factors(2 * matrix), move = factors(2 * matrix + 1);
        if (keep == 1.0 && move == 0.0) return;
        T* master = p.data() + first;
        const T* direction = u.data() + first;
        team.each(n, [&](index_t i) {
          master[i] = T(keep * double(master[i]) - move * double(direction[i]));
        });
        if (!copies) return;
        S* rounded = weights.data() + first;
        team.barrier();
        team.each(n, [&](index_t i) { rounded[i] = S(master[i]); });
      });
}

#define CAPSTAN_HYPERBALL_SUMS(S)                                                   \
  template void hyperball_sums<S>(index_t, index_t, View1<const S>, View1<const S>, \
                                  View1<double>, View1<double>);
CAPSTAN_INSTANTIATE_ACC(CAPSTAN_HYPERBALL_SUMS)
#define CAPSTAN_KEEP_AND_MOVE(S)                                        \
  template void keep_and_move<S>(index_t, index_t, View1<const double>, \
                                 View1<const Acc<S>>, View1<Acc<S>>, View1<S>);
CAPSTAN_INSTANTIATE(CAPSTAN_KEEP_AND_MOVE)

}  // namespace capstan
