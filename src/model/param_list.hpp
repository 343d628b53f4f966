#pragma once
/// \file The one list of the model's tensors: canonical names, global shapes, initial
/// values, in the order of checkpoints, dumps and optimizer state.
#include <string>
#include <vector>

#include "model/shape.hpp"

namespace capstan {

struct ParamSpec {
  /// matrix: truncated normal (+-3 sigma) of std init_std. gain: 1. conv: identity, tap 0
  /// = 1 and the other taps 0. gate_zero: 0. state: 0, no gradient (router bias).
  enum Kind { matrix, gain, conv, gate_zero, state };
  std::string name;  ///< "layer_000/attn/w_q"
  std::vector<index_t>
      shape;  ///< global; a projection is [in, out], stacked ones [N, in, out]
  Kind kind = matrix;
  double init_std = 0;   ///< 0 unless kind is matrix
  bool expert = false;   ///< first axis is split over the expert axis of the grid
  index_t layer = -1;    ///< -1 = embedding, final norm or head
  index_t active = 0;    ///< elements that count as active for one token (see below)
  index_t size() const;  ///< elements
};

/// Canonical order: embed, layers (attention, then MoE), final, head. Tensors of features
/// that the shape has switched off are absent; router_bias always exists. `active`
/// follows the published counts (marin-community/marin#8435): attention projections,
/// router, latent projections, shared experts and top_k of the routed ones; no norms,
/// gates, convolutions, embeddings.
std::vector<ParamSpec> param_list(const ModelShape& shape);

struct ParamTotals {
  index_t total = 0, active = 0;
};
ParamTotals param_totals(const std::vector<ParamSpec>& list);

}  // namespace capstan
