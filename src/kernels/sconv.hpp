#pragma once
/// \file Depthwise causal convolution over tokens, masked by document segment.
#include "base/types.hpp"

namespace capstan {

/// y[t, d] = sum_j w[j, d] * x[t - j, d] over taps j whose token t - j lies in the same
/// sequence (length seq_len) and segment; tap 0 is the current token. Padding (segment <
/// 0): y = 0. x, y [T, D], w [taps, D]. When `residual` has extent T: y += residual.
template <class S>
void sconv(View2<const S> x, View2<const S> w, View1<const std::int32_t> segments,
           index_t seq_len, View2<const S> residual, View2<S> y);
/// dx =; dw += (fixed order).
template <class S>
void sconv_backward(View2<const S> x, View2<const S> w,
                    View1<const std::int32_t> segments, index_t seq_len,
                    View2<const S> dy, View2<S> dx, View2<Acc<S>> dw);

}  // namespace capstan
