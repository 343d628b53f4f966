#pragma once
/// \file RMSNorm followed by GatedNorm: out = y * sigmoid(silu(y W_down) W_up), y =
/// RMSNorm(x) (Marin's block, marin-community/marin#8435). Without gate matrices out = y.
#include "base/context.hpp"
#include "model/param.hpp"

namespace capstan {

template <class S>
class NormGate {
 public:
  /// `prefix` is "embed", "final", "layer_NNN/attn" or "layer_NNN/moe".
  NormGate(const ModelShape& shape, const ParamStore<S>& params,
           const std::string& prefix);

  struct Saved {
    View1<Acc<S>> inv;
    View2<S> y, a, z;
  };
  /// Takes its saved Views from the arena. x, out [T, D].
  void forward(View2<const S> x, Saved& saved, View2<S> out, Context& ctx) const;
  /// dx += gradient of x. d_out is overwritten.
  void backward(View2<const S> x, const Saved& saved, View2<S> d_out, View2<S> dx,
                Context& ctx) const;

 private:
  Tensor<S> gain_, down_, up_;
  Acc<S> eps_;
  index_t rank_;
};

}  // namespace capstan
