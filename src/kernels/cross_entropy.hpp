#pragma once
/// \file Cross-entropy with logit z-loss on a block of rows.
#include "base/types.hpp"

namespace capstan {

/// logits [n, V], targets [n] (-1 = not counted). Per row: lse = logsumexp, ce = lse -
/// logit[target], z = lse^2. rows_ce [n] and rows_z [n] get ce and z of counted rows (0
/// otherwise). d_logits [n, V] = d(scale * (ce + z_coefficient * z)) / d logits, 0 in
/// rows with target -1; it may be the memory of logits, which are overwritten; extent 0
/// = not wanted, and logits stay.
template <class S>
void cross_entropy(View2<Acc<S>> logits, View1<const std::int32_t> targets, Acc<S> scale,
                   Acc<S> z_coefficient, View2<S> d_logits, View1<Acc<S>> rows_ce,
                   View1<Acc<S>> rows_z);

}  // namespace capstan
