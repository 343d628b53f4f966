#include "kernels/norm.hpp"

#include "base/math.hpp"
#include "base/parallel.hpp"
#include "kernels/column_sums.hpp"
#include "kernels/elements.hpp"

namespace capstan {

template <class S>
void rms_norm(View2<const S> x, View1<const S> gain, Acc<S> eps, View2<S> y,
              View1<Acc<S>> inv) {
  using A = Acc<S>;
  const index_t width = x.extent(1);
  par_rows(
      "rms_norm", x.extent(0), 0, KOKKOS_LAMBDA(const Team& team, index_t row) {
        const S* xr = x.data() + row * width;
        S* yr = y.data() + row * width;
        const S* w = gain.data();
        const A squares = team.sum(width, [&](index_t i) {
          const A v = xr[i];
          return v * v;
        });
        const A scale = A(1) / fsqrt(squares / A(width) + eps);
        team.once([&] { inv(row) = scale; });
        team.each(width, [&](index_t i) { yr[i] = S(A(xr[i]) * scale * A(w[i])); });
      });
}

namespace {

/// d_gain[j] += sum over rows of dy * x * inv.
template <class S>
void gain_gradient(View2<const S> x, View1<const Acc<S>> inv, View2<const S> dy,
                   View1<Acc<S>> d_gain) {
  using A = Acc<S>;
  const index_t rows = x.extent(0), width = x.extent(1);
  const index_t blocks = (width + kSumColumns - 1) / kSumColumns;
  par_rows(
      "rms_norm_d_gain", blocks, column_sums_bytes<A>(1, kSumColumns),
      KOKKOS_LAMBDA(const Team& team, index_t block) {
        const index_t first = block * kSumColumns;
        const index_t columns = width - first < kSumColumns ? width - first : kSumColumns;
        const S* xb = x.data() + first;
        const S* dyb = dy.data() + first;
        const A* scale = inv.data();
        const A* sums = column_sums<A>(
            team, rows, 1, columns, kSumColumns,
            [&](index_t) { return std::uint64_t(1); },
            [&](index_t r, index_t, index_t c) {
              return A(dyb[r * width + c]) * A(xb[r * width + c]) * scale[r];
            });
        A* out = d_gain.data() + first;
        team.each(columns, [&](index_t c) { out[c] += sums[c]; });
      });
}

}  // namespace

template <class S>
void rms_norm_backward(View2<const S> x, View1<const S> gain, View1<const Acc<S>> inv,
                       View2<const S> dy, bool accumulate, View2<S> dx,
                       View1<Acc<S>> d_gain) {
  // With g = dy * gain: dx = inv * (g - x * inv^2 * mean(g * x)).
  using A = Acc<S>;
  const index_t width = x.extent(1);
  gain_gradient<S>(x, inv, dy, d_gain);  // first: it leaves x and dy in the cache
  par_rows(
      "rms_norm_dx", x.extent(0), 0, KOKKOS_LAMBDA(const Team& team, index_t row) {
        const S* xr = x.data() + row * width;
        const S* dyr = dy.data() + row * width;
        S* dxr = dx.data() + row * width;
        const S* w = gain.data();
        const A scale = inv(row);
        const A along =
            team.sum(width, [&](index_t i) { return A(dyr[i]) * A(w[i]) * A(xr[i]); });
        const A back = scale * scale * along / A(width);
        if (accumulate) {
          team.each(width, [&](index_t i) {
            dxr[i] = S(A(dxr[i]) + scale * (A(dyr[i]) * A(w[i]) - A(xr[i]) * back));
          });
        } else {
          team.each(width, [&](index_t i) {
            dxr[i] = S(scale * (A(dyr[i]) * A(w[i]) - A(xr[i]) * back));
          });
        }
      });
}

template <class S>
void silu_forward(View2<const S> a, View2<S> h) {
  const S* in = a.data();
  S* out = h.data();
  par_elements(
      "silu", a.size(), KOKKOS_LAMBDA(index_t i) { out[i] = S(silu(Acc<S>(in[i]))); });
}

template <class S>
void silu_backward(View2<const S> a, View2<const S> dh, View2<S> da) {
  const S* in = a.data();
  const S* d = dh.data();
  S* out = da.data();
  par_elements(
      "silu_backward", a.size(),
      KOKKOS_LAMBDA(index_t i) { out[i] = S(Acc<S>(d[i]) * silu_grad(Acc<S>(in[i]))); });
}

template <class S>
void gate_forward(View2<const S> y, View2<const S> z, View2<S> out) {
  const S* in = y.data();
  const S* logit = z.data();
  S* to = out.data();
  par_elements(
      "gate", y.size(),
      KOKKOS_LAMBDA(index_t i) { to[i] = S(Acc<S>(in[i]) * sigmoid(Acc<S>(logit[i]))); });
}

template <class S>
void gate_backward(View2<const S> y, View2<const S> z, View2<const S> dout, View2<S> dy,
                   View2<S> dz) {
  using A = Acc<S>;
  const S* in = y.data();
  const S* logit = z.data();
  const S* d = dout.data();
  S* to_y = dy.data();
  S* to_z = dz.data();
  par_elements(
      "gate_backward", y.size(), KOKKOS_LAMBDA(index_t i) {
        const A s = sigmoid(A(logit[i]));
        const A g = A(d[i]) * s;
        const A value = A(in[i]);
        to_y[i] = S(g);
        to_z[i] = S(g * value * (A(1) - s));
      });
}

#define CAPSTAN_NORM(S)                                                          \
  template void rms_norm<S>(View2<const S>, View1<const S>, Acc<S>, View2<S>,    \
                            View1<Acc<S>>);                                      \
  template void rms_norm_backward<S>(View2<const S>, View1<const S>,             \
                                     View1<const Acc<S>>, View2<const S>, bool,  \
                                     View2<S>, View1<Acc<S>>);                   \
  template void silu_forward<S>(View2<const S>, View2<S>);                       \
  template void silu_backward<S>(View2<const S>, View2<const S>, View2<S>);      \
  template void gate_forward<S>(View2<const S>, View2<const S>, View2<S>);       \
  template void gate_backward<S>(View2<const S>, View2<const S>, View2<const S>, \
                                 View2<S>, View2<S>);
CAPSTAN_INSTANTIATE(CAPSTAN_NORM)

}  // namespace capstan
