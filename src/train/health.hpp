#pragma once
/// \file The rules that watch a run, between its steps: what they see, what they demand.
#include <string>
#include <vector>

#include "base/log.hpp"
#include "comm/comm.hpp"
#include "train/columns.hpp"
#include "train/health_rule.hpp"

namespace capstan {

/// What the rules demand after a step; the same on all ranks.
struct HealthVerdict {
  bool skip = false, checkpoint = false, roll_back = false, stop = false;
  std::int64_t before_step = 0;  ///< of roll_back: a checkpoint older than this step
  double rate_factor = 1;        ///< of roll_back: for all learning rates
  std::string why;               ///< of skip, roll_back and stop: rule and numbers
};

/// Rank 0 keeps the rules' windows and decides; the verdict goes to all ranks, so that it
/// is one whatever they measured.
class Health {
 public:
  /// Collective. `columns`: names of the history's columns; `early`: those that are known
  /// before the update. Error(Exit::deck) lists metrics that do not exist, and bands
  /// that cannot be read.
  Health(const Deck& deck, const std::vector<std::string>& columns,
         const std::vector<std::string>& early, const Comm& world, Log& log);

  bool any() const { return !watches_.empty(); }
  /// Restores the windows from the rows of history.txt up to `start_step`: exact, the
  /// text has every bit. Says how many steps were found where any are missing.
  void refill(const std::string& history, std::int64_t start_step);
  /// Shows the rules of action skip what is known before the update. Collective.
  HealthVerdict before_update(std::int64_t step, std::int64_t tokens,
                              const std::vector<Figure>& early);
  /// Shows all other rules a step; `eval_loss` where it was evaluated, else null.
  /// `rollbacks`: how many the run has made. Collective.
  HealthVerdict after_step(std::int64_t step, std::int64_t tokens,
                           const std::vector<Figure>& row, const double* eval_loss,
                           std::int64_t rollbacks);

  /// An alarm as events tell it, on rank 0 only; taken once.
  struct Event {
    std::int64_t step, tokens;
    std::string text;
  };
  std::vector<Event> take_events();

 private:
  void judge(const RuleWatch& watch, const Alarm& alarm, std::int64_t step,
             std::int64_t tokens, std::int64_t rollbacks, HealthVerdict& verdict);
  HealthVerdict agreed(HealthVerdict verdict) const;

  const Comm& world_;
  Log& log_;
  std::vector<RuleWatch> watches_;
  std::vector<std::int64_t> skips_in_a_row_;  ///< of each rule
  std::vector<Event> events_;
};

}  // namespace capstan
