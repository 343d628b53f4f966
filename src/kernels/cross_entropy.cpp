#include "kernels/cross_entropy.hpp"

#include "base/math.hpp"
#include "base/parallel.hpp"

namespace capstan {

template <class S>
void cross_entropy(View2<Acc<S>> logits, View1<const std::int32_t> targets, Acc<S> scale,
                   Acc<S> z_coefficient, View2<S> d_logits, View1<Acc<S>> rows_ce,
                   View1<Acc<S>> rows_z) {
  // Passes over a row: maximum; exponentials and their sum; gradient. When a gradient is
  // wanted the exponentials stay in the logits' memory, so that each is computed once.
  using A = Acc<S>;
  const index_t width = logits.extent(1);
  const bool gradient = d_logits.extent(0) > 0;
  par_rows(
      "cross_entropy", logits.extent(0), 0, KOKKOS_LAMBDA(const Team& team, index_t row) {
        A* x = logits.data() + row * width;
        S* d = d_logits.data() + row * width;
        const index_t target = targets(row);
        if (target < 0) {
          team.once([&] { rows_ce(row) = rows_z(row) = A(0); });
          if (gradient) team.each(width, [&](index_t i) { d[i] = S(0); });
          return;
        }
        const A at_target = x[target];
        const A most = team.max(width, x[0], [&](index_t i) { return x[i]; });
        const A sum =
            gradient ? team.sum(width,
                                [&](index_t i) {
                                  const A e = fexp(x[i] - most);
                                  x[i] = e;
                                  return e;
                                })
                     : team.sum(width, [&](index_t i) { return A(fexp(x[i] - most)); });
        const A lse = most + flog(sum);
        team.once([&] {
          rows_ce(row) = lse - at_target;
          rows_z(row) = lse * lse;
        });
        if (gradient) {
          const A factor = scale * (A(1) + A(2) * z_coefficient * lse) / sum;
          // the target's before the others: d may be x
          const A of_target = x[target] * factor - scale;
          team.barrier();
          team.each(width, [&](index_t i) { d[i] = S(x[i] * factor); });
          team.barrier();
          team.once([&] { d[target] = S(of_target); });
        }
      });
}

#define CAPSTAN_CROSS_ENTROPY(S)                                                   \
  template void cross_entropy<S>(View2<Acc<S>>, View1<const std::int32_t>, Acc<S>, \
                                 Acc<S>, View2<S>, View1<Acc<S>>, View1<Acc<S>>);
CAPSTAN_INSTANTIATE(CAPSTAN_CROSS_ENTROPY)

}  // namespace capstan
