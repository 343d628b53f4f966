#include "model/block.hpp"

#include "kernels/sconv.hpp"
#include "kernels/swiglu.hpp"

namespace capstan {

namespace {
std::string layer_prefix(index_t layer) {
  return format("layer_%03d/", static_cast<int>(layer));
}
}  // namespace

template <class S>
Block<S>::Block(const ModelShape& shape, const ParamStore<S>& params,
                RouterState<Acc<S>>& routers, const Grid& grid, index_t layer)
    : recompute_(shape.recompute),
      conv_attn_(shape.sconv_attn),
      conv_moe_(shape.sconv_moe),
      attn_norm_(shape, params, layer_prefix(layer) + "attn"),
      moe_norm_(shape, params, layer_prefix(layer) + "moe"),
      attention_(shape, params, layer),
      moe_(shape, params, routers, grid, layer) {
  if (conv_attn_) w_conv_attn_ = params.tensor(layer_prefix(layer) + "attn/sconv_out");
  if (conv_moe_) w_conv_moe_ = params.tensor(layer_prefix(layer) + "moe/sconv_out");
}

/// out = residual + sconv(branch), or residual + branch.
template <class S>
void Block<S>::branch_forward(View2<const S> branch, View2<const S> residual,
                              const Tensor<S>& conv, bool has_conv,
                              const DeviceBatch& batch, View2<S> out,
                              Context& ctx) const {
  const Region region(ctx.timers, "residual");
  if (has_conv) {
    sconv<S>(branch, conv.matrix(), batch.segments, batch.seq_len, residual, out);
  } else {
    add<S>(flat(residual), flat(branch), flat(out));
  }
}

/// Gradient of the branch, given d of the sum (which is also that of the residual).
template <class S>
View2<S> Block<S>::branch_backward(View2<const S> branch, const Tensor<S>& conv,
                                   bool has_conv, const DeviceBatch& batch, View2<S> d,
                                   Context& ctx) const {
  const Region region(ctx.timers, "residual");
  if (!has_conv) return d;
  const auto d_branch = ctx.arena.take2<S>("block_scratch", d.extent(0), d.extent(1));
  sconv_backward<S>(branch, conv.matrix(), batch.segments, batch.seq_len, d, d_branch,
                    conv.d_matrix());
  return d_branch;
}

template <class S>
void Block<S>::forward_attention(const DeviceBatch& batch, Saved& s, Context& ctx) const {
  Arena& arena = ctx.arena;
  const index_t t = batch.size(), d = s.x.extent(1);
  s.middle = arena.take2<S>("block", t, d);
  s.attn_in = arena.take2<S>("block", t, d);
  s.attn_out = arena.take2<S>("block", t, d);
  attn_norm_.forward(s.x, s.attn_norm, s.attn_in, ctx);
  attention_.forward(s.attn_in, batch, s.attention, s.attn_out, ctx);
  branch_forward(s.attn_out, s.x, w_conv_attn_, conv_attn_, batch, s.middle, ctx);
}

template <class S>
void Block<S>::forward_moe(const DeviceBatch& batch, Pass pass, Saved& s, View2<S> out,
                           Context& ctx) const {
  Arena& arena = ctx.arena;
  const index_t t = batch.size(), d = s.x.extent(1);
  s.moe_in = arena.take2<S>("block", t, d);
  s.moe_out = arena.take2<S>("block", t, d);
  moe_norm_.forward(s.middle, s.moe_norm, s.moe_in, ctx);
  moe_.forward(s.moe_in, batch, pass, s.moe, s.moe_out, ctx);
  branch_forward(s.moe_out, s.middle, w_conv_moe_, conv_moe_, batch, out, ctx);
}

template <class S>
void Block<S>::forward(View2<const S> x, const DeviceBatch& batch, Pass pass, Saved& s,
                       View2<S> out, Context& ctx) const {
  s.x = x;
  s.mark = ctx.arena.mark();
  forward_attention(batch, s, ctx);
  const Arena::Mark half = ctx.arena.mark();
  forward_moe(batch, pass, s, out, ctx);
  if (forward_only(pass) || recompute_ == Recompute::full) {
    ctx.arena.release(s.mark);
  } else if (recompute_ == Recompute::moe) {
    ctx.arena.release(half);
  }
}

template <class S>
void Block<S>::backward(const DeviceBatch& batch, Saved& s, View2<S> d,
                        Context& ctx) const {
  Arena& arena = ctx.arena;
  const index_t t = batch.size(), width = d.extent(1);
  if (recompute_ == Recompute::full) forward_attention(batch, s, ctx);
  if (recompute_ != Recompute::none) {
    const auto unused = arena.take2<S>("block_scratch", t, width);
    forward_moe(batch, Pass::recompute, s, unused, ctx);
  }
  const auto d_in = arena.take2<S>("block_scratch", t, width);
  {
    const ArenaScope scope(arena);
    const auto d_moe = branch_backward(s.moe_out, w_conv_moe_, conv_moe_, batch, d, ctx);
    moe_.backward(s.moe_in, batch, s.moe, d_moe, d_in, ctx);
    moe_norm_.backward(s.middle, s.moe_norm, d_in, d, ctx);
  }
  const auto d_attn =
      branch_backward(s.attn_out, w_conv_attn_, conv_attn_, batch, d, ctx);
  attention_.backward(s.attn_in, batch, s.attention, d_attn, d_in, ctx);
  attn_norm_.backward(s.x, s.attn_norm, d_in, d, ctx);
  arena.release(s.mark);
}

#define CAPSTAN_BLOCK(S) template class Block<S>;
CAPSTAN_INSTANTIATE(CAPSTAN_BLOCK)

}  // namespace capstan
