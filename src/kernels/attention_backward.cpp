#include <cmath>

#include "base/math.hpp"
#include "kernels/attention_tiles.hpp"

namespace capstan {

using namespace attention_detail;

namespace {

/// What both passes read and write.
template <class S>
struct Tensors {
  using A = Acc<S>;
  Geometry geo;
  View2<const S> q, k, v;
  View1<const std::int32_t> segments;
  View2<const S> o;
  View2<const A> lse;
  View2<const S> d_o;
  View2<A> delta;
  View2<S> dq, dk, dv;
  A scale;
};

/// dQ and delta. One row: B queries (lanes) of one head, key tiles stream by.
///   P = exp(S - lse), dP = dO V^T, delta = sum(o * dO), dS = P (dP - delta), dQ = dS K
///   scale.
template <class S, int B>
struct QueryPass {
  using A = Acc<S>;
  Tensors<S> x;

  struct Scratch {
    A *query, *d_out, *d_query;  ///< [h, B]
    A *score, *d_prob;           ///< [B, B]
    A *lse, *delta;
    std::int32_t* segment;
    KOKKOS_FUNCTION Scratch(char* base, index_t h) {
      query = reinterpret_cast<A*>(base);
      d_out = query + h * B;
      d_query = d_out + h * B;
      score = d_query + h * B;
      d_prob = score + B * B;
      lse = d_prob + B * B;
      delta = lse + B;
      segment = reinterpret_cast<std::int32_t*>(delta + B);
    }
  };

  KOKKOS_FUNCTION void operator()(const Team& team, index_t row) const {
    const Geometry& geo = x.geo;
    const index_t tiles = (geo.seq_len + B - 1) / B, h = geo.head_dim;
    const index_t head = row / tiles % geo.heads;
    const index_t token0 = row / (tiles * geo.heads) * geo.seq_len;
    const index_t q0 = row % tiles * B, lanes = geo.tile_rows(q0, B);
    const index_t stride = index_t(x.q.extent(1)), column = head * h;
    const Scratch at(team.scratch(), h);
    load(team, at, token0 + q0, head, lanes);
    const SegmentRange range = segment_range(team, &x.segments(token0 + q0), lanes);
    for (index_t tile = geo.first_key_tile(q0, B); tile <= q0 / B; ++tile) {
      const index_t k0 = tile * B, keys = geo.tile_rows(k0, B);
      const SegmentRange other = segment_range(team, &x.segments(token0 + k0), keys);
      if (!range.meets(other)) continue;
      const bool whole = range.same(other) && geo.inside(q0, k0, B);
      key_tile(team, at, token0, head / (geo.heads / geo.kv_heads) * h, q0, k0, keys,
               whole);
    }
    const A scale = x.scale;
    store_transposed<B>(
        team, at.d_query, lanes, h, [=](index_t) { return scale; },
        &x.dq(token0 + q0, column), stride);
  }

  /// Q, dO, lse and delta of the lanes; delta is kept for the other pass. o passes
  /// through the memory of dQ.
  KOKKOS_FUNCTION void load(const Team& team, const Scratch& at, index_t token,
                            index_t head, index_t lanes) const {
    const index_t h = x.geo.head_dim, stride = index_t(x.q.extent(1));
    load_transposed<B>(team, &x.q(token, head * h), stride, lanes, h, x.scale, at.query);
    load_transposed<B>(team, &x.d_o(token, head * h), stride, lanes, h, A(1), at.d_out);
    load_transposed<B>(team, &x.o(token, head * h), stride, lanes, h, A(1), at.d_query);
    load_segments<B>(team, &x.segments(token), lanes, at.segment);
    const Tensors<S>& t = x;
    team.each(B, [=, &t](index_t lane) {
      at.lse[lane] = lane < lanes ? t.lse(token + lane, head) : A(0);
      at.delta[lane] = A(0);
    });
    for (index_t d = 0; d < h; ++d)
      team.each(B, [=](index_t lane) {
        at.delta[lane] += at.d_query[d * B + lane] * at.d_out[d * B + lane];
        at.d_query[d * B + lane] = A(0);
      });
    team.each(lanes,
              [=, &t](index_t lane) { t.delta(token + lane, head) = at.delta[lane]; });
    team.barrier();
  }

