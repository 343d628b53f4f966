#include "base/math.hpp"
#include "base/parallel.hpp"
#include "kernels/heads.hpp"

namespace capstan {

namespace {

constexpr double kXsaEps = 1e-6;  ///< added to v.v

/// H = head width when known to the compiler, else 0.
template <class S, int H>
void xsa_forward(View2<const S> o, View2<const S> v, View2<const S> gate, index_t heads,
                 index_t kv_heads, index_t head_dim, bool xsa, View2<S> y) {
  using A = Acc<S>;
  const index_t v_width = v.extent(1), group = heads / kv_heads;
  const bool gated = gate.extent(0) > 0;
  par_rows(
      "xsa_gate", o.extent(0), 0, KOKKOS_LAMBDA(const Team& team, index_t row) {
        const index_t h = H > 0 ? H : head_dim;
        for (index_t head = 0; head < heads; ++head) {
          const S* in = o.data() + (row * heads + head) * h;
          const S* value = v.data() + row * v_width + head / group * h;
          S* out = y.data() + (row * heads + head) * h;
          const A factor = gated ? A(2) * sigmoid(A(gate(row, head))) : A(1);
          A along = 0;
          if (xsa) {
            const A ov = team.sum(h, [&](index_t i) { return A(in[i]) * A(value[i]); });
            const A vv =
                team.sum(h, [&](index_t i) { return A(value[i]) * A(value[i]); });
            along = ov / (vv + A(kXsaEps));
          }
          if (xsa) {
            team.each(h, [&](index_t i) {
              out[i] = S((A(in[i]) - along * A(value[i])) * factor);
            });
          } else {
            team.each(h, [&](index_t i) { out[i] = S(A(in[i]) * factor); });
          }
        }
      });
}

template <class S, int H>
void xsa_backward(View2<const S> o, View2<const S> v, View2<const S> gate, index_t heads,
                  index_t kv_heads, index_t head_dim, bool xsa, View2<const S> dy,
                  View2<S> d_o, View2<S> dv, View2<S> d_gate) {
  // o' = o - a v with a = o.v / m, m = v.v + eps; y = factor * o'. With b = factor * dy.v
  // / m:
  //   d_o = factor * dy - b v;   dv -= b (o - 2 a v) + a factor dy;   d_factor = dy.o - a
  //   dy.v
  using A = Acc<S>;
  const index_t v_width = v.extent(1), group = heads / kv_heads;
  const bool gated = gate.extent(0) > 0;
  par_rows(
      "xsa_gate_backward", o.extent(0), 0, KOKKOS_LAMBDA(const Team& team, index_t row) {
        const index_t h = H > 0 ? H : head_dim;
        for (index_t head = 0; head < heads; ++head) {
          const index_t at = (row * heads + head) * h,
                        v_at = row * v_width + head / group * h;
          const S* in = o.data() + at;
          const S* value = v.data() + v_at;
          const S* d = dy.data() + at;
          S* to = d_o.data() + at;
          S* to_v = dv.data() + v_at;
          const A s = gated ? sigmoid(A(gate(row, head))) : A(0.5);
          const A factor = A(2) * s;
          A a = 0, b = 0, dyv = 0;
          if (xsa) {
            const A ov = team.sum(h, [&](index_t i) { return A(in[i]) * A(value[i]); });
            const A vv =
                team.sum(h, [&](index_t i) { return A(value[i]) * A(value[i]); });
            dyv = team.sum(h, [&](index_t i) { return A(d[i]) * A(value[i]); });
            const A m = vv + A(kXsaEps);
            a = ov / m;
            b = factor * dyv / m;
            team.each(h, [&](index_t i) {
              const A g = factor * A(d[i]), vi = A(value[i]);
              to[i] = S(g - b * vi);
              to_v[i] = S(A(to_v[i]) - (b * (A(in[i]) - A(2) * a * vi) + a * g));
            });
          } else {
            team.each(h, [&](index_t i) { to[i] = S(factor * A(d[i])); });
          }
          if (gated) {
            const A dyo = team.sum(h, [&](index_t i) { return A(d[i]) * A(in[i]); });
            team.once(
                [&] { d_gate(row, head) = S((dyo - a * dyv) * factor * (A(1) - s)); });
          }
        }
      });
}

}  // namespace

template <class S>
void xsa_gate(View2<const S> o, View2<const S> v, View2<const S> gate, index_t heads,
              index_t kv_heads, index_t head_dim, bool xsa, View2<S> y) {
  switch (head_dim) {
    case 32:
      return xsa_forward<S, 32>(o, v, gate, heads, kv_heads, head_dim, xsa, y);
    case 64:
      return xsa_forward<S, 64>(o, v, gate, heads, kv_heads, head_dim, xsa, y);
    case 128:
      return xsa_forward<S, 128>(o, v, gate, heads, kv_heads, head_dim, xsa, y);
    default:
      return xsa_forward<S, 0>(o, v, gate, heads, kv_heads, head_dim, xsa, y);
  }
}

template <class S>
void xsa_gate_backward(View2<const S> o, View2<const S> v, View2<const S> gate,
                       index_t heads, index_t kv_heads, index_t head_dim, bool xsa,
                       View2<const S> dy, View2<S> d_o, View2<S> dv, View2<S> d_gate) {
  const auto run = [&](auto* kernel) {
    kernel(o, v, gate, heads, kv_heads, head_dim, xsa, dy, d_o, dv, d_gate);
  };
  switch (head_dim) {
    case 32:
      return run(&xsa_backward<S, 32>);
    case 64:
      return run(&xsa_backward<S, 64>);
    case 128:
      return run(&xsa_backward<S, 128>);
    default:
      return run(&xsa_backward<S, 0>);
  }
}

#define CAPSTAN_XSA(S)                                                                \
  template void xsa_gate<S>(View2<const S>, View2<const S>, View2<const S>, index_t,  \
                            index_t, index_t, bool, View2<S>);                        \
  template void xsa_gate_backward<S>(View2<const S>, View2<const S>, View2<const S>,  \
                                     index_t, index_t, index_t, bool, View2<const S>, \
                                     View2<S>, View2<S>, View2<S>);
CAPSTAN_INSTANTIATE(CAPSTAN_XSA)

}  // namespace capstan
