#pragma once
/// \file How long a step takes on a machine that <topology> describes, by phase: work
/// over rate, from counts of operations and bytes. What is estimated is said in
/// inputs/machines/README.
#include <string>
#include <vector>

#include "plan/plan.hpp"

namespace capstan {

struct PhaseTime {
  std::string name;
  double seconds = 0;
};

struct StepTime {
  std::vector<PhaseTime> phases;  ///< of the busiest rank, one after the other
  double exchange_bytes = 0;      ///< that a rank sends to other ranks for its experts
  double reduce_bytes = 0;        ///< that a rank sends to other domains for gradients
  double checkpoint_bytes = 0;    ///< of all ranks
  double checkpoint_seconds = 0;  ///< 0 = the storage's rate is not known
  double seconds() const;
};

/// Empty phases where the deck's topology does not give the rates.
StepTime predict_step(const Deck& deck, const Plan& plan);

/// Lines "PLAN: step_seconds=..." and the table of phases; "" where nothing is known.
std::string step_time_text(const Plan& plan, const StepTime& time);

}  // namespace capstan
