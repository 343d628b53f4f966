#pragma once
/// \file Cross-entropy with logit z-loss on a block of rows.
#include "base/types.hpp"

namespace capstan {

/// logits [n, V] (in Acc<S> or S storage), targets [n] (-1 = not counted). Per row: lse =
/// logsumexp, ce = lse - logit[target], z = lse^2. rows_ce [n] and rows_z [n] get ce and
/// z of counted rows (0 otherwise). When `gradient`: logits are overwritten by d(scale *
/// (ce + z_coefficient * z)) / d logits, rows with target -1 by 0.
template <class S>
void cross_entropy(View2<S> logits, View1<const std::int32_t> targets, Acc<S> scale,
                   Acc<S> z_coefficient, bool gradient, View1<Acc<S>> rows_ce,
                   View1<Acc<S>> rows_z);

}  // namespace capstan
