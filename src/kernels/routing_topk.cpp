#include "base/error.hpp"
#include "base/math.hpp"
#include "base/parallel.hpp"
#include "kernels/limits.hpp"
#include "kernels/routing.hpp"

namespace capstan {

namespace {

/// Added to the sum of the scores before the division.
constexpr double kSumFloor = 1e-9;

/// The unbiased score of a selected expert; `highest` = the highest logit of the
/// selected.
template <class A>
KOKKOS_INLINE_FUNCTION A score_of(Score score, A logit, A highest) {
  return score == Score::sigmoid ? sigmoid(logit) : fexp(logit - highest);
}

/// d score / d logit.
template <class A>
KOKKOS_INLINE_FUNCTION A slope_of(Score score, A s) {
  return score == Score::sigmoid ? s * (A(1) - s) : s;
}

/// The highest logit of the selected, where the score needs it.
template <class A>
KOKKOS_INLINE_FUNCTION A highest_of(const Team& team, Score score, const A* logits,
                                    const std::int32_t* experts, index_t k) {
  return score == Score::sigmoid
             ? A(0)
             : team.max(k, kLowest<A>, [=](index_t i) { return logits[experts[i]]; });
}

/// Scores of the selected experts of one token into out [K]; returns their sum + floor.
template <class A>
KOKKOS_INLINE_FUNCTION A scores_of(const Team& team, Score score, const A* logits,
                                   const std::int32_t* experts, index_t k, A* out) {
  const A highest = highest_of(team, score, logits, experts, k);
  team.each(k, [=](index_t i) { out[i] = score_of(score, logits[experts[i]], highest); });
  team.barrier();
  return team.sum(k, [=](index_t i) { return out[i]; }) + A(kSumFloor);
}

/// One token: selection by repeated maximum over the biased logits, held in blocks so
/// that a choice reads the block maxima and one block only.
template <class S>
struct RouteToken {
  using A = Acc<S>;
  /// Experts of a block.
  static constexpr int kBlock = 32;

  View2<const A> logits;
  View1<const A> bias;
  View1<const std::int32_t> segments;
  Score score;
  A score_sum;
  View2<std::int32_t> experts;
  View2<A> weights;
  View1<A> alpha;
  View2<std::int32_t> next;

  static index_t scratch_bytes(index_t e, index_t k) {
    return ((e + kBlock - 1) / kBlock * (kBlock + 1) + k) * index_t(sizeof(A));
  }

  KOKKOS_FUNCTION void operator()(const Team& team, index_t t) const {
    const index_t e = index_t(logits.extent(1)), k = index_t(experts.extent(1));
    std::int32_t* chosen = &experts(t, 0);
    A* weight = &weights(t, 0);
    if (segments(t) < 0) {
      team.each(k, [=](index_t i) {
        chosen[i] = -1;
        weight[i] = A(0);
      });
      const index_t more = index_t(next.extent(1));
      team.each(more, [&](index_t i) { next(t, i) = -1; });
      team.once([&] { alpha(t) = A(0); });
      return;
    }
    const A last = select(team, t, e, k, chosen);
    team.once([&] { alpha(t) = last; });
    A* scores = reinterpret_cast<A*>(team.scratch());
    const A factor = score_sum / scores_of(team, score, &logits(t, 0), chosen, k, scores);
    team.each(k, [=](index_t i) { weight[i] = factor * scores[i]; });
  }

  /// chosen [K] = the top K in falling order, the lower index first among equals; next(t,
  /// :) = those after them. Returns the (K+1)-th biased value, or the K-th when K = E. A
  /// NaN counts as the lowest finite value.
  KOKKOS_FUNCTION A select(const Team& team, index_t t, index_t e, index_t k,
                           std::int32_t* chosen) const {
    constexpr A lowest = kLowest<A>;
    constexpr A taken = kMinusInfinity<A>;
    const index_t blocks = (e + kBlock - 1) / kBlock;
    A* value = reinterpret_cast<A*>(team.scratch());
    A* top = value + blocks * kBlock;
    const A* logit = &logits(t, 0);
    const A* shift = bias.data();
    team.each(e, [=](index_t i) {
      const A v = logit[i] + shift[i];
      value[i] = v > lowest ? v : lowest;
    });
    team.each(blocks * kBlock - e, [=](index_t i) { value[e + i] = taken; });
    team.barrier();
    for (index_t b = 0; b < blocks; ++b) {
      const A most = block_top(team, value + b * kBlock);
      team.once([=] { top[b] = most; });
    }
    team.barrier();
    const index_t more = index_t(next.extent(1));
    const index_t wanted = k + (more > 1 ? more : 1);
    team.each(more, [&](index_t i) { next(t, i) = -1; });
    A threshold = lowest;
    for (index_t i = 0; i < (wanted < e ? wanted : e); ++i) {
      const A best = team.max(blocks, taken, [=](index_t b) { return top[b]; });
      const index_t b = first_equal(team, blocks, top, best);
      const index_t at = first_equal(team, kBlock, value + b * kBlock, best);
      if (i <= k) threshold = best;
      team.barrier();
      team.once([&] {
        const std::int32_t expert = static_cast<std::int32_t>(b * kBlock + at);
        value[b * kBlock + at] = taken;
        if (i < k)
          chosen[i] = expert;
        else if (i - k < more)
          next(t, i - k) = expert;
      });
      team.barrier();
      const A most = block_top(team, value + b * kBlock);
      team.once([=] { top[b] = most; });
      team.barrier();
    }
    return threshold;
  }

