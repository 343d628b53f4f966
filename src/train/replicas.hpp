#pragma once
/// \file Copies of one tensor on several ranks are the same bits, or something is broken:
/// a reduction that missed a rank, memory that flips bits.
#include "train/run.hpp"

namespace capstan {

/// Tensors of the train state (masters, moments, router biases; with sharded state
/// weights) whose copies differ between the ranks that hold them, the same list on all
/// ranks. Collective over the world.
template <class S>
std::vector<std::string> differing_replicas(TrainState<S>& state, const Grid& grid);

}  // namespace capstan
