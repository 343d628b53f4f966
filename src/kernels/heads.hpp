#pragma once
/// \file What happens per head around attention: QK norm, rotary embedding, XSA, head
/// gate. Rows are tokens of B sequences of length S, T = B * S, position = row mod S.
/// Heads lie side by side: x [T, n * h].
#include "base/types.hpp"

namespace capstan {

/// One pass over q or k: per head of width h, y = rope(x * inv) * scale with inv = 1 /
/// sqrt(mean_h(x^2) + eps) (no gain; skipped when eps < 0: inv = 1). RoPE rotates
/// adjacent pairs (2i, 2i+1) of the first rope_dims dims by position * theta^(-2i /
/// rope_dims); rope_dims = 0 rotates none. Reads the first `heads` heads of rows of width
/// x.extent(1); y [T, heads * h]. inv [T, heads] is saved.
template <class S>
void qk_norm_rope(View2<const S> x, index_t heads, index_t head_dim, index_t seq_len,
                  Acc<S> eps, index_t rope_dims, double theta, Acc<S> scale, View2<S> y,
                  View2<Acc<S>> inv);
/// dx of the first `heads` heads; the remaining heads of dx (width x.extent(1)) are set
/// to 0.
template <class S>
void qk_norm_rope_backward(View2<const S> x, View2<const Acc<S>> inv, index_t heads,
                           index_t head_dim, index_t seq_len, Acc<S> eps,
                           index_t rope_dims, double theta, Acc<S> scale,
                           View2<const S> dy, View2<S> dx);

/// XSA and head gate in one pass (either can be off). Per head q (its value head = q div
/// (heads / kv_heads)): o' = o - (o.v / (v.v + 1e-6)) v  when xsa; then y = o' * 2
/// sigmoid(gate) when gate logits [T, heads] are given (extent 0 = off). v [T, >=
/// kv_heads * h] read at its first kv_heads.
template <class S>
void xsa_gate(View2<const S> o, View2<const S> v, View2<const S> gate, index_t heads,
              index_t kv_heads, index_t head_dim, bool xsa, View2<S> y);
/// d_o [T, heads * h] =, dv += (its first kv_heads heads), d_gate [T, heads] =. May not
/// alias.
template <class S>
void xsa_gate_backward(View2<const S> o, View2<const S> v, View2<const S> gate,
                       index_t heads, index_t kv_heads, index_t head_dim, bool xsa,
                       View2<const S> dy, View2<S> d_o, View2<S> dv, View2<S> d_gate);

}  // namespace capstan