  KOKKOS_FUNCTION static A block_top(const Team& team, const A* value) {
    return team.max(index_t(kBlock), kMinusInfinity<A>,
                    [=](index_t i) { return value[i]; });
  }
  /// The lowest index with value[i] == wanted (one exists).
  KOKKOS_FUNCTION static index_t first_equal(const Team& team, index_t n, const A* value,
                                             A wanted) {
    const std::int32_t size = static_cast<std::int32_t>(n);
    return n - team.max(n, std::int32_t(1), [=](index_t i) {
      return value[i] == wanted ? size - static_cast<std::int32_t>(i) : 0;
    });
  }
};

}  // namespace

template <class S>
void route(View2<const Acc<S>> logits, View1<const Acc<S>> bias,
           View1<const std::int32_t> segments, Score score, Acc<S> score_sum,
           View2<std::int32_t> experts, View2<Acc<S>> weights, View1<Acc<S>> alpha,
           View2<std::int32_t> next) {
  const index_t e = index_t(logits.extent(1)), k = index_t(experts.extent(1));
  require(k >= 1 && k <= e, "route: top_k must lie in 1 .. experts");
  par_rows("route", index_t(logits.extent(0)),
           static_cast<int>(RouteToken<S>::scratch_bytes(e, k)),
           RouteToken<S>{logits, bias, segments, score, score_sum, experts, weights,
                         alpha, next});
}

template <class S>
void spill_weights(View2<const Acc<S>> logits, View2<const std::int32_t> experts,
                   View2<const std::int32_t> routed, Score score, Acc<S> score_sum,
                   View2<Acc<S>> weights) {
  using A = Acc<S>;
  const index_t k = index_t(experts.extent(1));
  const int bytes = static_cast<int>(k * index_t(sizeof(A)));
  par_rows(
      "spill_weights", index_t(logits.extent(0)), bytes,
      KOKKOS_LAMBDA(const Team& team, index_t t) {
        const std::int32_t* chosen = &experts(t, 0);
        if (chosen[0] < 0) return;
        const std::int32_t* used = &routed(t, 0);
        const A* logit = &logits(t, 0);
        A* weight = &weights(t, 0);
        A* scores = reinterpret_cast<A*>(team.scratch());
        const A factor = score_sum / scores_of(team, score, logit, chosen, k, scores);
        const A highest = highest_of(team, score, logit, chosen, k);
        team.each(k, [&](index_t i) {
          if (used[i] != chosen[i])
            weight[i] = factor * score_of(score, logit[used[i]], highest);
        });
      });
}

template <class S>
void route_backward(View2<const Acc<S>> logits, View2<const std::int32_t> experts,
                    View2<const Acc<S>> weights, Score score, Acc<S> score_sum,
                    View2<const Acc<S>> d_weights, View2<Acc<S>> d_logits,
                    View2<const std::int32_t> routed) {
  using A = Acc<S>;
  const index_t e = index_t(logits.extent(1)), k = index_t(experts.extent(1));
  const int bytes = static_cast<int>(k * index_t(sizeof(A)));
  const View2<const std::int32_t> weighed = routed.size() > 0 ? routed : experts;
  par_rows(
      "route_backward", index_t(logits.extent(0)), bytes,
      KOKKOS_LAMBDA(const Team& team, index_t t) {
        A* gradient = &d_logits(t, 0);
        team.each(e, [&](index_t i) { gradient[i] = A(0); });
        const std::int32_t* chosen = &experts(t, 0);
        if (chosen[0] < 0) return;
        const A* logit = &logits(t, 0);
        const std::int32_t* used = &weighed(t, 0);
        A* scores = reinterpret_cast<A*>(team.scratch());
        const A sum = scores_of(team, score, logit, chosen, k, scores);
        const A highest = highest_of(team, score, logit, chosen, k);
        const A* weight = &weights(t, 0);
        const A* d_weight = &d_weights(t, 0);
        // w = c s / sum over the chosen: dL/ds = c dL/dw / sum of the experts that are
        // used, less (sum over j of w_j dL/dw_j) / sum of the chosen.
        const A common = team.sum(k, [&](index_t i) { return weight[i] * d_weight[i]; });
        team.each(k, [&](index_t i) {
          const A own = used[i] == chosen[i] ? score_sum * d_weight[i] : A(0);
          gradient[chosen[i]] = slope_of(score, scores[i]) * (own - common) / sum;
        });
        team.each(k, [&](index_t i) {
          if (used[i] == chosen[i]) return;
          const A s = score_of(score, logit[used[i]], highest);
          gradient[used[i]] = slope_of(score, s) * score_sum * d_weight[i] / sum;
        });
      });
}

// clang-format off
#define CAPSTAN_ROUTE(S) \
  template void route<S>(View2<const Acc<S>>, View1<const Acc<S>>, \
                         View1<const std::int32_t>, Score, Acc<S>, View2<std::int32_t>, \
                         View2<Acc<S>>, View1<Acc<S>>, View2<std::int32_t>); \
  template void spill_weights<S>(View2<const Acc<S>>, View2<const std::int32_t>, \
                                 View2<const std::int32_t>, Score, Acc<S>, \
                                 View2<Acc<S>>); \
  template void route_backward<S>(View2<const Acc<S>>, View2<const std::int32_t>, \
                                  View2<const Acc<S>>, Score, Acc<S>, \
                                  View2<const Acc<S>>, View2<Acc<S>>, \
                                  View2<const std::int32_t>);
// clang-format on
CAPSTAN_INSTANTIATE_ACC(CAPSTAN_ROUTE)

}  // namespace capstan
