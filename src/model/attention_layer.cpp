#include "model/attention_layer.hpp"

#include "kernels/heads.hpp"
#include "kernels/linear.hpp"
#include "kernels/sconv.hpp"
#include "kernels/swiglu.hpp"

namespace capstan {

template <class S>
AttentionLayer<S>::AttentionLayer(const ModelShape& shape, const ParamStore<S>& params,
                                  index_t layer) {
  shape_.heads = shape.heads;
  shape_.kv_heads = shape.kv_heads_of(layer);
  shape_.head_dim = shape.head_dim;
  shape_.window = shape.window_of(layer);
  kv_width_ = shape.kv_width();
  rope_dims_ = shape.rope_dims_of(layer);
  theta_ = shape.rope_theta;
  qk_eps_ = Acc<S>(shape.qk_norm ? shape.qk_eps : -1.0);
  multiplier_ = Acc<S>(shape.qk_multiplier);
  xsa_ = shape.xsa;
  head_gate_ = shape.head_gate;
  conv_ = shape.sconv_k;
  const std::string prefix = format("layer_%03d/attn/", static_cast<int>(layer));
  w_q_ = params.tensor(prefix + "w_q");
  w_k_ = params.tensor(prefix + "w_k");
  w_v_ = params.tensor(prefix + "w_v");
  w_o_ = params.tensor(prefix + "w_o");
  if (head_gate_) w_gate_ = params.tensor(prefix + "head_gate");
  if (conv_) w_conv_ = params.tensor(prefix + "sconv_k");
}

template <class S>
AttentionShape AttentionLayer<S>::shape_for(const DeviceBatch& batch) const {
  AttentionShape shape = shape_;
  shape.sequences = batch.sequences;
  shape.seq_len = batch.seq_len;
  return shape;
}

template <class S>
void AttentionLayer<S>::forward(View2<const S> x, const DeviceBatch& batch, Saved& s,
                                View2<S> out, Context& ctx) const {
  Arena& arena = ctx.arena;
  const index_t t = batch.size(), h = shape_.head_dim;
  const index_t q_width = shape_.heads * h, used = shape_.kv_heads * h;
  {
    const Region region(ctx.timers, "attention_gemm");
    s.q = arena.take2<S>("attention", t, q_width);
    s.k = arena.take2<S>("attention", t, kv_width_);
    s.v = arena.take2<S>("attention", t, kv_width_);
    linear<S>(x, w_q_.matrix(), s.q);
    linear<S>(x, w_k_.matrix(), s.k);
    linear<S>(x, w_v_.matrix(), s.v);
    s.gate = arena.take2<S>("attention", head_gate_ ? t : 0, shape_.heads);
    if (head_gate_) linear<S>(x, w_gate_.matrix(), s.gate);
  }
  {
    const Region region(ctx.timers, "attention_heads");
    s.k_conv = s.k;
    if (conv_) {
      s.k_conv = arena.take2<S>("attention", t, kv_width_);
      sconv<S>(s.k, w_conv_.matrix(), batch.segments, batch.seq_len, View2<S>(),
               s.k_conv);
    }
    s.q_rot = arena.take2<S>("attention", t, q_width);
    s.k_rot = arena.take2<S>("attention", t, used);
    s.q_inv = arena.take2<Acc<S>>("attention", t, shape_.heads);
    s.k_inv = arena.take2<Acc<S>>("attention", t, shape_.kv_heads);
    qk_norm_rope<S>(s.q, shape_.heads, h, batch.seq_len, qk_eps_, rope_dims_, theta_,
                    multiplier_, s.q_rot, s.q_inv);
    qk_norm_rope<S>(s.k_conv, shape_.kv_heads, h, batch.seq_len, qk_eps_, rope_dims_,
                    theta_, Acc<S>(1), s.k_rot, s.k_inv);
  }
  s.o = arena.take2<S>("attention", t, q_width);
  s.lse = arena.take2<Acc<S>>("attention", t, shape_.heads);
  {
    const Region region(ctx.timers, "attention_core");
    attention<S>(shape_for(batch), s.q_rot, s.k_rot, s.v, batch.segments, s.o, s.lse);
    ctx.timers.add_flops(attention_flops(shape_for(batch)));
  }
  s.gated = arena.take2<S>("attention", t, q_width);
  {
    const Region region(ctx.timers, "attention_heads");
    xsa_gate<S>(s.o, s.v, s.gate, shape_.heads, shape_.kv_heads, h, xsa_, s.gated);
  }
  const Region region(ctx.timers, "attention_gemm");
  linear<S>(s.gated, w_o_.matrix(), out);
}

/// From the gradient of the gated heads to those of the projections' outputs.
template <class S>
void AttentionLayer<S>::backward_core(const DeviceBatch& batch, const Saved& s,
                                      View2<const S> d_gated, View2<S> dq, View2<S> dk,
                                      View2<S> dv, View2<S> d_gate, Context& ctx) const {
  Arena& arena = ctx.arena;
  const ArenaScope scope(arena);
  const index_t t = batch.size(), h = shape_.head_dim;
  const auto d_o = arena.take2<S>("attention_scratch", t, shape_.heads * h);
  const auto dq_rot = arena.take2<S>("attention_scratch", t, shape_.heads * h);
  const auto dk_rot = arena.take2<S>("attention_scratch", t, shape_.kv_heads * h);
  const auto dv_core = arena.take2<S>("attention_scratch", t, kv_width_);
  const auto delta = arena.take2<Acc<S>>("attention_scratch", t, shape_.heads);
  {
    const Region region(ctx.timers, "attention_heads");
    fill(dv, S(0));
    xsa_gate_backward<S>(s.o, s.v, s.gate, shape_.heads, shape_.kv_heads, h, xsa_,
                         d_gated, d_o, dv, d_gate);
  }
  {
    const Region region(ctx.timers, "attention_core");
    attention_backward<S>(shape_for(batch), s.q_rot, s.k_rot, s.v, batch.segments, s.o,
                          s.lse, d_o, delta, dq_rot, dk_rot, dv_core);
    ctx.timers.add_flops(2.5 * attention_flops(shape_for(batch)));  // 5 products, not 2
  }
  const Region region(ctx.timers, "attention_heads");
  add_to<S>(flat(dv_core), flat(dv));
  qk_norm_rope_backward<S>(s.q, s.q_inv, shape_.heads, h, batch.seq_len, qk_eps_,
                           rope_dims_, theta_, multiplier_, dq_rot, dq);
  if (!conv_) {
    qk_norm_rope_backward<S>(s.k, s.k_inv, shape_.kv_heads, h, batch.seq_len, qk_eps_,
                             rope_dims_, theta_, Acc<S>(1), dk_rot, dk);
    return;
  }
  const auto dk_conv = arena.take2<S>("attention_scratch", t, kv_width_);
  qk_norm_rope_backward<S>(s.k_conv, s.k_inv, shape_.kv_heads, h, batch.seq_len, qk_eps_,
                           rope_dims_, theta_, Acc<S>(1), dk_rot, dk_conv);
  sconv_backward<S>(s.k, w_conv_.matrix(), batch.segments, batch.seq_len, dk_conv, dk,
                    w_conv_.d_matrix());
}

template <class S>
void AttentionLayer<S>::backward(View2<const S> x, const DeviceBatch& batch,
                                 const Saved& s, View2<const S> d_out, View2<S> dx,
                                 Context& ctx) const {
  Arena& arena = ctx.arena;
  const ArenaScope scope(arena);
  const index_t t = batch.size(), q_width = shape_.heads * shape_.head_dim;
  const auto d_gated = arena.take2<S>("attention_scratch", t, q_width);
  const auto dq = arena.take2<S>("attention_scratch", t, q_width);
  const auto dk = arena.take2<S>("attention_scratch", t, kv_width_);
  const auto dv = arena.take2<S>("attention_scratch", t, kv_width_);
  const auto d_gate =
      arena.take2<S>("attention_scratch", head_gate_ ? t : 0, shape_.heads);
  {
    const Region region(ctx.timers, "attention_gemm");
    linear_weight<S>(s.gated, d_out, w_o_.d_matrix());
    linear_input<S>(d_out, w_o_.matrix(), d_gated);
  }
  backward_core(batch, s, d_gated, dq, dk, dv, d_gate, ctx);
  const Region region(ctx.timers, "attention_gemm");
  linear_weight<S>(x, dq, w_q_.d_matrix());
  linear_weight<S>(x, dk, w_k_.d_matrix());
  linear_weight<S>(x, dv, w_v_.d_matrix());
  linear_input<S>(dq, w_q_.matrix(), dx);
  linear_input<S>(dk, w_k_.matrix(), dx, true);
  linear_input<S>(dv, w_v_.matrix(), dx, true);
  if (head_gate_) {
    linear_weight<S>(x, d_gate, w_gate_.d_matrix());
    linear_input<S>(d_gate, w_gate_.matrix(), dx, true);
  }
}

#define CAPSTAN_ATTENTION_LAYER(S) template class AttentionLayer<S>;
CAPSTAN_INSTANTIATE(CAPSTAN_ATTENTION_LAYER)

}  // namespace capstan