  KOKKOS_FUNCTION void key_tile(const Team& team, const Scratch& at, index_t token0,
                                index_t column, index_t q0, index_t k0, index_t keys,
                                bool whole) const {
    const index_t h = x.geo.head_dim, kv = index_t(x.k.extent(1)),
                  v_stride = index_t(x.v.extent(1));
    const S* key = &x.k(token0 + k0, column);
    tile_product<B>(team, keys, h, Operand<S>{key, kv, 1}, at.query, at.score, false);
    tile_product<B>(team, keys, h, Operand<S>{&x.v(token0 + k0, column), v_stride, 1},
                    at.d_out, at.d_prob, false);
    team.barrier();
    const std::int32_t window = x.geo.window, first = static_cast<std::int32_t>(q0);
    for (index_t row = 0; row < keys; ++row) {
      const std::int32_t position = static_cast<std::int32_t>(k0 + row);
      const std::int32_t own = x.segments(token0 + k0 + row);
      A* score = at.score + row * B;
      const A* d_prob = at.d_prob + row * B;
      team.each(B, [=](index_t lane) {
        const bool sees = whole | visible(first + static_cast<std::int32_t>(lane),
                                          position, window, at.segment[lane], own);
        const A p = fexp(score[lane] - at.lse[lane]);
        score[lane] = sees ? p * (d_prob[lane] - at.delta[lane]) : A(0);
      });
    }
    team.barrier();
    tile_product<B>(team, h, keys, Operand<S>{key, 1, kv}, at.score, at.d_query, true);
    team.barrier();
  }
};

/// dK and dV. One row: B keys (lanes) of one kv head; the query tiles of all its query
/// heads stream by in a fixed order. dV = P^T dO, dK = dS^T Q scale.
template <class S, int B>
struct KeyPass {
  using A = Acc<S>;
  Tensors<S> x;

  struct Scratch {
    A *key, *value, *d_key, *d_value;  ///< [h, B]
    A *score, *d_prob;                 ///< [B, B]
    std::int32_t* segment;
    KOKKOS_FUNCTION Scratch(char* base, index_t h) {
      key = reinterpret_cast<A*>(base);
      value = key + h * B;
      d_key = value + h * B;
      d_value = d_key + h * B;
      score = d_value + h * B;
      d_prob = score + B * B;
      segment = reinterpret_cast<std::int32_t*>(d_prob + B * B);
    }
  };

  KOKKOS_FUNCTION void operator()(const Team& team, index_t row) const {
    const Geometry& geo = x.geo;
    const index_t tiles = (geo.seq_len + B - 1) / B, h = geo.head_dim;
    const index_t kv_head = row / tiles % geo.kv_heads;
    const index_t token0 = row / (tiles * geo.kv_heads) * geo.seq_len;
    const index_t k0 = row % tiles * B, lanes = geo.tile_rows(k0, B);
    const index_t column = kv_head * h;
    const Scratch at(team.scratch(), h);
    load_transposed<B>(team, &x.k(token0 + k0, column), index_t(x.k.extent(1)), lanes, h,
                       x.scale, at.key);
    load_transposed<B>(team, &x.v(token0 + k0, column), index_t(x.v.extent(1)), lanes, h,
                       A(1), at.value);
    load_segments<B>(team, &x.segments(token0 + k0), lanes, at.segment);
    team.each(2 * h * B,
              [=](index_t i) { at.d_key[i] = A(0); });  // d_value follows d_key
    team.barrier();
    const SegmentRange range = segment_range(team, &x.segments(token0 + k0), lanes);
    const index_t group = geo.heads / geo.kv_heads, end = geo.end_query_tile(k0, B);
    for (index_t tile = k0 / B; tile < end; ++tile) {
      const index_t q0 = tile * B, queries = geo.tile_rows(q0, B);
      const SegmentRange other = segment_range(team, &x.segments(token0 + q0), queries);
      if (!range.meets(other)) continue;
      const bool whole = range.same(other) && geo.inside(q0, k0, B);
      for (index_t head = kv_head * group; head < (kv_head + 1) * group; ++head)
        query_tile(team, at, token0, head, q0, k0, queries, whole);
    }
    const A scale = x.scale;
    store_transposed<B>(
        team, at.d_key, lanes, h, [=](index_t) { return scale; },
        &x.dk(token0 + k0, column), index_t(x.dk.extent(1)));
    store_transposed<B>(
        team, at.d_value, lanes, h, [](index_t) { return A(1); },
        &x.dv(token0 + k0, column), index_t(x.dv.extent(1)));
  }

