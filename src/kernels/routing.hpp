#pragma once
/// \file Router arithmetic: top-k with bias, combine weights, statistics,
/// quantile-balancing histogram, counting sort by expert, permutation of rows.
#include "base/types.hpp"

namespace capstan {

enum class Score { sigmoid, softmax };

/// Per valid token (segment >= 0): biased = logits + bias; experts = the top K of biased
/// (ties: the lower index first), in falling order; alpha = the (K+1)-th biased value (K
/// < E), or the lowest when K == E; weights from unbiased scores of the selected:
/// sigmoid(logit) or exp(logit - max) normalised by their sum + 1e-9 to `score_sum`.
/// Padding: experts = -1, weights = 0, alpha = 0. logits [T, E], bias [E], experts [T, K]
/// int32, weights [T, K], alpha [T]. next [T, M] (may be left out) = the M choices after
/// the K, in falling order, -1 where there are no more experts and for padding.
template <class S>
void route(View2<const Acc<S>> logits, View1<const Acc<S>> bias,
           View1<const std::int32_t> segments, Score score, Acc<S> score_sum,
           View2<std::int32_t> experts, View2<Acc<S>> weights, View1<Acc<S>> alpha,
           View2<std::int32_t> next = {});
/// weights [T, K] of the experts `routed`, some of which replace one of the selected
/// `experts` (routed = experts elsewhere): their own score over the sum of the scores of
/// `experts`.
template <class S>
void spill_weights(View2<const Acc<S>> logits, View2<const std::int32_t> experts,
                   View2<const std::int32_t> routed, Score score, Acc<S> score_sum,
                   View2<Acc<S>> weights);
/// d_logits [T, E] = gradient through the weights (selection and bias are constants).
/// `routed`: as for spill_weights; left out = experts.
template <class S>
void route_backward(View2<const Acc<S>> logits, View2<const std::int32_t> experts,
                    View2<const Acc<S>> weights, Score score, Acc<S> score_sum,
                    View2<const Acc<S>> d_weights, View2<Acc<S>> d_logits,
                    View2<const std::int32_t> routed = {});

/// Sums over the valid tokens of each of G equal groups of consecutive tokens:
/// probability_sum [G, E] of the softmax probabilities (fixed order) and z_sum [G] of
/// logsumexp^2. block_sums is scratch, at least [group_blocks(T, G), E + 1].
template <class S>
void router_statistics(View2<const Acc<S>> logits, View1<const std::int32_t> segments,
                       View2<double> block_sums, View2<double> probability_sum,
                       View1<double> z_sum);

/// counts [G, E] = assignments (experts [T, K], -1 = padding) of each of G equal groups
/// of consecutive tokens. block_counts is scratch, at least [group_blocks(T, G), E].
void count_by_group(View2<const std::int32_t> experts, View2<std::int32_t> block_counts,
                    View2<std::int64_t> counts);
index_t group_blocks(index_t tokens, index_t groups);
/// shares [G, E] = counts / their sum over the experts of the group (0 without any).
void assignment_shares(View2<const std::int64_t> counts, View2<double> shares);
/// d_logits [T, E] += the gradient of the sum over valid tokens of
///   balance * sum_e f_e p_e + z * logsumexp^2
/// with p the softmax of the token's logits and f = shares [G, E] of its group (equal
/// groups of consecutive tokens), a constant.
template <class S>
void router_losses_backward(View2<const Acc<S>> logits,
                            View1<const std::int32_t> segments,
                            View2<const double> shares, double balance, double z,
                            View2<Acc<S>> d_logits);

/// bias_e += rate * sign(mean load - load_e), compared as integers: E load_e against
/// their sum. load [E] over the whole step and all ranks. Auxiliary-loss-free balancing
/// of DeepSeek-V3 (arXiv:2412.19437, section 2.1.2; arXiv:2408.15664); the mean of the
/// bias is left alone, since it moves no selection.
template <class S>
void sign_bias(View1<const std::int64_t> load, double rate, View1<Acc<S>> bias);

/// margins = logits - alpha over valid tokens: range [2] = lowest and highest, {+max,
/// -max} when there is no valid token. The logits are the unbiased ones; alpha is
/// route's, biased.
template <class S>
void margin_range(View2<const Acc<S>> logits, View1<const Acc<S>> alpha,
                  View1<const std::int32_t> segments, View1<double> range);
/// counts [E, bins] += margins binned over [lo, hi]: bin = floor((m - lo) * (bins / (hi -
/// lo))), kept inside 0 .. bins-1. Needs hi > lo: callers widen the range to at least
/// 1e-6 * max(1, |lo|). An integer per token and expert, so the sum over parts of the
/// tokens does not depend on how they are cut.
template <class S>
void margin_histogram(View2<const Acc<S>> logits, View1<const Acc<S>> alpha,
                      View1<const std::int32_t> segments, double lo, double hi,
                      View2<std::int32_t> counts);
/// bias = -(beta - mean beta), beta_e = the value that `target` = tokens * K / E of
/// expert e's margins reach: walk the counts from the top, interpolate linearly inside
/// the crossing bin (lo when the counts stay below the target).
template <class S>
void quantile_bias(View2<const std::int32_t> counts, double lo, double hi, double target,
                   View1<Acc<S>> bias);

/// Stable counting sort of assignments (token t, choice k) by expert, tokens in order
/// inside an expert; assignments with expert < 0 are left out. counts [E]; offsets [E +
/// 1] = first row of each expert, then the number of rows; order [T*K]: row r of the
/// sorted list is assignment order[r] = t * K + k; slot [T*K]: its inverse (-1 = left
/// out). block_counts is scratch, at least [sort_blocks(T), E].
void sort_by_expert(View2<const std::int32_t> experts, View2<std::int32_t> block_counts,
                    View1<std::int64_t> counts, View1<std::int64_t> offsets,
                    View1<std::int32_t> order, View1<std::int32_t> slot);
index_t sort_blocks(index_t tokens);

/// y[r] = x[order[r] div K] for r in [0, rows): x [T, Z] -> y [rows, Z]. A row of order
/// -1 is left as it is, here and in combine_backward.
template <class S>
void gather_rows(View2<const S> x, View1<const std::int32_t> order, index_t k,
                 View2<S> y);
/// dx[t] = sum over k of dy[slot[t*K + k]] (skipping -1): the adjoint of gather_rows.
template <class S>
void gather_rows_backward(View2<const S> dy, View1<const std::int32_t> slot, index_t k,
                          View2<S> dx);
/// out[t] = sum over k of weights[t, k] * y[slot[t*K + k]] (skipping -1), summed in Acc.
template <class S>
void combine(View2<const S> y, View1<const std::int32_t> slot,
             View2<const Acc<S>> weights, View2<S> out);
/// dy[r] = weights[order[r]] * d_out[token of r]; d_weights[t, k] = d_out[t] . y[slot] (0
/// for -1). dy may be y's memory.
template <class S>
void combine_backward(View2<const S> y, View1<const std::int32_t> order,
                      View1<const std::int32_t> slot, View2<const Acc<S>> weights,
                      View2<const S> d_out, View2<S> dy, View2<Acc<S>> d_weights);
/// y[r] = x[index[r]], a row of zeros where index is -1.
template <class S>
void permute_rows(View2<const S> x, View1<const std::int32_t> index, View2<S> y);

}  // namespace capstan
