#pragma once
/// \file Directions in which an optimizer moves a tensor, for the kinds that do more with
/// it than add it. Flat ranges of n elements; T is the type of gradients and moments.
#include "kernels/adamw.hpp"

namespace capstan {

/// Nesterov momentum as published for MuonH: m = beta m + scale g, u = beta m + scale g
/// (no factor 1 - beta; the length of u does not matter).
template <class T>
void nesterov_direction(double beta, double scale, View1<const T> gradient, View1<T> m,
                        View1<T> u);

/// Adam's: moments as in adamw(), u = m^ / (sqrt(v^) + eps). Of `step`, lr and
/// weight_decay are not used.
template <class T>
void adam_direction(const AdamStep& step, View1<const T> gradient, View1<T> m, View1<T> v,
                    View1<T> u);

}  // namespace capstan
