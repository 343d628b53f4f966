#pragma once
/// \file What a deck amounts to, without building the model: parameters, FLOPs, memory
/// per rank, grid map.
#include <string>
#include <vector>

#include "model/cost.hpp"
#include "model/flops.hpp"
#include "plan/memory.hpp"

namespace capstan {

struct Plan {
  ModelShape shape;
  ParamTotals parameters;
  PublishedFlops flops;
  Cost issued;               ///< of one rank's step, all assignments kept and balanced
  double newton_schulz = 0;  ///< operations of the optimizer in one rank's step
  index_t tokens_per_step = 0;
  index_t steps = 0;              ///< 0 when the deck gives no length
  index_t rank_micro_tokens = 0;  ///< tokens of one rank in one micro-batch
  index_t n_pipe = 1, n_data = 1, n_expert = 1;
  index_t micro_batches = 1;
  std::vector<MemoryLine> memory;

  double peak_flops = 0;                      ///< of one rank; 0 = unknown
  double device_memory = 0, host_memory = 0;  ///< of one rank, bytes; 0 = unknown

  index_t ranks() const { return n_pipe * n_data * n_expert; }
  /// Sums of `memory`: device, host.
  MemoryLine used() const;
  /// False only when a known memory is too small for what is counted.
  bool fits() const;
};

/// Takes milliseconds and no memory to speak of, whatever the deck.
Plan make_plan(const Deck& deck);

/// The report of -m: greppable lines "PLAN: key=value ...", then the memory table, the
/// grid map and notes on what this version cannot run.
std::string plan_text(const Deck& deck, const Plan& plan);

}  // namespace capstan
