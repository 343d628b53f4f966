#pragma once
/// \file The head: final norm, logits in blocks of rows, cross-entropy and logit z-loss.
/// [T, V] never exists: each block of rows gives its loss and its gradients before the
/// next.
#include "model/batch.hpp"
#include "model/norm_gate.hpp"

namespace capstan {

/// Sums over counted tokens of this rank.
struct LossSums {
  double cross_entropy = 0,
         z_loss = 0;  ///< nats; z_loss = sum of logsumexp^2, unweighted
  std::int64_t tokens = 0;
};

template <class S>
class LossHead {
 public:
  LossHead(const ModelShape& shape, const ParamStore<S>& params);

  /// x [T, D]: output of the last block. Adds this batch's sums. With a `scale` > 0 also
  /// d_x = the gradient of scale * sum over counted tokens of (cross-entropy + z_loss
  /// coefficient * lse^2).
  void run(View2<const S> x, const DeviceBatch& batch, double scale, View2<S> d_x,
           LossSums& sums, Context& ctx) const;
  /// Logits [rows, V] of rows first .. first + rows of x, for sampling.
  void logits(View2<const S> x, index_t first, View2<Acc<S>> out, Context& ctx) const;

 private:
  index_t block_rows() const;
  View2<S> gradient_memory(View2<Acc<S>> logits, bool gradient, Arena& arena) const;
  NormGate<S> norm_;
  Tensor<S> head_;
  Acc<S> z_coefficient_;
};

}  // namespace capstan
