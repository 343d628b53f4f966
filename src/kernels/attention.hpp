#pragma once
/// \file Causal grouped-query attention with a local window and document segments: tiled,
/// online softmax, memory O(T); tiles outside the window, above the diagonal or of other
/// segments are skipped. After FlashAttention-2 (Dao 2023): backward in two passes, dQ by
/// query tiles and dK, dV by key tiles, so that no sum depends on timing.
#include "base/types.hpp"

namespace capstan {

struct AttentionShape {
  index_t sequences = 0, seq_len = 0;
  index_t heads = 0, kv_heads = 0, head_dim = 0;
  index_t window = 0;  ///< keys i-window+1 .. i are seen; 0 = all earlier ones
};

/// q [T, heads*h], k, v [T, >= kv_heads*h] (first kv_heads heads are used; query head q
/// reads head q div (heads / kv_heads)), segments [T] int32: a query sees keys of its own
/// sequence and segment only; segment < 0 = padding: sees and is seen by nothing, output
/// 0. Softmax scale is 1/sqrt(h). o [T, heads*h], lse [T, heads] = log-sum-exp of the
/// scaled scores (saved).
template <class S>
void attention(const AttentionShape& shape, View2<const S> q, View2<const S> k,
               View2<const S> v, View1<const std::int32_t> segments, View2<S> o,
               View2<Acc<S>> lse);

/// dq =, dk =, dv = (first kv_heads heads; the others are set to 0). delta [T, heads] is
/// scratch.
template <class S>
void attention_backward(const AttentionShape& shape, View2<const S> q, View2<const S> k,
                        View2<const S> v, View1<const std::int32_t> segments,
                        View2<const S> o, View2<const Acc<S>> lse, View2<const S> d_o,
                        View2<Acc<S>> delta, View2<S> dq, View2<S> dk, View2<S> dv);

/// Score-and-value operations that the tiles really issue (forward), for flops_issued.
double attention_flops(const AttentionShape& shape);

}  // namespace capstan
