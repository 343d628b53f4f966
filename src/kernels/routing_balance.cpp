#include "base/math.hpp"
#include "base/parallel.hpp"
#include "kernels/limits.hpp"
#include "kernels/routing.hpp"

namespace capstan {

namespace {
/// Lanes of running minima and maxima, so that a host's loop vectorises.
constexpr int kLanes = kOnHost ? 16 : 1;
/// Experts and tokens of the histogram's scratch block. A host reads whole cache lines of
/// logits; a GPU wants many rows, and shares the bins of one expert among kOwners
/// workers.
constexpr int kHistogramExperts = kOnHost ? 32 : 2, kHistogramTokens = 256;
constexpr int kOwners = kOnHost ? 1 : 64;
}  // namespace

template <class S>
void margin_range(View2<const Acc<S>> logits, View1<const Acc<S>> alpha,
                  View1<const std::int32_t> segments, View1<double> range) {
  using A = Acc<S>;
  using Range = Kokkos::MinMaxScalar<double>;
  static_assert(sizeof(Range) == 2 * sizeof(double));
  const index_t tokens = index_t(logits.extent(0)), e = index_t(logits.extent(1));
  const Kokkos::View<Range, Mem> result(reinterpret_cast<Range*>(range.data()));
  Kokkos::parallel_reduce(
      "margin_range", Kokkos::RangePolicy<Exec, Kokkos::IndexType<index_t>>(0, tokens),
      KOKKOS_LAMBDA(index_t t, Range & total) {
        if (segments(t) < 0) return;
        const A* logit = &logits(t, 0);
        A low[kLanes], high[kLanes];
        for (int l = 0; l < kLanes; ++l) low[l] = high[l] = logit[0];
        index_t i = 0;
        for (; i + kLanes <= e; i += kLanes) {
          for (int l = 0; l < kLanes; ++l) {
            low[l] = logit[i + l] < low[l] ? logit[i + l] : low[l];
            high[l] = logit[i + l] > high[l] ? logit[i + l] : high[l];
          }
        }
        for (; i < e; ++i) {
          low[0] = logit[i] < low[0] ? logit[i] : low[0];
          high[0] = logit[i] > high[0] ? logit[i] : high[0];
        }
        for (int l = 0; l < kLanes; ++l) {
          const double least = double(low[l]) - double(alpha(t));
          const double most = double(high[l]) - double(alpha(t));
          total.min_val = least < total.min_val ? least : total.min_val;
          total.max_val = most > total.max_val ? most : total.max_val;
        }
      },
      Kokkos::MinMax<double, Mem>(result));
}

template <class S>
void margin_histogram(View2<const Acc<S>> logits, View1<const Acc<S>> alpha,
                      View1<const std::int32_t> segments, double lo, double hi,
                      View2<std::int32_t> counts) {
  using A = Acc<S>;
  const index_t tokens = index_t(logits.extent(0)), e = index_t(logits.extent(1));
  const index_t bins = index_t(counts.extent(1)),
                groups = (e + kHistogramExperts - 1) / kHistogramExperts;
  const double per_bin = double(bins) / (hi - lo), last_bin = double(bins - 1);
  const int bytes = kHistogramExperts * kHistogramTokens * int(sizeof(std::int32_t));
  par_rows(
      "margin_histogram", groups, bytes, KOKKOS_LAMBDA(const Team& team, index_t g) {
        std::int32_t* bin = reinterpret_cast<std::int32_t*>(team.scratch());
        const index_t e0 = g * kHistogramExperts;
        const index_t width = e - e0 < kHistogramExperts ? e - e0 : kHistogramExperts;
        for (index_t t0 = 0; t0 < tokens; t0 += kHistogramTokens) {
          const index_t n =
              tokens - t0 < kHistogramTokens ? tokens - t0 : kHistogramTokens;
          for (index_t t = 0; t < n; ++t) {
            const bool valid = segments(t0 + t) >= 0;
            const A* logit = &logits(t0 + t, e0);
            const double threshold = double(alpha(t0 + t));
            std::int32_t* row = bin + t * kHistogramExperts;
            team.each(width, [&](index_t i) {
              const double x = (double(logit[i]) - threshold - lo) * per_bin;
              const double inside = x > 0 ? (x < last_bin ? x : last_bin) : 0;
              row[i] = valid ? static_cast<std::int32_t>(inside) : -1;
            });
          }
          team.barrier();
          team.each(width * kOwners, [&](index_t worker) {
            const index_t i = worker / kOwners;
            const std::int32_t owner = static_cast<std::int32_t>(worker % kOwners);
            std::int32_t* count = &counts(e0 + i, 0);
            for (index_t t = 0; t < n; ++t) {
              const std::int32_t b = bin[t * kHistogramExperts + i];
              if (b >= 0 && b % kOwners == owner) ++count[b];
            }
          });
          team.barrier();
        }
      });
}

template <class S>
void quantile_bias(View2<const std::int32_t> counts, double lo, double hi, double target,
                   View1<Acc<S>> bias) {
  using A = Acc<S>;
  const index_t e = index_t(counts.extent(0)), bins = index_t(counts.extent(1));
  const double width = (hi - lo) / double(bins);
  constexpr index_t block = 256;
  par_rows(
      "quantile", e, 0, KOKKOS_LAMBDA(const Team& team, index_t i) {
        const std::int32_t* count = &counts(i, 0);
        std::int64_t above = 0;
        index_t top = bins;
        // Whole blocks of bins from the top while the target lies below them.
        while (top > 0) {
          const index_t first = top > block ? top - block : 0;
          const std::int64_t n = team.sum(
              top - first, [&](index_t b) { return std::int64_t(count[first + b]); });
          if (double(above + n) >= target) break;
          above += n;
          top = first;
        }
        double beta = lo;
        for (index_t b = top - 1; b >= 0; --b) {
          const std::int64_t n = count[b];
          if (n > 0 && double(above + n) >= target) {
            beta = lo + width * (double(b + 1) - (target - double(above)) / double(n));
            break;
          }
          above += n;
        }
        team.once([&] { bias(i) = static_cast<A>(beta); });
      });
  par_rows(
      "quantile_centre", 1, 0, KOKKOS_LAMBDA(const Team& team, index_t) {
        const double mean =
            team.sum(e, [&](index_t i) { return double(bias(i)); }) / double(e);
        team.each(e,
                  [&](index_t i) { bias(i) = static_cast<A>(mean - double(bias(i))); });
      });
}

#define CAPSTAN_BALANCE(S)                                                          \
  template void margin_range<S>(View2<const Acc<S>>, View1<const Acc<S>>,           \
                                View1<const std::int32_t>, View1<double>);          \
  template void margin_histogram<S>(View2<const Acc<S>>, View1<const Acc<S>>,       \
                                    View1<const std::int32_t>, double, double,      \
                                    View2<std::int32_t>);                           \
  template void quantile_bias<S>(View2<const std::int32_t>, double, double, double, \
                                 View1<Acc<S>>);
CAPSTAN_INSTANTIATE_ACC(CAPSTAN_BALANCE)

}  // namespace capstan
