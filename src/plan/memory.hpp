#pragma once
/// \file Memory of one rank, from the list of tensors and the deck's grid.
#include <string>
#include <vector>

#include "deck/deck.hpp"
#include "model/stage.hpp"

namespace capstan {

/// Bytes of the fullest rank under a name of the memory ledger.
struct MemoryLine {
  std::string name;
  index_t device = 0, host = 0;
};

/// Elements of the parameters that a pipeline stage puts on each of its ranks.
struct StageParams {
  index_t dense = 0, expert = 0;  ///< expert: this rank's part of the routed experts
  /// Elements of optimizer moments, over the same tensors: two for the Adam kinds, one
  /// for muonh.
  index_t dense_moments = 0, expert_moments = 0;
  /// Elements of masters and of moments that its fullest rank keeps where the state is
  /// sharded.
  index_t owned = 0, owned_moments = 0;
};

StageParams stage_params(const Deck& deck, const std::vector<ParamSpec>& list,
                         const Stage& stage);

/// Weights (where apart from the masters), masters, gradients, moments and router state,
/// carried inputs of the layers, what they save, and working arrays, the largest over
/// pipeline stages.
std::vector<MemoryLine> memory_per_rank(const Deck& deck, const ModelShape& shape,
                                        const std::vector<ParamSpec>& list);

}  // namespace capstan
