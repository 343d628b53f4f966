#pragma once
/// \file What one training step reports: the row of the history.
#include <map>
#include <string>
#include <vector>

#include "model/loss.hpp"
#include "model/moe/router_state.hpp"
#include "optim/optimizer.hpp"

namespace capstan {

struct StepReport {
  std::int64_t step = 0;    ///< from 1
  std::int64_t tokens = 0;  ///< seen up to and including this step
  std::int64_t step_tokens = 0, counted_tokens = 0, padding_tokens = 0;
  double cross_entropy = 0, z_loss = 0, aux = 0;  ///< means over counted tokens, weighted
  RouterTerms router_terms;                       ///< the two parts of aux
  std::vector<double> lr;                         ///< of each parameter group
  Norms gradient;
  Norms parameter;         ///< of the masters before the update
  double update_norm = 0;  ///< of what the step took from the masters
  bool skipped = false;    ///< no update: something was not finite
  std::string not_finite;  ///< what, where skipped
  RouterReport router;     ///< empty where skipped
  double seconds = 0;      ///< wall time of the step on this rank
  std::map<std::string, double> phase_seconds;  ///< exclusive, of this rank
  std::int64_t memory_peak_bytes = 0;
  double total() const { return cross_entropy + z_loss + aux; }
};

}  // namespace capstan
