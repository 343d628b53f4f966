#include "plan/activations.hpp"

#include <algorithm>

namespace capstan {

namespace {

/// Bytes of the arrays of one layer or of the head, for T tokens.
class Arrays {
 public:
  Arrays(const ModelShape& shape, const StageWork& work)
      : m_(shape),
        t_(work.tokens),
        s_(work.weight_bytes),
        a_(work.sum_bytes),
        e_(even_exchange(shape, work.tokens, work.n_expert)) {}

  /// [T, width] in the storage type.
  index_t wide(index_t width) const { return t_ * width * s_; }
  index_t stream() const { return wide(m_.hidden); }

  index_t norm() const {
    const index_t gate = m_.has_gates() ? wide(2 * m_.hidden + m_.gate_rank) : 0;
    return t_ * a_ + gate;
  }
  index_t norm_scratch() const {
    return m_.has_gates() ? wide(m_.hidden + 2 * m_.gate_rank) : 0;
  }

  index_t attention(index_t layer) const {
    const index_t q = m_.q_width(), kv = m_.kv_width(), used = m_.kv_heads_of(layer);
    const index_t gate = m_.head_gate ? m_.heads : 0;
    const index_t heads =
        q + 2 * kv + gate + (m_.sconv_k ? kv : 0) + 3 * q + used * m_.head_dim;
    return 3 * stream() + norm() + wide(heads) + t_ * a_ * (2 * m_.heads + used);
  }
  index_t attention_scratch(index_t layer) const {
    const index_t q = m_.q_width(), kv = m_.kv_width();
    const index_t used = m_.kv_heads_of(layer) * m_.head_dim;
    const index_t outer = wide(2 * q + 2 * kv + (m_.head_gate ? m_.heads : 0));
    const index_t core =
        wide(2 * q + used + kv + (m_.sconv_k ? kv : 0)) + t_ * m_.heads * a_;
    const index_t conv = m_.sconv_attn ? stream() : 0;
    return conv + std::max(outer + core, norm_scratch());
  }

  index_t moe() const {
    const index_t z = m_.latent(), f = m_.expert_width;
    const index_t latent = m_.has_latent() ? wide(3 * z) + t_ * a_ : 0;
    index_t router = t_ * m_.top_k * (4 + a_);
    if (m_.transport.kind == Transport::spill) router += t_ * (3 + m_.top_k) * 4;
    index_t lists = 4 * (e_.sent + t_ * m_.top_k) + 8 * (m_.experts + 1);
    if (e_.travels) lists += 4 * e_.waves * (e_.room + e_.arrived);
    const index_t rows = e_.waves * e_.room;
    const index_t at_home = e_.travels ? rows : e_.sent;  // rows here, or returned
    const index_t shared = wide(2 * m_.shared_experts * m_.shared_width);
    return 2 * stream() + norm() + latent + router + lists +
           ((e_.sent + at_home) * z + rows * 2 * f) * s_ + shared;
  }
  index_t moe_scratch() const {
    const index_t z = m_.latent(), f = m_.expert_width;
    const index_t shared = wide(2 * m_.shared_width);
    const index_t back = (e_.sent + (e_.travels ? e_.room : e_.sent)) * z;
    const index_t experts = (back + e_.room * 2 * f) * s_;
    const index_t latent = m_.has_latent() ? wide(z) : 0;
    const index_t routed =
        latent + std::max(experts, back * s_ + wide(m_.has_latent() ? 2 * z : z));
    const index_t router = t_ * m_.experts * (a_ + (s_ != a_ ? s_ : 0));
    const index_t conv = m_.sconv_moe ? stream() : 0;
    const index_t weights = t_ * m_.top_k * a_;
    return conv + std::max(weights + std::max({shared, routed, router}), norm_scratch());
  }

  index_t head() const {
    const index_t bytes = index_t(kOnHostBytes);
    const index_t most = std::max<index_t>(16, bytes / (m_.vocab * a_) / 16 * 16);
    const index_t logits = std::min(t_, most) * m_.vocab * (a_ + (s_ != a_ ? s_ : 0));
    return 2 * stream() + norm() + logits + 2 * t_ * a_ + norm_scratch();
  }

 private:
  /// A block of logits on a host, see model/loss.cpp.
  static constexpr index_t kOnHostBytes = index_t(8) << 20;
  const ModelShape& m_;
  index_t t_, s_, a_;
  ExchangeSize e_;
};

}  // namespace

ExchangeSize even_exchange(const ModelShape& shape, index_t tokens, index_t n_expert) {
  ExchangeSize e = exchange_size(shape.transport, tokens, shape.top_k, shape.experts,
                                 n_expert, shape.latent());
  if (shape.transport.kind == Transport::pooled_wave) return e;
  const index_t rows = tokens * shape.top_k;
  e.sent = std::min(e.sent, rows);
  e.room = e.arrived = std::min(e.room, (rows + e.waves - 1) / e.waves);
  return e;
}

ActivationMemory activation_memory(const ModelShape& shape, const StageWork& work) {
  const Arrays of(shape, work);
  ActivationMemory out;
  const index_t layers = work.last_layer - work.first_layer;
  out.carry = work.in_flight * (layers + 1) * of.stream();
  if (work.embedding) out.carry += work.in_flight * (of.stream() + of.norm());
  const index_t batch = 24 * work.tokens;  // ids, targets, segments, and their groups
  index_t most = work.head ? of.head() : 0;
  for (index_t l = work.first_layer; l < work.last_layer; ++l) {
    index_t kept = 0;
    if (shape.recompute != Recompute::full) kept += of.attention(l);
    if (shape.recompute == Recompute::none) kept += of.moe();
    out.saved += work.in_flight * kept;
  }
  // The backward pass of the last layer, with everything of the others still there.
  const index_t last = work.last_layer - 1;
  index_t again = 0;
  if (shape.recompute == Recompute::full) again += of.attention(last);
  if (shape.recompute != Recompute::none) again += of.moe() + of.stream();
  const index_t backward =
      again + of.stream() + std::max(of.moe_scratch(), of.attention_scratch(last));
  out.scratch = batch + of.stream() + std::max(most, backward);
  return out;
}

}  // namespace capstan
