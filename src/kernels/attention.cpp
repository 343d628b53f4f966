#include "kernels/attention.hpp"

#include <cmath>

#include "base/error.hpp"
#include "base/math.hpp"
#include "kernels/attention_tiles.hpp"

namespace capstan {

using namespace attention_detail;

namespace {

/// One row: B queries of one head of one sequence, against all key tiles that they may
/// see.
template <class S, int B>
struct ForwardPass {
  using A = Acc<S>;
  Geometry geo;
  View2<const S> q, k, v;
  View1<const std::int32_t> segments;
  View2<S> o;
  View2<A> lse;
  A scale;

  /// The row's scratch memory; everything is indexed [.., lane].
  struct Scratch {
    A *query, *out, *score;       ///< [h, B], [h, B], [B, B]
    A *highest, *total, *shrink;  ///< running maximum, sum, factor of the old sums
    std::int32_t* segment;
    KOKKOS_FUNCTION Scratch(char* base, index_t h) {
      query = reinterpret_cast<A*>(base);
      out = query + h * B;
      score = out + h * B;
      highest = score + B * B;
      total = highest + B;
      shrink = total + B;
      segment = reinterpret_cast<std::int32_t*>(shrink + B);
    }
  };

  KOKKOS_FUNCTION void operator()(const Team& team, index_t row) const {
    const index_t tiles = (geo.seq_len + B - 1) / B;
    const index_t head = row / tiles % geo.heads;
    const index_t token0 = row / (tiles * geo.heads) * geo.seq_len;
    const index_t q0 = row % tiles * B, lanes = geo.tile_rows(q0, B), h = geo.head_dim;
    const Scratch at(team.scratch(), h);
    load_transposed<B>(team, &q(token0 + q0, head * h), index_t(q.extent(1)), lanes, h,
                       scale, at.query);
    load_segments<B>(team, &segments(token0 + q0), lanes, at.segment);
    team.each(h * B, [=](index_t i) { at.out[i] = A(0); });
    team.each(B, [=](index_t lane) {
      at.highest[lane] = kLowest<A>;
      at.total[lane] = A(0);
    });
    team.barrier();
    const SegmentRange range = segment_range(team, &segments(token0 + q0), lanes);
    for (index_t tile = geo.first_key_tile(q0, B); tile <= q0 / B; ++tile) {
      const index_t k0 = tile * B, keys = geo.tile_rows(k0, B);
      const SegmentRange other = segment_range(team, &segments(token0 + k0), keys);
      if (!range.meets(other)) continue;
      const bool whole = range.same(other) && geo.inside(q0, k0, B);
      key_tile(team, at, token0, head / (geo.heads / geo.kv_heads) * h, q0, k0, keys,
               whole);
    }
    finish(team, at, token0 + q0, head, lanes);
  }

  KOKKOS_FUNCTION void key_tile(const Team& team, const Scratch& at, index_t token0,
                                index_t column, index_t q0, index_t k0, index_t keys,
                                bool whole) const {
    const index_t h = geo.head_dim;
    tile_product<B>(team, keys, h,
                    Operand<S>{&k(token0 + k0, column), index_t(k.extent(1)), 1},
                    at.query, at.score, false);
    team.barrier();
    raise(team, at, token0, q0, k0, keys, whole);
    soften(team, at, keys);
    for (index_t d = 0; d < h; ++d)
      team.each(B, [=](index_t lane) { at.out[d * B + lane] *= at.shrink[lane]; });
    team.barrier();
    tile_product<B>(team, h, keys,
                    Operand<S>{&v(token0 + k0, column), 1, index_t(v.extent(1))},
                    at.score, at.out, true);
    team.barrier();
  }

  /// Brings the running maximum up to date with the scores; those that a query does not
  /// see become -inf unless the tile is `whole`.
  KOKKOS_FUNCTION void raise(const Team& team, const Scratch& at, index_t token0,
                             index_t q0, index_t k0, index_t keys, bool whole) const {
    const std::int32_t window = geo.window, first = static_cast<std::int32_t>(q0);
    team.each(B, [=](index_t lane) { at.shrink[lane] = at.highest[lane]; });
    for (index_t row = 0; row < keys; ++row) {
      const std::int32_t key = static_cast<std::int32_t>(k0 + row);
      const std::int32_t own = segments(token0 + k0 + row);
      A* score = at.score + row * B;
      if (!whole)
        team.each(B, [=](index_t lane) {
          const bool sees = visible(first + static_cast<std::int32_t>(lane), key, window,
                                    at.segment[lane], own);
          score[lane] = sees ? score[lane] : kMinusInfinity<A>;
        });
      team.each(B, [=](index_t lane) {
        at.highest[lane] =
            score[lane] > at.highest[lane] ? score[lane] : at.highest[lane];
      });
    }
  }

