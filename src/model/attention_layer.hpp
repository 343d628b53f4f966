#pragma once
/// \file Attention branch of a block: projections, short convolution on K, QK norm and
/// RoPE, attention, XSA, head gate, output projection. Order of operations as in the
/// reference run (marin-community/marin, experiments/grug/moe_hero_ep/model.py).
#include "kernels/attention.hpp"
#include "model/batch.hpp"
#include "model/param.hpp"

namespace capstan {

template <class S>
class AttentionLayer {
 public:
  AttentionLayer(const ModelShape& shape, const ParamStore<S>& params, index_t layer);

  struct Saved {
    View2<S> q, k, k_conv, v, gate, q_rot, k_rot, o, gated;
    View2<Acc<S>> q_inv, k_inv, lse;
  };
  /// x [T, D] (normed block input) -> out [T, D], before the convolution on the branch.
  void forward(View2<const S> x, const DeviceBatch& batch, Saved& saved, View2<S> out,
               Context& ctx) const;
  /// dx = gradient of x; weights' gradients +=.
  void backward(View2<const S> x, const DeviceBatch& batch, const Saved& saved,
                View2<const S> d_out, View2<S> dx, Context& ctx) const;
  /// Operations of a forward pass over this batch shape (tile products of attention
  /// aside).
  const AttentionShape& shape() const { return shape_; }

 private:
  AttentionShape shape_for(const DeviceBatch& batch) const;
  void backward_core(const DeviceBatch& batch, const Saved& saved, View2<const S> d_gated,
                     View2<S> dq, View2<S> dk, View2<S> dv, View2<S> d_gate,
                     Context& ctx) const;
  AttentionShape shape_;
  index_t kv_width_, rope_dims_;
  double theta_;
  Acc<S> qk_eps_, multiplier_;
  bool xsa_, head_gate_, conv_;
  Tensor<S> w_q_, w_k_, w_v_, w_o_, w_gate_, w_conv_;
};

}  // namespace capstan
