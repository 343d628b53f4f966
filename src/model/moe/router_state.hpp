#pragma once
/// \file What the routers of a stage's layers keep over a step: the bias in use, the
/// logits and thresholds of every token of the step (backward and the quantile histogram
/// read them), counts.
#include <vector>

#include "base/context.hpp"
#include "comm/grid.hpp"
#include "kernels/routing.hpp"
#include "model/batch.hpp"
#include "model/moe/drop_stats.hpp"
#include "model/shape.hpp"

namespace capstan {

/// Router figures of one optimizer step, over all ranks, before any drop.
struct RouterReport {
  std::vector<std::int64_t> load;    ///< [L * E] assignments
  std::vector<double> entropy;       ///< [L] of the assignment fractions, nats
  std::vector<double> load_balance;  ///< [L] E sum_e (K f_e) P_e; K when balanced
  std::vector<double> z_loss;        ///< [L] mean logsumexp^2
  std::vector<double>
      balance_loss;  ///< [L] the term of Balance::aux, unweighted; else empty
  std::vector<double> max_over_mean;       ///< [L]
  std::vector<double> bias_min, bias_max;  ///< [L] of the bias used in this step
  /// [L] of the logits less the token's threshold, by Balance::qb; else empty
  std::vector<double> margin_min, margin_max;
  std::int64_t assignments = 0;  ///< over all layers
  DropReport drops;
};

/// Reports of the layers of every stage, in order, as one of all layers. Collective over
/// `pipeline`.
RouterReport gather_layers(const RouterReport& own, const Comm& pipeline);

/// The routers' terms of the objective, weighted: means over valid tokens of the step and
/// layers.
struct RouterTerms {
  double balance = 0, z = 0;
  double total() const { return balance + z; }
};

template <class S>
class RouterState {
 public:
  /// Of `layers` of the model; everywhere else a layer is a row of these, from 0.
  /// `step_tokens`: tokens of this rank in one optimizer step.
  RouterState(const ModelShape& shape, LayerRange layers, index_t step_tokens,
              Context& ctx);
  LayerRange layers() const { return layers_; }

  /// `valid_tokens`: those of the step on all ranks that are no padding; the terms of the
  /// objective are means over them.
  void begin_step(std::int64_t valid_tokens);
  /// Segments of a micro-batch, placed among the rank's tokens of the step.
  void set_segments(View1<const std::int32_t> segments, index_t first_token);

  View1<Acc<S>> bias(index_t layer) const;
  View2<Acc<S>> logits(index_t layer, index_t first_token, index_t tokens) const;
  View1<Acc<S>> alpha(index_t layer, index_t first_token, index_t tokens) const;

  /// The shares of the balance term are those of the whole step, of which a micro-batch
  /// is a part: before any backward pass, every micro-batch must pass through count() in
  /// all layers, then share_counts().
  bool counts_first(index_t micro_batches) const;
  /// experts [T, K] of a micro-batch, before any drop, -1 = padding.
  void count(index_t layer, View2<const std::int32_t> experts, Context& ctx);
  /// Collective over grid.dense.
  void share_counts(const Grid& grid);
  /// Adds a training micro-batch's counts, before any drop, and softmax statistics of
  /// this rank. Collective over grid.dense when the balance term's shares span ranks.
  void record(index_t layer, const DeviceBatch& batch, View2<const std::int32_t> experts,
              View2<const Acc<S>> logits, const Grid& grid, Context& ctx);
  /// d_logits [T, E] += gradient of the terms of the objective, of a recorded
  /// micro-batch.
  void add_gradient(index_t layer, const DeviceBatch& batch,
                    View2<const std::int32_t> experts, View2<const Acc<S>> logits,
                    View2<Acc<S>> d_logits, Context& ctx) const;
  /// Of all that was recorded since begin_step, in all layers of the model. Collective
  /// over grid.dense and grid.pipeline.
  RouterTerms terms(const Grid& grid) const;

  /// Collective over grid.dense and grid.pipeline: sums the statistics, reports those of
  /// all layers of the model, and sets the bias of the next step.
  /// Balance:: qb, from the margins of the whole step (marin-community/marin#8435):
  /// beta_e = upper 1 - K/E quantile of (unbiased logit - threshold), bias = -(beta -
  /// mean beta). Balance::sign: sign_bias.
  RouterReport end_step(const Grid& grid, Context& ctx);

  /// What became of the assignments of the step.
  DropStats& drops() { return drops_; }
  /// The pending bias of these layers [L, E]: train state.
  View2<Acc<S>> biases() const { return bias_; }

 private:
  bool by_sequence() const { return shape_.aux_scope == AuxScope::sequence; }
  /// Groups of tokens with shares of their own, in a micro-batch.
  index_t groups(const DeviceBatch& batch) const;
  View2<std::int64_t> group_counts(View2<const std::int32_t> experts, index_t groups,
                                   Context& ctx) const;
  bool by_micro_batch() const { return shape_.aux_scope == AuxScope::micro_batch; }
  View2<std::int64_t> scope_row(index_t row) const;
  View2<std::int64_t> scope_counts(index_t layer, const DeviceBatch& batch) const;
  void record_balance(index_t layer, const DeviceBatch& batch,
                      View2<const std::int64_t> counts, View2<const double> probability,
                      const Grid& grid, Context& ctx);
  RouterReport own_report(const Grid& grid) const;
  void set_bias(const Grid& grid, RouterReport& report);
  void quantile_balance(const Grid& grid, std::int64_t assignments_per_layer,
                        RouterReport& report);

  ModelShape shape_;
  LayerRange layers_;
  index_t step_tokens_;
  DropStats drops_;
  std::int64_t valid_tokens_ = 0;
  bool counted_ = false;  ///< scope_counts_ holds the whole step
  View2<Acc<S>> bias_;
  View3<Acc<S>> logits_;
  View2<Acc<S>> alpha_;
  View1<std::int32_t> segments_;
  View2<std::int64_t> load_;
  View2<std::int32_t> histogram_;
  /// [L, E] over all ranks: of the balance term's scope (AuxScope::micro_batch: [M * L,
  /// E], as several may be between their passes), or of the step at its end
  /// (Balance::sign).
  View2<std::int64_t> scope_counts_;
  View2<double> probability_;
  View1<double> z_, range_, balance_;  ///< [L], [2], [L]: sums of this rank
};

}  // namespace capstan
