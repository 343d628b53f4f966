#pragma once
/// \file SwiGLU experts on rows sorted by expert: y = (silu(x W_gate) * x W_up) W_down.
#include <vector>

#include "base/context.hpp"
#include "model/param.hpp"

namespace capstan {

template <class S>
struct ExpertWeights {
  Tensor<S> gate, up, down;  ///< [E, Z, F], [E, Z, F], [E, F, Z]
  index_t count = 0, in = 0, width = 0;
};

/// x, y [rows, Z]; gate, up [rows, F] are saved for backward; offsets [count + 1].
template <class S>
void experts_forward(const ExpertWeights<S>& w, const std::vector<index_t>& offsets,
                     View2<const S> x, View2<S> gate, View2<S> up, View2<S> y,
                     Context& ctx);
/// dx = gradient of x; weights' gradients = (of all experts), or += with `add`. gate and
/// up are overwritten by their gradients.
template <class S>
void experts_backward(const ExpertWeights<S>& w, const std::vector<index_t>& offsets,
                      View2<const S> x, View2<S> gate, View2<S> up, View2<const S> dy,
                      View2<S> dx, bool add, Context& ctx);

}  // namespace capstan
