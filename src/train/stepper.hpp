#pragma once
/// \file One optimizer step, as a page of sentences.
#include "data/loader.hpp"
#include "model/model.hpp"
#include "optim/optimizer.hpp"
#include "optim/schedule.hpp"
#include "train/pipeline.hpp"
#include "train/report.hpp"

namespace capstan {

/// Everything of a run that a step changes.
template <class S>
struct TrainState {
  Model<S>& model;
  Optimizer<S>& optimizer;
  std::int64_t step = 0, tokens = 0;  ///< done so far
  /// Tokens of data that roll backs have passed over: the data goes on at tokens +
  /// data_offset. And how many there were.
  std::int64_t data_offset = 0, rollbacks = 0;
  double rate_scale = 1;  ///< of all learning rates: what roll backs took off
  std::int64_t data_position() const { return tokens + data_offset; }
};

template <class S>
class Stepper {
 public:
  Stepper(const Deck& deck, const Grid& grid, Loader& loader, TrainState<S>& state,
          Context& ctx);

  /// Trains on the next batch and updates the weights. Where loss or gradients are not
  /// finite nothing is updated: Error(Exit::diverged) naming the tensors, or with
  /// optimizer/non_finite = skip a report that is marked. Collective over the world.
  StepReport run();
  /// The two halves, for dumps: gradients of the next batch, and what follows.
  StepReport gradients();
  void update(StepReport& report);
  Pipeline<S>& pipeline() { return pipeline_; }

 private:
  void count_tokens(const std::vector<Batch>& batches, StepReport& report) const;
  void count_assignments(const std::vector<Batch>& batches);
  void check_finite(StepReport& report);
  double clip_scale(const StepReport& report) const;

  const Grid& grid_;
  Loader& loader_;
  TrainState<S>& state_;
  Context& ctx_;
  Pipeline<S> pipeline_;
  Schedule schedule_;
  double z_coefficient_, clip_norm_;
  index_t skips_allowed_ = 0, skips_in_a_row_ = 0;
  std::map<std::string, Timers::Entry> before_;
  double started_ = 0;
};

}  // namespace capstan
