#pragma once
/// \file One run on this rank: everything built from a deck, and what can be done with
/// it.
#include <chrono>
#include <memory>

#include "base/runtime.hpp"
#include "deck/command_line.hpp"
#include "train/checkpoint.hpp"
#include "train/diagnostics.hpp"
#include "train/evaluator.hpp"
#include "train/health.hpp"
#include "train/stepper.hpp"

namespace capstan {

/// Every piece of the run's state that this rank holds, whole or (`share`) only what it
/// writes so that the replicas together write once. Masters and router biases under
/// params/, moments under optimizer/first and optimizer/second.
template <class S>
std::vector<TensorPiece> state_pieces(TrainState<S>& state, const Grid& grid, bool share,
                                      bool with_optimizer);

/// Name of a layer's router bias among the pieces.
std::string router_bias_name(index_t layer);

template <class S>
class Run {
 public:
  /// Collective. Opens the data, builds the model and draws its initial values.
  Run(const Deck& deck, const CommandLine& line, const Grid& grid, int threads,
      Context& ctx);

  /// Trains to the end, or until asked to stop.
  Exit train();
  /// One step from the initial state, nothing written: what -v does.
  StepReport single_step() { return stepper_.run(); }
  /// --eval and --generate on the checkpoint of -r.
  Exit evaluate();
  Exit sample();

 private:
  struct Requests {
    bool stop = false, checkpoint = false;
    std::string why;
  };
  void restart(RunDir& dir);
  void load(const std::string& folder, bool with_optimizer);
  void adopt(const CheckpointInfo& info);
  void check_restart(const CheckpointInfo& info) const;
  void check_rates(const Deck& before, std::int64_t tokens) const;
  void check_data(const Deck& before, const CheckpointInfo& info) const;
  void start_files(RunDir& dir);
  void start_diagnostics(const RunDir& dir);
  StepReport one_step(const RunDir& dir, std::vector<Figure>& row);
  bool heed(RunDir& dir, const HealthVerdict& verdict);
  void judge_update(StepReport& report);
  void roll_back(RunDir& dir, const HealthVerdict& verdict);
  std::string load_before(const std::string& folder, std::int64_t step);
  void log_step(const StepReport& report, const std::vector<Figure>& row) const;
  bool crossed(index_t every, const StepReport& report) const;
  void evaluate_now(const RunDir& dir);
  Requests requests(const RunDir& dir) const;
  Requests between_steps(const RunDir& dir);
  void check_replicas();
  bool save(const RunDir& dir);
  void write_times(const RunDir& dir);
  Exit finish(const RunDir& dir, const Requests& asked);
  Exit finish_stopped(const RunDir& dir);
  void set_status(const RunDir& dir, const std::string& what) const;
  Attributes attributes(int segment) const;
  RunFacts facts() const;

  const Deck& deck_;
  const CommandLine& line_;
  const Grid& grid_;
  int threads_;
  Context& ctx_;
  Sampler sampler_;
  Loader loader_;
  Model<S> model_;
  Optimizer<S> optimizer_;
  TrainState<S> state_;
  Stepper<S> stepper_;
  Evaluator<S> evaluator_;
  std::unique_ptr<Diagnostics> diagnostics_;
  std::unique_ptr<Health> health_;
  std::string health_stop_;  ///< why a rule ends the run
  RunFigures figures_;
  index_t total_steps_ = 0;
  std::int64_t start_step_ = 0, saved_step_ = -1, evaluated_step_ = -1;
  /// Since the start of the process, as far as this rank can tell; timers are reset.
  struct Clock {
    std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
    double seconds() const {
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
          .count();
    }
  };
  Clock run_clock_;
  double gemm_peak_gflops_ = 0, last_status_ = -2;
  double step_seconds_ = 0, longest_step_ = 0, save_seconds_ = 1;
  double last_eval_ = 0, last_loss_ = 0;
};

}  // namespace capstan
