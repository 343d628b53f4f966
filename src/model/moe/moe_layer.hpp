#pragma once
/// \file The MoE branch of a block: router, latent projection, routed experts, shared
/// experts. After LatentMoE of the reference run (marin-community/marin#8435).
#include "model/batch.hpp"
#include "model/moe/dispatch.hpp"
#include "model/moe/experts.hpp"
#include "model/moe/router_state.hpp"
#include "model/moe/transport.hpp"
#include "model/param.hpp"

namespace capstan {

/// Why a forward pass runs: `train` records router statistics, `recompute` repeats a
/// training pass and records nothing, `count` runs ahead of a training pass, forward
/// only, and records the routers' choices alone, `eval` leaves all train state untouched.
enum class Pass { train, recompute, count, eval };

/// Nothing of this pass is needed by a backward pass.
constexpr bool forward_only(Pass pass) {
  return pass == Pass::count || pass == Pass::eval;
}

template <class S>
class MoeLayer {
 public:
  MoeLayer(const ModelShape& shape, const ParamStore<S>& params,
           RouterState<Acc<S>>& routers, const Grid& grid, index_t layer);

  struct Saved {
    /// [T, K] as chosen, the choices after them (spill), and after spill: the weights are
    /// of `routed`.
    View2<std::int32_t> experts, next, routed;
    View2<Acc<S>> logits, weights;
    std::vector<View2<S>> rows, gate, up;  ///< of each wave
    View2<S> latent_raw, latent, returned, combined, shared_gate, shared_up;
    View1<Acc<S>> latent_inv;
    DispatchPlan plan;
    bool add = true;  ///< to the experts' gradients: not the step's first micro-batch
  };
  /// x [T, D] (normed) -> out [T, D]. Collective over grid.expert_group.
  void forward(View2<const S> x, const DeviceBatch& batch, Pass pass, Saved& saved,
               View2<S> out, Context& ctx) const;
  /// dx = gradient of x; weights' gradients +=, but those of experts = in a step's first
  /// micro-batch: writing them once is cheaper than a zero fill that is read again.
  void backward(View2<const S> x, const DeviceBatch& batch, Saved& saved,
                View2<const S> d_out, View2<S> dx, Context& ctx) const;

 private:
  void forward_router(View2<const S> x, const DeviceBatch& batch, Pass pass, Saved& saved,
                      Context& ctx) const;
  void make_plan(const DeviceBatch& batch, Pass pass, Saved& saved, Context& ctx) const;
  void forward_experts(View2<const S> source, Pass pass, Saved& saved,
                       Context& ctx) const;
  void forward_routed(View2<const S> x, const DeviceBatch& batch, Pass pass, Saved& saved,
                      View2<S> out, Context& ctx) const;
  View2<S> backward_experts(View2<S> d_returned, Saved& saved, Context& ctx) const;
  void forward_shared(View2<const S> x, Saved& saved, View2<S> out, Context& ctx) const;
  void backward_routed(View2<const S> x, Saved& saved, View2<const S> d_out,
                       View2<Acc<S>> d_weights, View2<S> dx, Context& ctx) const;
  void backward_router(View2<const S> x, const DeviceBatch& batch, const Saved& saved,
                       View2<const Acc<S>> d_weights, View2<S> dx, Context& ctx) const;
  void backward_shared(View2<const S> x, const Saved& saved, View2<const S> d_out,
                       View2<S> dx, Context& ctx) const;
  Tensor<S> shared(const Tensor<S>& all, index_t n) const;
  Score score() const { return shape_.softmax ? Score::softmax : Score::sigmoid; }

  ModelShape shape_;
  RouterState<Acc<S>>* routers_;
  const Grid* grid_;
  index_t layer_;  ///< row of RouterState
  Tensor<S> router_, latent_down_, latent_norm_, latent_up_;
  Tensor<S> shared_gate_, shared_up_, shared_down_;
  ExpertWeights<S> experts_;
};

}  // namespace capstan
