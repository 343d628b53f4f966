#pragma once
/// \file RMSNorm, GatedNorm's elementwise part, head-wise norms. Row-major [T, D];
/// statistics in Acc<S>. Formulas stand at each function.
#include "base/types.hpp"

namespace capstan {

/// y = x * inv * gain, inv = 1 / sqrt(mean_d(x^2) + eps). inv [T] is saved for backward.
template <class S>
void rms_norm(View2<const S> x, View1<const S> gain, Acc<S> eps, View2<S> y,
              View1<Acc<S>> inv);

/// dx = (or += when `accumulate`) gradient of rms_norm; d_gain += (reduced over T in
/// fixed order).
template <class S>
void rms_norm_backward(View2<const S> x, View1<const S> gain, View1<const Acc<S>> inv,
                       View2<const S> dy, bool accumulate, View2<S> dx,
                       View1<Acc<S>> d_gain);

/// Elementwise pieces of GatedNorm: out = y * sigmoid(z), z = silu(y W_down) W_up, a = y
/// W_down.
///   h = silu(a)                          [T, R]
template <class S>
void silu_forward(View2<const S> a, View2<S> h);
///   da = dh * silu'(a)  (in place allowed: da may be dh)
template <class S>
void silu_backward(View2<const S> a, View2<const S> dh, View2<S> da);
///   out = y * sigmoid(z)                 [T, D]
template <class S>
void gate_forward(View2<const S> y, View2<const S> z, View2<S> out);
///   dy = dout * sigmoid(z); dz = dout * y * sigmoid'(z)  (dz may be z, dy may be dout)
template <class S>
void gate_backward(View2<const S> y, View2<const S> z, View2<const S> dout, View2<S> dy,
                   View2<S> dz);

}  // namespace capstan
