#pragma once
/// \file FLOPs per token in the convention of the published totals of the reference run.
#include "model/shape.hpp"

namespace capstan {

/// `flops_published`, per token. Matrix work of the active parameters, attention over the
/// whole window or context (not halved for causality, floor(layers / global_every) layers
/// counted as global), 12 per active expert neuron; the head apart. Reproduces the totals
/// of the scaling ladder of marin-community/marin#8435.
struct PublishedFlops {
  double forward_without_head = 0;
  double head = 0;
  double forward() const { return forward_without_head + head; }
  /// Forward and backward: three times forward.
  double training() const { return 3 * forward(); }
};

PublishedFlops published_flops(const ModelShape& shape);

}  // namespace capstan
