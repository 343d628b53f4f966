#pragma once
/// \file What the routers of all layers keep over a step: the bias in use, the logits and
/// thresholds of every token of the step (backward and the quantile histogram read them), counts.
#include <vector>

#include "base/context.hpp"
#include "comm/grid.hpp"
#include "kernels/routing.hpp"
#include "model/shape.hpp"

namespace capstan {

/// Router figures of one optimizer step, over all ranks, before any drop.
struct RouterReport {
  std::vector<std::int64_t> load;       ///< [L * E] assignments
  std::vector<double> entropy;          ///< [L] of the assignment fractions, nats
  std::vector<double> load_balance;     ///< [L] E sum_e (K f_e) P_e; K when balanced
  std::vector<double> z_loss;           ///< [L] mean logsumexp^2
  std::vector<double> max_over_mean;    ///< [L]
  std::vector<double> bias_min, bias_max;  ///< [L] of the bias used in this step
  std::int64_t assignments = 0;         ///< over all layers
};

template <class S>
class RouterState {
 public:
  /// `step_tokens`: tokens of this rank in one optimizer step.
  RouterState(const ModelShape& shape, index_t step_tokens, Context& ctx);

  void begin_step();
  /// Segments of a micro-batch, placed among the rank's tokens of the step.
  void set_segments(View1<const std::int32_t> segments, index_t first_token);

  View1<Acc<S>> bias(index_t layer) const;
  View2<Acc<S>> logits(index_t layer, index_t first_token, index_t tokens) const;
  View1<Acc<S>> alpha(index_t layer, index_t first_token, index_t tokens) const;
  /// Adds a micro-batch's counts and softmax statistics of this rank.
  void record(index_t layer, View1<const std::int64_t> counts, View2<const Acc<S>> logits,
              View1<const std::int32_t> segments, Context& ctx);
  /// Collective over grid.dense: sums the statistics, and with Balance::qb sets the next bias from
  /// the margins of the whole step (marin-community/marin#8435): beta_e = upper 1 - K/E quantile
  /// of (unbiased logit - threshold), bias = -(beta - mean beta).
  RouterReport end_step(const Grid& grid, Context& ctx);

  /// The pending bias of all layers [L, E]: train state.
  View2<Acc<S>> biases() const { return bias_; }

 private:
  void balance(const Grid& grid, std::int64_t tokens);
  ModelShape shape_;
  index_t step_tokens_;
  View2<Acc<S>> bias_;
  View3<Acc<S>> logits_;
  View2<Acc<S>> alpha_;
  View1<std::int32_t> segments_;
  View2<std::int64_t> load_, histogram_;
  View2<double> probability_;
  View1<double> z_, range_;
};

}  // namespace capstan