  KOKKOS_FUNCTION void query_tile(const Team& team, const Scratch& at, index_t token0,
                                  index_t head, index_t q0, index_t k0, index_t queries,
                                  bool whole) const {
    const index_t h = x.geo.head_dim, stride = index_t(x.q.extent(1));
    const S* query = &x.q(token0 + q0, head * h);
    const S* d_out = &x.d_o(token0 + q0, head * h);
    tile_product<B>(team, queries, h, Operand<S>{query, stride, 1}, at.key, at.score,
                    false);
    tile_product<B>(team, queries, h, Operand<S>{d_out, stride, 1}, at.value, at.d_prob,
                    false);
    team.barrier();
    const std::int32_t window = x.geo.window, first = static_cast<std::int32_t>(k0);
    for (index_t row = 0; row < queries; ++row) {
      const index_t token = token0 + q0 + row;
      const std::int32_t position = static_cast<std::int32_t>(q0 + row);
      const std::int32_t own = x.segments(token);
      const A lse = x.lse(token, head), delta = x.delta(token, head);
      A* score = at.score + row * B;
      A* d_prob = at.d_prob + row * B;
      team.each(B, [=](index_t lane) {
        const bool sees =
            whole | visible(position, first + static_cast<std::int32_t>(lane), window,
                            own, at.segment[lane]);
        const A p = sees ? fexp(score[lane] - lse) : A(0);
        score[lane] = p;
        d_prob[lane] = p * (d_prob[lane] - delta);
      });
    }
    team.barrier();
    tile_product<B>(team, h, queries, Operand<S>{d_out, 1, stride}, at.score, at.d_value,
                    true);
    tile_product<B>(team, h, queries, Operand<S>{query, 1, stride}, at.d_prob, at.d_key,
                    true);
    team.barrier();
  }
};

template <class S, int B>
void query_pass(const AttentionShape& shape, const Tensors<S>& x) {
  const index_t rows = shape.sequences * shape.heads * ((shape.seq_len + B - 1) / B);
  const index_t bytes =
      scratch_bytes<Acc<S>>(B, shape.head_dim, kQuerySides, kQueryScores);
  par_rows("attention dq", rows, static_cast<int>(bytes), QueryPass<S, B>{x});
}

template <class S, int B>
void key_pass(const AttentionShape& shape, const Tensors<S>& x) {
  const index_t rows = shape.sequences * shape.kv_heads * ((shape.seq_len + B - 1) / B);
  const index_t bytes = scratch_bytes<Acc<S>>(B, shape.head_dim, kKeySides, kKeyScores);
  par_rows("attention dk dv", rows, static_cast<int>(bytes), KeyPass<S, B>{x});
}

/// The gradient of kv heads that no query head reads.
template <class S>
void clear_unused(index_t used, View2<S> d) {
  const index_t left = index_t(d.extent(1)) - used;
  if (left == 0) return;
  par_rows(
      "attention unused kv heads", index_t(d.extent(0)), 0,
      KOKKOS_LAMBDA(const Team& team, index_t t) {
        team.each(left, [&](index_t i) { d(t, used + i) = S(0.f); });
      });
}

}  // namespace

template <class S>
void attention_backward(const AttentionShape& shape, View2<const S> q, View2<const S> k,
                        View2<const S> v, View1<const std::int32_t> segments,
                        View2<const S> o, View2<const Acc<S>> lse, View2<const S> d_o,
                        View2<Acc<S>> delta, View2<S> dq, View2<S> dk, View2<S> dv) {
  const index_t h = shape.head_dim;
  const Tensors<S> x{Geometry(shape),
                     q,
                     k,
                     v,
                     segments,
                     o,
                     lse,
                     d_o,
                     delta,
                     dq,
                     dk,
                     dv,
                     static_cast<Acc<S>>(1.0 / std::sqrt(static_cast<double>(h)))};
  if (tile_size<Acc<S>>(h, kQuerySides, kQueryScores) == kLargeTile)
    query_pass<S, kLargeTile>(shape, x);
  else
    query_pass<S, kSmallTile>(shape, x);
  if (tile_size<Acc<S>>(h, kKeySides, kKeyScores) == kLargeTile)
    key_pass<S, kLargeTile>(shape, x);
  else
    key_pass<S, kSmallTile>(shape, x);
  clear_unused<S>(shape.kv_heads * h, dk);
  clear_unused<S>(shape.kv_heads * h, dv);
}

#define CAPSTAN_ATTENTION_BACKWARD(S)                                                 \
  template void attention_backward<S>(                                                \
      const AttentionShape&, View2<const S>, View2<const S>, View2<const S>,          \
      View1<const std::int32_t>, View2<const S>, View2<const Acc<S>>, View2<const S>, \
      View2<Acc<S>>, View2<S>, View2<S>, View2<S>);
CAPSTAN_INSTANTIATE(CAPSTAN_ATTENTION_BACKWARD)

}  // namespace capstan
