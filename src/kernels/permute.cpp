#include "base/parallel.hpp"
#include "kernels/routing.hpp"

namespace capstan {

namespace {

/// Columns that are summed at a time: on a host a few cache lines, so that reads of all K
/// rows are under way together.
constexpr index_t kPiece = kOnHost ? 64 : 1 << 20;

/// out[t] = sum over k of factor(t * K + k) * y[slot[t*K + k]], in the order of k.
template <class S, class F>
void sum_choices(const char* label, View2<const S> y, View1<const std::int32_t> slot,
                 index_t k, View2<S> out, const F& factor) {
  using A = Acc<S>;
  const index_t z = index_t(out.extent(1)), piece = z < kPiece ? z : kPiece;
  par_rows(
      label, index_t(out.extent(0)), static_cast<int>(piece * index_t(sizeof(A))),
      KOKKOS_LAMBDA(const Team& team, index_t t) {
        A* sum = reinterpret_cast<A*>(team.scratch());
        for (index_t z0 = 0; z0 < z; z0 += piece) {
          const index_t width = z - z0 < piece ? z - z0 : piece;
          team.each(width, [&](index_t i) { sum[i] = A(0); });
          for (index_t c = t * k; c < (t + 1) * k; ++c) {
            if (slot(c) < 0) continue;
            const S* from = &y(slot(c), z0);
            const A w = factor(c);
            team.each(width, [&](index_t i) { sum[i] += w * static_cast<A>(from[i]); });
          }
          S* to = &out(t, z0);
          team.each(width, [&](index_t i) { to[i] = static_cast<S>(sum[i]); });
        }
      });
}

/// The factor of gather_rows_backward.
template <class A>
struct One {
  KOKKOS_FUNCTION A operator()(index_t) const { return A(1); }
};
/// The factor of combine.
template <class A>
struct Weight {
  const A* weights;
  KOKKOS_FUNCTION A operator()(index_t c) const { return weights[c]; }
};

}  // namespace

template <class S>
void gather_rows(View2<const S> x, View1<const std::int32_t> order, index_t k,
                 View2<S> y) {
  const index_t z = index_t(y.extent(1));
  const std::int32_t choices = static_cast<std::int32_t>(k);
  par_rows(
      "gather_rows", index_t(y.extent(0)), 0, KOKKOS_LAMBDA(const Team& team, index_t r) {
        const std::int32_t c = order(r);
        if (c < 0) return;
        const S* from = &x(c / choices, 0);
        S* to = &y(r, 0);
        team.each(z, [&](index_t i) { to[i] = from[i]; });
      });
}

template <class S>
void gather_rows_backward(View2<const S> dy, View1<const std::int32_t> slot, index_t k,
                          View2<S> dx) {
  sum_choices<S>("gather_rows_backward", dy, slot, k, dx, One<Acc<S>>{});
}

template <class S>
void combine(View2<const S> y, View1<const std::int32_t> slot,
             View2<const Acc<S>> weights, View2<S> out) {
  sum_choices<S>("combine", y, slot, index_t(weights.extent(1)), out,
                 Weight<Acc<S>>{weights.data()});
}

template <class S>
void combine_backward(View2<const S> y, View1<const std::int32_t> order,
                      View1<const std::int32_t> slot, View2<const Acc<S>> weights,
                      View2<const S> d_out, View2<S> dy, View2<Acc<S>> d_weights) {
  using A = Acc<S>;
  const index_t z = index_t(dy.extent(1));
  const std::int32_t choices = static_cast<std::int32_t>(weights.extent(1));
  const A* weight = weights.data();
  A* d_weight = d_weights.data();
  par_for(
      "combine_backward_left_out", index_t(d_weights.size()), KOKKOS_LAMBDA(index_t c) {
        if (slot(c) < 0) d_weight[c] = A(0);
      });
  par_rows(
      "combine_backward", index_t(dy.extent(0)), 0,
      KOKKOS_LAMBDA(const Team& team, index_t r) {
        const std::int32_t c = order(r);
        if (c < 0) return;
        const S* gradient = &d_out(c / choices, 0);
        const S* value = &y(r, 0);
        S* to = &dy(r, 0);
        const A w = weight[c];
        const A sum = team.sum(z, [&](index_t i) {
          return static_cast<A>(gradient[i]) * static_cast<A>(value[i]);
        });
        team.once([&] { d_weight[c] = sum; });
        team.each(z, [&](index_t i) {
          to[i] = static_cast<S>(w * static_cast<A>(gradient[i]));
        });
      });
}

template <class S>
void permute_rows(View2<const S> x, View1<const std::int32_t> index, View2<S> y) {
  const index_t z = index_t(y.extent(1));
  par_rows(
      "permute_rows", index_t(y.extent(0)), 0,
      KOKKOS_LAMBDA(const Team& team, index_t r) {
        const std::int32_t at = index(r);
        S* to = &y(r, 0);
        if (at < 0) {
          team.each(z, [&](index_t i) { to[i] = S(0); });
          return;
        }
        const S* from = &x(at, 0);
        team.each(z, [&](index_t i) { to[i] = from[i]; });
      });
}

#define CAPSTAN_PERMUTE(S)                                                          \
  template void gather_rows<S>(View2<const S>, View1<const std::int32_t>, index_t,  \
                               View2<S>);                                           \
  template void gather_rows_backward<S>(View2<const S>, View1<const std::int32_t>,  \
                                        index_t, View2<S>);                         \
  template void combine<S>(View2<const S>, View1<const std::int32_t>,               \
                           View2<const Acc<S>>, View2<S>);                          \
  template void combine_backward<S>(View2<const S>, View1<const std::int32_t>,      \
                                    View1<const std::int32_t>, View2<const Acc<S>>, \
                                    View2<const S>, View2<S>, View2<Acc<S>>);       \
  template void permute_rows<S>(View2<const S>, View1<const std::int32_t>, View2<S>);
CAPSTAN_INSTANTIATE(CAPSTAN_PERMUTE)

}  // namespace capstan
