#pragma once
/// \file The model on this rank: embedding, blocks, head, and the state of the routers.
#include <optional>
#include <vector>

#include "model/block.hpp"
#include "model/loss.hpp"
#include "model/stage.hpp"

namespace capstan {

/// What a micro-batch leaves on a stage between its passes. It lies in the arena, in the
/// lane of its forward pass.
template <class S>
struct Flight {
  DeviceBatch batch;
  View2<S> raw;  ///< rows of the embedding (first stage)
  typename NormGate<S>::Saved embed_norm;
  std::vector<View2<S>> x;  ///< input of every block, and the output of the last
  std::vector<typename Block<S>::Saved> blocks;
};

/// The part of the model that a pipeline stage has; the whole where there is one stage.
template <class S>
class Model {
 public:
  /// `step_tokens`: tokens of this rank in one optimizer step. `grid` must outlive the
  /// model.
  Model(const ModelShape& shape, const Grid& grid, index_t step_tokens, Context& ctx);

  const ModelShape& shape() const { return shape_; }
  const Stage& stage() const { return stage_; }
  ParamStore<S>& params() { return params_; }
  RouterState<Acc<S>>& routers() { return routers_; }

  /// Zeroes gradients and step statistics. `valid_tokens`: those of the step on all
  /// ranks that are no padding.
  void begin_step(std::int64_t valid_tokens);

  /// Forward pass of one micro-batch. in [T, D]: output of the stage before (unused on
  /// the first); out [T, D]: for the stage behind (unused on the last). Collective over
  /// grid.expert_group, as all passes are.
  void forward(const DeviceBatch& batch, View2<S> in, View2<S> out, Flight<S>& flight,
               Context& ctx);
  /// Backward pass, on the last stage with the head before it; gradients += those of
  /// scale * sum over counted tokens, and of the routers' terms of the objective (means
  /// over the step). d [T, D]: gradient of the stage's output (found here on the last
  /// stage); of its input on return (scratch on the first).
  void backward(Flight<S>& flight, View2<S> d, double scale, LossSums& sums,
                Context& ctx);
  /// Forward only, for Pass::count (RouterState::counts_first) and Pass::eval (the
  /// pending bias applied, dropless; no train state changes). Returns `out`, or on the
  /// last stage its output [T, D] in the arena.
  View2<S> forward_alone(const DeviceBatch& batch, Pass pass, View2<S> in, View2<S> out,
                         Context& ctx);
  /// Adds the losses of forward_alone's result. On the last stage.
  void add_loss(View2<const S> x, const DeviceBatch& batch, LossSums& sums, Context& ctx);
  /// Logits [V] at one position of forward_alone's result. On the last stage.
  std::vector<double> logits(View2<const S> x, index_t position, Context& ctx);

  /// All of a micro-batch at once, where there is one stage.
  void count(const DeviceBatch& batch, Context& ctx);
  void train(const DeviceBatch& batch, double scale, LossSums& sums, Context& ctx);
  void evaluate(const DeviceBatch& batch, LossSums& sums, Context& ctx);

  /// Sums gradients over the replicas. Collective over grid.dense.
  void reduce_gradients(Context& ctx);

  /// Receives the routing of a micro-batch after its forward pass, with the row of the
  /// layer on this stage (for dumps).
  using RoutingProbe = void (*)(void* user, index_t layer, const DeviceBatch&,
                                const typename MoeLayer<S>::Saved&);
  void set_probe(RoutingProbe probe, void* user) {
    probe_ = probe;
    probe_user_ = user;
  }

 private:
  void embed(const DeviceBatch& batch, typename NormGate<S>::Saved& norm, View2<S> raw,
             View2<S> x, Context& ctx);
  void embed_backward(const Flight<S>& flight, View2<S> d, Context& ctx);
  DeviceBatch with_group(const DeviceBatch& batch) const;

  ModelShape shape_;
  const Grid& grid_;
  Stage stage_;
  ParamStore<S> params_;
  RouterState<Acc<S>> routers_;
  Tensor<S> table_;
  std::optional<NormGate<S>> embed_norm_;
  std::vector<Block<S>> blocks_;
  std::optional<LossHead<S>> head_;
  RoutingProbe probe_ = nullptr;
  void* probe_user_ = nullptr;
};

}  // namespace capstan
