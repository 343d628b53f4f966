#pragma once
/// \file AdamW update of a flat range (Loshchilov & Hutter 2019), fused with the weight
/// copy.
#include "base/types.hpp"

namespace capstan {

struct AdamStep {
  double lr = 0, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0;
  double grad_scale = 1;  ///< multiplies the gradient (clipping)
  index_t count = 1;      ///< updates including this one, for bias correction
};

/// m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2; w -= lr * (m^ / (sqrt(v^) + eps) +
/// weight_decay w) on n elements; `weights` (storage type, may have extent 0) gets the
/// rounded copy. `squares` [update_blocks(n)] (may be left out) = the sum of squares of
/// what was taken from w in each block of elements, in fixed order.
template <class S>
void adamw(const AdamStep& step, View1<const Acc<S>> gradient, View1<Acc<S>> master,
           View1<Acc<S>> m, View1<Acc<S>> v, View1<S> weights,
           View1<double> squares = {});
index_t update_blocks(index_t n);
/// sums [update_blocks(n)] = sum of each block of x [n], in fixed order.
void block_sums(View1<const double> x, View1<double> sums);

}  // namespace capstan
