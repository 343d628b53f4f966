#include "kernels/sconv.hpp"

#include "base/error.hpp"
#include "base/parallel.hpp"
#include "kernels/column_sums.hpp"

namespace capstan {

namespace {

/// Bit j: the token `direction * j` after token `row` is a real one of its sequence and
/// document.
KOKKOS_INLINE_FUNCTION std::uint64_t tap_mask(const std::int32_t* segments, index_t row,
                                              index_t direction, index_t taps,
                                              index_t seq_len) {
  const std::int32_t own = segments[row];
  if (own < 0) return 0;
  const index_t position = row % seq_len;
  std::uint64_t mask = 1;
  for (index_t j = 1; j < taps; ++j) {
    const index_t at = position + direction * j;
    const bool seen = at >= 0 && at < seq_len && segments[row + direction * j] == own;
    mask |= static_cast<std::uint64_t>(seen) << j;
  }
  return mask;
}

/// y[d] = base[d] + sum over j < taps with bit j of `mask` of w[j * width + d] * x[j *
/// step + d]. Documents are contiguous, so the mask almost always is the first 1, 2, 3 or
/// 4 taps.
template <class S>
struct TapRow {
  const S* x;
  const S* w;
  const S* base;  ///< null = 0
  S* y;
  index_t width, step, taps;

  template <int N>
  KOKKOS_INLINE_FUNCTION Acc<S> first_taps(index_t d) const {
    Acc<S> sum = Acc<S>(w[d]) * Acc<S>(x[d]);
    if constexpr (N > 1) sum += Acc<S>(w[width + d]) * Acc<S>(x[step + d]);
    if constexpr (N > 2) sum += Acc<S>(w[2 * width + d]) * Acc<S>(x[2 * step + d]);
    if constexpr (N > 3) sum += Acc<S>(w[3 * width + d]) * Acc<S>(x[3 * step + d]);
    return sum;
  }
  template <class F>
  KOKKOS_INLINE_FUNCTION void store(const Team& team, const F& f) const {
    if (base != nullptr) {
      team.each(width, [&](index_t d) { y[d] = S(Acc<S>(base[d]) + f(d)); });
    } else {
      team.each(width, [&](index_t d) { y[d] = S(f(d)); });
    }
  }
  KOKKOS_INLINE_FUNCTION void run(const Team& team, std::uint64_t mask) const {
    switch (mask) {
      case 0:
        return store(team, [&](index_t) { return Acc<S>(0); });
      case 1:
        return store(team, [&](index_t d) { return first_taps<1>(d); });
      case 3:
        return store(team, [&](index_t d) { return first_taps<2>(d); });
      case 7:
        return store(team, [&](index_t d) { return first_taps<3>(d); });
      case 15:
        return store(team, [&](index_t d) { return first_taps<4>(d); });
      default:
        return store(team, [&](index_t d) {
          Acc<S> sum = 0;
          for (index_t j = 0; j < taps; ++j) {
            if (mask >> j & 1) sum += Acc<S>(w[j * width + d]) * Acc<S>(x[j * step + d]);
          }
          return sum;
        });
    }
  }
};

constexpr index_t kMaxTaps = 64;  // bits of the mask

/// Row t of y = (residual +) taps on rows t, t + direction, t + 2 direction... of x.
template <class S>
void convolve(const char* label, View2<const S> x, View2<const S> w,
              View1<const std::int32_t> segments, index_t seq_len, index_t direction,
              View2<const S> residual, View2<S> y) {
  const index_t rows = x.extent(0), width = x.extent(1), taps = w.extent(0);
  require(taps <= kMaxTaps, "sconv: more than 64 taps");
  const bool with_residual = residual.extent(0) > 0;
  par_rows(
      label, rows, 0, KOKKOS_LAMBDA(const Team& team, index_t row) {
        const std::uint64_t mask =
            tap_mask(segments.data(), row, direction, taps, seq_len);
        const S* base = with_residual ? residual.data() + row * width : nullptr;
        const TapRow<S> taps_of_row{
            x.data() + row * width, w.data(), base, y.data() + row * width, width,
            direction * width,      taps};
        taps_of_row.run(team, mask);
      });
}

}  // namespace

template <class S>
void sconv(View2<const S> x, View2<const S> w, View1<const std::int32_t> segments,
           index_t seq_len, View2<const S> residual, View2<S> y) {
  convolve<S>("sconv", x, w, segments, seq_len, -1, residual, y);
}

template <class S>
void sconv_backward(View2<const S> x, View2<const S> w,
                    View1<const std::int32_t> segments, index_t seq_len,
                    View2<const S> dy, View2<S> dx, View2<Acc<S>> dw) {
  // dx[t] = sum_j w[j] * dy[t + j]: the same convolution, looking forward.
  using A = Acc<S>;
  convolve<S>("sconv_dx", dy, w, segments, seq_len, 1, View2<const S>(), dx);
  const index_t rows = x.extent(0), width = x.extent(1), taps = w.extent(0);
  const index_t blocks = (width + kSumColumns - 1) / kSumColumns;
  par_rows(
      "sconv_dw", blocks, column_sums_bytes<A>(taps, kSumColumns),
      KOKKOS_LAMBDA(const Team& team, index_t block) {
        const index_t first = block * kSumColumns;
        const index_t columns = width - first < kSumColumns ? width - first : kSumColumns;
        const std::int32_t* segment = segments.data();
        const S* xb = x.data() + first;
        const S* dyb = dy.data() + first;
        const A* sums = column_sums<A>(
            team, rows, taps, columns, kSumColumns,
            [&](index_t r) { return tap_mask(segment, r, -1, taps, seq_len); },
            [&](index_t r, index_t j, index_t c) {
              return A(dyb[r * width + c]) * A(xb[(r - j) * width + c]);
            });
        A* out = dw.data() + first;
        for (index_t j = 0; j < taps; ++j) {
          team.each(columns,
                    [&](index_t c) { out[j * width + c] += sums[j * columns + c]; });
        }
      });
}

#define CAPSTAN_SCONV(S)                                                              \
  template void sconv<S>(View2<const S>, View2<const S>, View1<const std::int32_t>,   \
                         index_t, View2<const S>, View2<S>);                          \
  template void sconv_backward<S>(View2<const S>, View2<const S>,                     \
                                  View1<const std::int32_t>, index_t, View2<const S>, \
                                  View2<S>, View2<Acc<S>>);
CAPSTAN_INSTANTIATE(CAPSTAN_SCONV)

}  // namespace capstan
