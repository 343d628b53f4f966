#pragma once
/// \file Operations of each op of the model as it is written: the terms of
/// `flops_issued`. 2 m n k for a matrix product; nothing for elementwise work.
#include "model/shape.hpp"

namespace capstan {

/// Operations of one op in a training step of one rank.
struct Cost {
  double gemm_forward = 0;  ///< matrix products (blas/gemm.hpp)
  double gemm_backward = 0;
  double tile_forward = 0;   ///< attention tiles (kernels/attention.hpp)
  double tile_backward = 0;  ///< five products where forward has two
  double gemm() const { return gemm_forward + gemm_backward; }
  double tiles() const { return tile_forward + tile_backward; }
  double total() const { return gemm() + tiles(); }
  Cost& operator+=(const Cost& o);
  /// With the forward pass once more, as recomputing does.
  Cost again() const;
};

/// What a rank computes in a step: its tokens (padding included) in whole sequences, and
/// the rows of its experts in each layer (kept assignments of all ranks to them).
struct Work {
  index_t sequences = 0, seq_len = 0;
  double expert_rows = 0;  ///< mean over layers
  index_t tokens() const { return sequences * seq_len; }
};

/// x W, [tokens, in] x [in, out]: two products of that size in backward.
Cost linear_cost(double tokens, index_t in, index_t out);
Cost norm_gate_cost(const ModelShape& shape, const Work& work);
Cost attention_cost(const ModelShape& shape, const Work& work, index_t layer);
/// Router, latent projections, routed and shared experts of a layer.
Cost moe_cost(const ModelShape& shape, const Work& work);
/// Both halves of a block, with what <model> recompute repeats.
Cost layer_cost(const ModelShape& shape, const Work& work, index_t layer);
/// Final norm and head.
Cost head_cost(const ModelShape& shape, const Work& work);
/// A training step, with what <model> recompute repeats; without the optimizer.
Cost step_cost(const ModelShape& shape, const Work& work);

}  // namespace capstan
