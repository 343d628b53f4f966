#include "model/cost.hpp"

#include "kernels/attention.hpp"

namespace capstan {

Cost& Cost::operator+=(const Cost& o) {
  gemm_forward += o.gemm_forward;
  gemm_backward += o.gemm_backward;
  tile_forward += o.tile_forward;
  tile_backward += o.tile_backward;
  return *this;
}

Cost Cost::again() const {
  Cost c = *this;
  c.gemm_backward += gemm_forward;
  c.tile_backward += tile_forward;
  return c;
}

Cost linear_cost(double tokens, index_t in, index_t out) {
  Cost c;
  c.gemm_forward = 2 * tokens * double(in) * double(out);
  c.gemm_backward = 2 * c.gemm_forward;
  return c;
}

Cost norm_gate_cost(const ModelShape& s, const Work& work) {
  const double t = double(work.tokens());
  Cost c;
  if (!s.has_gates()) return c;
  c += linear_cost(t, s.hidden, s.gate_rank);
  c += linear_cost(t, s.gate_rank, s.hidden);
  return c;
}

Cost attention_cost(const ModelShape& s, const Work& work, index_t layer) {
  const double t = double(work.tokens());
  Cost c = linear_cost(t, s.hidden, s.q_width());
  // The stored heads are projected, also where a global layer uses fewer.
  c += linear_cost(t, s.hidden, s.kv_width());
  c += linear_cost(t, s.hidden, s.kv_width());
  c += linear_cost(t, s.q_width(), s.hidden);
  if (s.head_gate) c += linear_cost(t, s.hidden, s.heads);
  AttentionShape core;
  core.sequences = work.sequences;
  core.seq_len = work.seq_len;
  core.heads = s.heads;
  core.kv_heads = s.kv_heads_of(layer);
  core.head_dim = s.head_dim;
  core.window = s.window_of(layer);
  c.tile_forward = attention_flops(core);
  c.tile_backward = 2.5 * c.tile_forward;
  return c;
}

Cost moe_cost(const ModelShape& s, const Work& work) {
  const double t = double(work.tokens());
  const index_t z = s.latent();
  Cost c = linear_cost(t, s.hidden, s.experts);
  if (s.has_latent()) {
    c += linear_cost(t, s.hidden, z);
    c += linear_cost(t, z, s.hidden);
  }
  c += linear_cost(work.expert_rows, z, s.expert_width);
  c += linear_cost(work.expert_rows, z, s.expert_width);
  c += linear_cost(work.expert_rows, s.expert_width, z);
  for (index_t i = 0; i < s.shared_experts; ++i) {
    c += linear_cost(t, s.hidden, s.shared_width);
    c += linear_cost(t, s.hidden, s.shared_width);
    c += linear_cost(t, s.shared_width, s.hidden);
  }
  return c;
}

Cost head_cost(const ModelShape& s, const Work& work) {
  Cost c = norm_gate_cost(s, work);
  c += linear_cost(double(work.tokens()), s.hidden, s.vocab);
  return c;
}

Cost layer_cost(const ModelShape& s, const Work& work, index_t layer) {
  Cost attention = norm_gate_cost(s, work), moe = attention;
  attention += attention_cost(s, work, layer);
  moe += moe_cost(s, work);
  Cost c = s.recompute == Recompute::full ? attention.again() : attention;
  c += s.recompute == Recompute::none ? moe : moe.again();
  return c;
}

Cost step_cost(const ModelShape& s, const Work& work) {
  Cost c = norm_gate_cost(s, work);  // of the embedding
  for (index_t layer = 0; layer < s.layers; ++layer) c += layer_cost(s, work, layer);
  c += head_cost(s, work);
  return c;
}

}  // namespace capstan
