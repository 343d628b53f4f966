#pragma once
/// \file In which order a pipeline stage works on the micro-batches of a step: one
/// forward, one backward (1F1B; PipeDream-Flush, arXiv:2006.09503 and arXiv:2104.04473).
#include <vector>

#include "base/types.hpp"

namespace capstan {

/// The forward or the backward pass of one micro-batch.
struct StagePass {
  bool forward = true;
  index_t micro_batch = 0;
};

/// Forward passes until the first backward pass can follow (min(m, p - 1 - s) of them),
/// then one forward and one backward pass in turn, then the backward passes that are
/// left. Both kinds come in order of micro-batches.
std::vector<StagePass> one_forward_one_backward(index_t stages, index_t stage,
                                                index_t micro_batches);

/// Micro-batches of a stage that are between their passes, at most: min(m, p - s). So
/// many times the activations of one is what the stage must hold.
index_t most_in_flight(index_t stages, index_t stage, index_t micro_batches);

/// Part of a step that a stage is idle when all passes of a kind take equally long:
/// (p - 1) / (m + p - 1).
double bubble_fraction(index_t stages, index_t micro_batches);

}  // namespace capstan
