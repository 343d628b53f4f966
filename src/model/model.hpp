#pragma once
/// \file The whole model on this rank: embedding, blocks, head, and the state of the
/// routers.
#include <vector>

#include "model/block.hpp"
#include "model/loss.hpp"

namespace capstan {

template <class S>
class Model {
 public:
  /// `step_tokens`: tokens of this rank in one optimizer step. `grid` must outlive the
  /// model.
  Model(const ModelShape& shape, const Grid& grid, index_t step_tokens, Context& ctx);

  const ModelShape& shape() const { return shape_; }
  ParamStore<S>& params() { return params_; }
  RouterState<S>& routers() { return routers_; }

  /// Zeroes gradients and step statistics. `valid_tokens`: those of the step on all
  /// ranks that are no padding.
  void begin_step(std::int64_t valid_tokens);
  /// Forward only, for RouterState::counts_first. Collective over grid.expert_group.
  void count(const DeviceBatch& batch, Context& ctx);
  /// Forward and backward of one micro-batch; gradients += those of scale * sum over
  /// counted tokens, and of the routers' terms of the objective (means over the step).
  /// Collective over grid.expert_group.
  void train(const DeviceBatch& batch, double scale, LossSums& sums, Context& ctx);
  /// Forward only, the pending bias applied, dropless; no train state changes. Collective
  /// over grid.expert_group.
  void evaluate(const DeviceBatch& batch, LossSums& sums, Context& ctx);
  /// Logits [V] at one position of the batch (forward only), for sampling.
  std::vector<double> logits_at(const DeviceBatch& batch, index_t position, Context& ctx);
  /// Sums gradients over the replicas. Collective over grid.dense.
  void reduce_gradients(Context& ctx);

  /// Receives the routing of a micro-batch after its forward pass (for dumps).
  using RoutingProbe = void (*)(void* user, index_t layer, const DeviceBatch&,
                                const typename MoeLayer<S>::Saved&);
  void set_probe(RoutingProbe probe, void* user) {
    probe_ = probe;
    probe_user_ = user;
  }

 private:
  void embed(const DeviceBatch& batch, typename NormGate<S>::Saved& norm, View2<S> raw,
             View2<S> x, Context& ctx);
  void embed_backward(const DeviceBatch& batch, const typename NormGate<S>::Saved& norm,
                      View2<const S> raw, View2<S> d, Context& ctx);
  DeviceBatch with_group(const DeviceBatch& batch) const;
  View2<S> forward_alone(const DeviceBatch& batch, Pass pass, Context& ctx);

  ModelShape shape_;
  const Grid& grid_;
  ParamStore<S> params_;
  RouterState<S> routers_;
  Tensor<S> table_;
  NormGate<S> embed_norm_;
  std::vector<Block<S>> blocks_;
  LossHead<S> head_;
  RoutingProbe probe_ = nullptr;
  void* probe_user_ = nullptr;
};

}  // namespace capstan
