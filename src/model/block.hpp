#pragma once
/// \file One block: x1 = x + sconv(attention(norm(x))), x2 = x1 + sconv(moe(norm(x1))).
#include "model/attention_layer.hpp"
#include "model/moe/moe_layer.hpp"
#include "model/norm_gate.hpp"

namespace capstan {

template <class S>
class Block {
 public:
  Block(const ModelShape& shape, const ParamStore<S>& params,
        RouterState<Acc<S>>& routers, const Grid& grid, index_t layer);

  struct Saved {
    View2<const S> x;  ///< block input, held by the caller
    View2<S> middle;   ///< x1
    View2<S> attn_in, attn_out, moe_in, moe_out;
    typename NormGate<S>::Saved attn_norm, moe_norm;
    typename AttentionLayer<S>::Saved attention;
    typename MoeLayer<S>::Saved moe;
    Arena::Mark mark;
  };
  /// x -> out [T, D]. What stays in the arena afterwards depends on recompute: everything
  /// (none), the attention half (moe), nothing but x itself (full). count and eval keep
  /// nothing.
  void forward(View2<const S> x, const DeviceBatch& batch, Pass pass, Saved& saved,
               View2<S> out, Context& ctx) const;
  /// d [T, D]: gradient of out on entry, of x on return. Releases what forward kept.
  void backward(const DeviceBatch& batch, Saved& saved, View2<S> d, Context& ctx) const;

 private:
  void forward_attention(const DeviceBatch& batch, Saved& saved, Context& ctx) const;
  void forward_moe(const DeviceBatch& batch, Pass pass, Saved& saved, View2<S> out,
                   Context& ctx) const;
  void branch_forward(View2<const S> branch, View2<const S> residual,
                      const Tensor<S>& conv, bool has_conv, const DeviceBatch& batch,
                      View2<S> out, Context& ctx) const;
  View2<S> branch_backward(View2<const S> branch, const Tensor<S>& conv, bool has_conv,
                           const DeviceBatch& batch, View2<S> d, Context& ctx) const;

  Recompute recompute_;
  bool conv_attn_, conv_moe_;
  NormGate<S> attn_norm_, moe_norm_;
  AttentionLayer<S> attention_;
  MoeLayer<S> moe_;
  Tensor<S> w_conv_attn_, w_conv_moe_;
};

}  // namespace capstan