  /// scores -> exp(score - maximum), added to the running sum. The maximum starts at a
  /// finite value, so that exp(-inf - it) is 0 for a query that has seen nothing yet.
  KOKKOS_FUNCTION void soften(const Team& team, const Scratch& at, index_t keys) const {
    team.each(B, [=](index_t lane) {
      at.shrink[lane] = fexp(at.shrink[lane] - at.highest[lane]);
      at.total[lane] *= at.shrink[lane];
    });
    for (index_t row = 0; row < keys; ++row) {
      A* score = at.score + row * B;
      team.each(B, [=](index_t lane) {
        const A p = fexp(score[lane] - at.highest[lane]);
        score[lane] = p;
        at.total[lane] += p;
      });
    }
  }

  /// o and lse of the queries; 0 where a query saw nothing (padding).
  KOKKOS_FUNCTION void finish(const Team& team, const Scratch& at, index_t token,
                              index_t head, index_t lanes) const {
    store_transposed<B>(
        team, at.out, lanes, geo.head_dim,
        [=](index_t lane) {
          return at.total[lane] > A(0) ? A(1) / at.total[lane] : A(0);
        },
        &o(token, head * geo.head_dim), index_t(o.extent(1)));
    const View2<A> saved = lse;
    team.each(lanes, [=](index_t lane) {
      const A sum = at.total[lane];
      saved(token + lane, head) =
          sum > A(0) ? at.highest[lane] + static_cast<A>(::log(double(sum))) : A(0);
    });
  }
};

template <class S, int B>
void forward(const AttentionShape& shape, View2<const S> q, View2<const S> k,
             View2<const S> v, View1<const std::int32_t> segments, View2<S> o,
             View2<Acc<S>> lse) {
  const ForwardPass<S, B> pass{
      Geometry(shape),
      q,
      k,
      v,
      segments,
      o,
      lse,
      static_cast<Acc<S>>(1.0 / std::sqrt(static_cast<double>(shape.head_dim)))};
  const index_t rows = shape.sequences * shape.heads * ((shape.seq_len + B - 1) / B);
  par_rows("attention", rows,
           static_cast<int>(
               scratch_bytes<Acc<S>>(B, shape.head_dim, kForwardSides, kForwardScores)),
           pass);
}

}  // namespace

template <class S>
void attention(const AttentionShape& shape, View2<const S> q, View2<const S> k,
               View2<const S> v, View1<const std::int32_t> segments, View2<S> o,
               View2<Acc<S>> lse) {
  require(shape.kv_heads > 0 && shape.heads % shape.kv_heads == 0,
          "attention: heads must be a multiple of kv_heads");
  if (tile_size<Acc<S>>(shape.head_dim, kForwardSides, kForwardScores) == kLargeTile)
    forward<S, kLargeTile>(shape, q, k, v, segments, o, lse);
  else
    forward<S, kSmallTile>(shape, q, k, v, segments, o, lse);
}

double attention_flops(const AttentionShape& shape) {
  const int tile = tile_size<float>(shape.head_dim, kForwardSides, kForwardScores);
  const Geometry geo(shape);
  double keys = 0;
  for (index_t q0 = 0; q0 < shape.seq_len; q0 += tile)
    for (index_t t = geo.first_key_tile(q0, tile); t <= q0 / tile; ++t)
      keys += static_cast<double>(geo.tile_rows(t * tile, tile));
  return 4.0 * tile * keys *
         static_cast<double>(shape.head_dim * shape.heads * shape.sequences);
}

#define CAPSTAN_ATTENTION(S)                                                        \
  template void attention<S>(const AttentionShape&, View2<const S>, View2<const S>, \
                             View2<const S>, View1<const std::int32_t>, View2<S>,   \
                             View2<Acc<S>>);
CAPSTAN_INSTANTIATE(CAPSTAN_ATTENTION)

}  // namespace capstan
