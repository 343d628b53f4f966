#include "kernels/heads.hpp"

#include <cmath>

#include "base/error.hpp"
#include "base/math.hpp"
#include "base/parallel.hpp"

namespace capstan {

namespace {

/// Positions of one work item, and the most pairs that RoPE may rotate in a head.
constexpr index_t kTile = 16, kMaxPairs = 128;

/// What the kernels of this file know about a tensor of heads.
struct Heads {
  index_t rows, seq_len, heads, head_dim, width;  ///< width of a row of x
};

/// The angle of each pair per position, and its cosine and sine.
struct Rotation {
  index_t pairs = 0;  ///< that turn: the first ones of a head
  double angle[kMaxPairs], cosine[kMaxPairs], sine[kMaxPairs];
};

Rotation rotation(index_t rope_dims, index_t head_dim, double theta) {
  require(head_dim % 2 == 0 && head_dim <= 2 * kMaxPairs,
          "heads: the width of a head must be even and at most 256");
  require(rope_dims % 2 == 0 && rope_dims <= head_dim,
          "rope: dims must be even and at most the head's");
  Rotation r;
  r.pairs = rope_dims / 2;
  for (index_t i = 0; i < r.pairs; ++i) {
    r.angle[i] =
        std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(rope_dims));
    r.cosine[i] = std::cos(r.angle[i]);
    r.sine[i] = std::sin(r.angle[i]);
  }
  return r;
}

/// Scratch of one work item: a table of kTile positions.
template <class A>
int table_bytes(index_t head_dim) {
  return static_cast<int>(kTile * head_dim * static_cast<index_t>(sizeof(A)));
}

/// Cosines [half], then sines [half], of all pairs of a head at positions first .. first
/// + count - 1, one after the other; 1 and 0 for pairs that do not turn, so that one loop
/// serves a head. Exact at the first position, then turned on by one at a time in double
/// (error below 1e-14), which costs a tenth of a sincos each.
template <class A>
KOKKOS_INLINE_FUNCTION void fill_table(const Team& team, const Rotation& r, index_t half,
                                       index_t first, index_t count, A* table) {
  team.each(half, [&](index_t i) {
    double c = 1, s = 0, cosine = 1, sine = 0;
    if (i < r.pairs) {
      c = ::cos(r.angle[i] * static_cast<double>(first));
      s = ::sin(r.angle[i] * static_cast<double>(first));
      cosine = r.cosine[i];
      sine = r.sine[i];
    }
    for (index_t j = 0; j < count; ++j) {
      table[2 * j * half + i] = A(c);
      table[(2 * j + 1) * half + i] = A(s);
      const double turned = c * cosine - s * sine;
      s = s * cosine + c * sine;
      c = turned;
    }
  });
  team.barrier();
}

/// Calls f(row, head, cosines, sines) for the rows and heads of one work item: the same
/// kTile positions of every sequence, and all heads on a host, one on a GPU.
template <class A, class F>
KOKKOS_INLINE_FUNCTION void each_head(const Team& team, index_t item, const Heads& shape,
                                      const Rotation& r, const F& f) {
  const index_t splits = kOnHost ? 1 : shape.heads, half = shape.head_dim / 2;
  const index_t first = item / splits * kTile;
  const index_t count = shape.seq_len - first < kTile ? shape.seq_len - first : kTile;
  const index_t lowest = item % splits, last = kOnHost ? shape.heads : lowest + 1;
  A* table = reinterpret_cast<A*>(team.scratch());
  fill_table<A>(team, r, half, first, count, table);
  for (index_t start = first; start < shape.rows; start += shape.seq_len) {
    for (index_t j = 0; j < count; ++j) {
      const A* cosine = table + 2 * j * half;
      for (index_t head = lowest; head < last; ++head) {
        f(start + j, head, cosine, cosine + half);
      }
    }
  }
}

index_t work_items(const Heads& shape) {
  const index_t tiles = (shape.seq_len + kTile - 1) / kTile;
  return tiles * (kOnHost ? 1 : shape.heads);
}

/// One head: y = turned(x * inv) * scale; returns inv. H = its width when the compiler
/// knows it, else 0; c, s: cosines and sines of its pairs.
template <int H, class S, class A>
KOKKOS_INLINE_FUNCTION A head_forward(const Team& team, index_t width, const S* x,
                                      const A* c, const A* s, A eps, A scale, S* y) {
  const index_t h = H > 0 ? H : width;
  A inv = 1;
  if (eps >= A(0)) {
    const A squares = team.sum(h, [&](index_t i) { return A(x[i]) * A(x[i]); });
    inv = A(1) / fsqrt(squares / A(h) + eps);
  }
  const A factor = inv * scale;
  team.each(h / 2, [&](index_t i) {
    const A a = A(x[2 * i]) * factor, b = A(x[2 * i + 1]) * factor;
    y[2 * i] = S(a * c[i] - b * s[i]);
    y[2 * i + 1] = S(a * s[i] + b * c[i]);
  });
  return inv;
}

/// One head: with g = scale * (dy turned back), dx = inv * (g - x * inv^2 * mean(g * x)).
template <int H, class S, class A>
KOKKOS_INLINE_FUNCTION void head_backward(const Team& team, index_t width, const S* x,
                                          const A* c, const A* s, A inv, bool normed,
                                          A scale, const S* dy, S* dx) {
  const index_t h = H > 0 ? H : width;
  const A factor = inv * scale;
  A back = 0;
  if (normed) {
    const A along = team.sum(h / 2, [&](index_t i) {
      const A a = A(dy[2 * i]), b = A(dy[2 * i + 1]);
      return (a * c[i] + b * s[i]) * A(x[2 * i]) +
             (b * c[i] - a * s[i]) * A(x[2 * i + 1]);
    });
    back = factor * inv * inv * along / A(h);
  }
  team.each(h / 2, [&](index_t i) {
    const A a = A(dy[2 * i]) * factor, b = A(dy[2 * i + 1]) * factor;
    dx[2 * i] = S(a * c[i] + b * s[i] - back * A(x[2 * i]));
    dx[2 * i + 1] = S(b * c[i] - a * s[i] - back * A(x[2 * i + 1]));
  });
}

template <class S, int H>
void qk_forward(const Heads& shape, const Rotation& turn, View2<const S> x, Acc<S> eps,
                Acc<S> scale, View2<S> y, View2<Acc<S>> inv) {
  using A = Acc<S>;
  par_rows(
      "qk_norm_rope", work_items(shape), table_bytes<A>(shape.head_dim),
      KOKKOS_LAMBDA(const Team& team, index_t item) {
        each_head<A>(team, item, shape, turn,
                     [&](index_t row, index_t head, const A* c, const A* s) {
                       const index_t h = H > 0 ? H : shape.head_dim;
                       const A norm = head_forward<H, S, A>(
                           team, h, x.data() + row * shape.width + head * h, c, s, eps,
                           scale, y.data() + (row * shape.heads + head) * h);
                       team.once([&] { inv(row, head) = norm; });
                     });
      });
}

template <class S, int H>
void qk_backward(const Heads& shape, const Rotation& turn, View2<const S> x,
                 View2<const Acc<S>> inv, bool normed, Acc<S> scale, View2<const S> dy,
                 View2<S> dx) {
  using A = Acc<S>;
  par_rows(
      "qk_norm_rope_backward", work_items(shape), table_bytes<A>(shape.head_dim),
      KOKKOS_LAMBDA(const Team& team, index_t item) {
        each_head<A>(team, item, shape, turn,
                     [&](index_t row, index_t head, const A* c, const A* s) {
                       const index_t h = H > 0 ? H : shape.head_dim;
                       const index_t at = row * shape.width + head * h;
                       head_backward<H, S, A>(
                           team, h, x.data() + at, c, s, inv(row, head), normed, scale,
                           dy.data() + (row * shape.heads + head) * h, dx.data() + at);
                       if (head == shape.heads - 1) {
                         S* unused = dx.data() + at + h;
                         team.each(shape.width - shape.heads * h,
                                   [&](index_t i) { unused[i] = S(0); });
                       }
                     });
      });
}

}  // namespace

