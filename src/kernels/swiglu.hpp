#pragma once
/// \file SwiGLU's elementwise part and plain elementwise sums.
#include "base/types.hpp"

namespace capstan {

/// y = silu(gate) * up, elementwise on n elements.
template <class S>
void swiglu(View1<const S> gate, View1<const S> up, View1<S> y);
/// d_gate = dy * up * silu'(gate); d_up = dy * silu(gate); y = silu(gate) * up again (so
/// that forward need not keep it; pass extent 0 to skip). d_gate may be gate, d_up may be
/// up.
template <class S>
void swiglu_backward(View1<const S> gate, View1<const S> up, View1<const S> dy,
                     View1<S> d_gate, View1<S> d_up, View1<S> y);

/// y = a + b; y may be a or b.
template <class S>
void add(View1<const S> a, View1<const S> b, View1<S> y);
/// y += x.
template <class S>
void add_to(View1<const S> x, View1<S> y);
/// y = x, rounded to the storage type.
template <class S>
void round_to(View1<const Acc<S>> x, View1<S> y);
/// Sum of squares in double, fixed order.
template <class S>
double sum_squares(View1<const S> x);
/// Elements that are not finite.
template <class S>
index_t count_non_finite(View1<const S> x);

}  // namespace capstan
