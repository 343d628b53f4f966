#pragma once
/// \file What the forward and the backward of attention share: tile size, position of a
/// tile, visibility, transposed loads. In every pass one side of the scores is fixed (the
/// "lanes": B queries, or B keys) and lies transposed in scratch, and tiles of the other
/// side stream by as rows; all arithmetic then runs along the lanes without a sum across
/// them.
#include "kernels/attention.hpp"
#include "kernels/limits.hpp"
#include "kernels/tile_product.hpp"

namespace capstan::attention_detail {

/// Most scratch memory that a row may take (a GPU's shared memory has about 100 KiB to
/// give).
inline constexpr index_t kScratchLimit = 96 * 1024;
inline constexpr int kLargeTile = 64, kSmallTile = 32;

/// Scratch bytes of a pass that holds `sides` tiles [h, B] and `scores` tiles [B, B], and
/// a few numbers per lane.
template <class A>
constexpr index_t scratch_bytes(int tile, index_t head_dim, index_t sides,
                                index_t scores) {
  return (sides * head_dim * tile + scores * tile * tile) * index_t(sizeof(A)) +
         tile * index_t(3 * sizeof(A) + sizeof(std::int32_t));
}

template <class A>
constexpr int tile_size(index_t head_dim, index_t sides, index_t scores) {
  return scratch_bytes<A>(kLargeTile, head_dim, sides, scores) <= kScratchLimit
             ? kLargeTile
             : kSmallTile;
}

/// Tiles [h, B] and [B, B] that each pass keeps in scratch memory.
inline constexpr index_t kForwardSides = 2, kForwardScores = 1;
inline constexpr index_t kQuerySides = 3, kQueryScores = 2;
inline constexpr index_t kKeySides = 4, kKeyScores = 2;

/// Lowest and highest segment of some tokens; padding (segment < 0) sets `padded`
/// instead.
struct SegmentRange {
  std::int32_t low, high;
  bool padded;
  KOKKOS_FUNCTION bool meets(const SegmentRange& o) const {
    return low <= o.high && o.low <= high;
  }
  /// Every token of both tiles lies in one and the same segment.
  KOKKOS_FUNCTION bool same(const SegmentRange& o) const {
    return !padded && !o.padded && low == high && o.low == o.high && low == o.low;
  }
};

/// Range of `segments` [n]; empty (low > high) when all are padding.
KOKKOS_INLINE_FUNCTION SegmentRange segment_range(const Team& team,
                                                  const std::int32_t* segments,
                                                  index_t n) {
  // Three maxima: of the segments, of their negatives, and of the padding flag.
  constexpr std::int32_t none = kLowest<std::int32_t>;
  const std::int32_t high =
      team.max(n, std::int32_t(-1), [=](index_t i) { return segments[i]; });
  const std::int32_t minus_low =
      team.max(n, none, [=](index_t i) { return segments[i] < 0 ? none : -segments[i]; });
  const std::int32_t padded = team.max(
      n, std::int32_t(0), [=](index_t i) { return std::int32_t(segments[i] < 0); });
  const std::int32_t low = minus_low == none ? kHighest<std::int32_t> : -minus_low;
  return {low, high, padded != 0};
}

/// Whether the query at position i of a sequence sees the key at position j. window >= 1.
KOKKOS_INLINE_FUNCTION bool visible(std::int32_t i, std::int32_t j, std::int32_t window,
                                    std::int32_t segment_i, std::int32_t segment_j) {
  return (j <= i) & (i - j < window) & (segment_i == segment_j) & (segment_j >= 0);
}

/// Positions and shape that a pass needs, as plain numbers.
struct Geometry {
  index_t seq_len, heads, kv_heads, head_dim;
  std::int32_t window;  ///< at least 1; the largest int32 for "all earlier ones"

  explicit Geometry(const AttentionShape& s)
      : seq_len(s.seq_len),
        heads(s.heads),
        kv_heads(s.kv_heads),
        head_dim(s.head_dim),
        window(s.window > 0 && s.window < s.seq_len ? static_cast<std::int32_t>(s.window)
                                                    : kHighest<std::int32_t>) {}

  /// First tile with a key that queries from position q0 on may see.
  KOKKOS_FUNCTION index_t first_key_tile(index_t q0, int tile) const {
    const index_t oldest = q0 - window + 1;
    return oldest > 0 ? oldest / tile : 0;
  }
  /// One past the last tile with a query that may see keys k0 .. k0+tile-1.
  KOKKOS_FUNCTION index_t end_query_tile(index_t k0, int tile) const {
    const index_t newest = k0 + tile - 1 + (window - index_t(1));
    const index_t last = newest < seq_len - 1 ? newest : seq_len - 1;
    return last / tile + 1;
  }
  /// All keys of k0 .. k0+tile-1 are seen by all queries of q0 .. q0+tile-1, segments
  /// aside.
  KOKKOS_FUNCTION bool inside(index_t q0, index_t k0, int tile) const {
    return k0 + tile - 1 <= q0 && q0 + tile - 1 - k0 < window;
  }
  KOKKOS_FUNCTION index_t tile_rows(index_t start, int tile) const {
    return seq_len - start < tile ? seq_len - start : tile;
  }
};

/// dst [h, B] = scale * the transpose of rows [n, h] at src (row stride `stride`); lanes
/// from n on are 0.
template <int B, class A, class S>
KOKKOS_INLINE_FUNCTION void load_transposed(const Team& team, const S* src,
                                            index_t stride, index_t n, index_t h, A scale,
                                            A* dst) {
  team.each(B, [=](index_t lane) {
    const bool real = lane < n;
    const S* row = src + (real ? lane : 0) * stride;
    for (index_t d = 0; d < h; ++d)
      dst[d * B + lane] = real ? scale * static_cast<A>(row[d]) : A(0);
  });
}

/// rows [n, h] at dst = scale[lane] * the transpose of src [h, B].
template <int B, class A, class S, class F>
KOKKOS_INLINE_FUNCTION void store_transposed(const Team& team, const A* src, index_t n,
                                             index_t h, const F& scale, S* dst,
                                             index_t stride) {
  team.each(n, [=](index_t lane) {
    const A factor = scale(lane);
    S* row = dst + lane * stride;
    for (index_t d = 0; d < h; ++d) row[d] = static_cast<S>(factor * src[d * B + lane]);
  });
}

/// Segments of the lanes (tokens `first` .. first+n-1 of all); -1 from n on.
template <int B>
KOKKOS_INLINE_FUNCTION void load_segments(const Team& team, const std::int32_t* segments,
                                          index_t n, std::int32_t* dst) {
  team.each(B, [=](index_t lane) { dst[lane] = lane < n ? segments[lane] : -1; });
}

}  // namespace capstan::attention_detail
