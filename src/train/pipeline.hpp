#pragma once
/// \file The micro-batches of a step through this rank's stage of the model.
#include <string>

#include "data/batch.hpp"
#include "model/model.hpp"
#include "train/stage_links.hpp"
#include "train/stage_order.hpp"

namespace capstan {

/// How long the training passes took on this rank, and how long they waited for other
/// stages.
struct StageTime {
  double seconds = 0, waited = 0;
  index_t micro_batches = 0;     ///< of a step
  index_t in_flight = 0;         ///< at most
  index_t activation_bytes = 0;  ///< most that a micro-batch kept between its passes
};

/// A line for timing.txt: the idle part of the passes beside the formula, and what every
/// stage held. Empty where there is one stage. Collective over the world.
std::string pipeline_line(const StageTime& time, LayerRange layers, const Grid& grid);

/// All verbs are collective over the world: every stage is given the micro-batches of its
/// place among data x expert.
template <class S>
class Pipeline {
 public:
  Pipeline(Model<S>& model, const Grid& grid, Context& ctx)
      : model_(model), grid_(grid), ctx_(ctx) {}

  /// Forward and backward of all; gradients += those of scale * sum over counted tokens.
  /// The losses are found on the last stage.
  void train(const std::vector<Batch>& batches, double scale, LossSums& sums);
  /// The passes that count assignments ahead (RouterState::counts_first).
  void count(const std::vector<Batch>& batches);
  /// Held-out losses, on the last stage.
  void evaluate(const std::vector<Batch>& batches, LossSums& sums);
  /// Logits [V] at one position of a batch, on all ranks.
  std::vector<double> logits(const Batch& batch, index_t position);

  const StageTime& time() const { return time_; }
  void reset_time() { time_ = StageTime(); }

 private:
  DeviceBatch upload(const Batch& batch, index_t first_token, bool for_backward);
  template <class F>
  void forward_only(const std::vector<Batch>& batches, Pass pass, const F& use);

  Model<S>& model_;
  const Grid& grid_;
  Context& ctx_;
  StageTime time_;
};

}  // namespace capstan