template <class S>
void qk_norm_rope(View2<const S> x, index_t heads, index_t head_dim, index_t seq_len,
                  Acc<S> eps, index_t rope_dims, double theta, Acc<S> scale, View2<S> y,
                  View2<Acc<S>> inv) {
  const Heads shape{static_cast<index_t>(x.extent(0)), seq_len, heads, head_dim,
                    static_cast<index_t>(x.extent(1))};
  const Rotation turn = rotation(rope_dims, head_dim, theta);
  switch (head_dim) {
    case 32:
      return qk_forward<S, 32>(shape, turn, x, eps, scale, y, inv);
    case 64:
      return qk_forward<S, 64>(shape, turn, x, eps, scale, y, inv);
    case 128:
      return qk_forward<S, 128>(shape, turn, x, eps, scale, y, inv);
    default:
      return qk_forward<S, 0>(shape, turn, x, eps, scale, y, inv);
  }
}

template <class S>
void qk_norm_rope_backward(View2<const S> x, View2<const Acc<S>> inv, index_t heads,
                           index_t head_dim, index_t seq_len, Acc<S> eps,
                           index_t rope_dims, double theta, Acc<S> scale,
                           View2<const S> dy, View2<S> dx) {
  const Heads shape{static_cast<index_t>(x.extent(0)), seq_len, heads, head_dim,
                    static_cast<index_t>(x.extent(1))};
  const Rotation turn = rotation(rope_dims, head_dim, theta);
  const bool normed = eps >= Acc<S>(0);
  switch (head_dim) {
    case 32:
      return qk_backward<S, 32>(shape, turn, x, inv, normed, scale, dy, dx);
    case 64:
      return qk_backward<S, 64>(shape, turn, x, inv, normed, scale, dy, dx);
    case 128:
      return qk_backward<S, 128>(shape, turn, x, inv, normed, scale, dy, dx);
    default:
      return qk_backward<S, 0>(shape, turn, x, inv, normed, scale, dy, dx);
  }
}

#define CAPSTAN_HEADS(S)                                                               \
  template void qk_norm_rope<S>(View2<const S>, index_t, index_t, index_t, Acc<S>,     \
                                index_t, double, Acc<S>, View2<S>, View2<Acc<S>>);     \
  template void qk_norm_rope_backward<S>(View2<const S>, View2<const Acc<S>>, index_t, \
                                         index_t, index_t, Acc<S>, index_t, double,    \
                                         Acc<S>, View2<const S>, View2<S>);
CAPSTAN_INSTANTIATE(CAPSTAN_HEADS)

}  // namespace capstan
