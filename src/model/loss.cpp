#include "model/loss.hpp"

#include <algorithm>

#include "base/parallel.hpp"
#include "kernels/cross_entropy.hpp"
#include "kernels/linear.hpp"

namespace capstan {

namespace {

template <class T>
View2<T> rows_of(const View2<T>& x, index_t first, index_t rows) {
  return View2<T>(x.data() + first * x.extent(1), rows, x.extent(1));
}

template <class T>
double sum_of(View1<const T> x) {
  return par_sum<double>(
      "loss_sum", x.extent(0),
      KOKKOS_LAMBDA(index_t i, double& sum) { sum += double(x(i)); });
}

}  // namespace

template <class S>
LossHead<S>::LossHead(const ModelShape& shape, const ParamStore<S>& params)
    : norm_(shape, params, "final"),
      head_(params.tensor("head/table")),
      z_coefficient_(Acc<S>(shape.z_loss)) {}

/// Rows of logits at a time: about 8 MiB on hosts (cache), 256 MiB on GPUs.
template <class S>
index_t LossHead<S>::block_rows() const {
  const index_t bytes = index_t(kOnHost ? 8 : 256) << 20;
  return std::max<index_t>(16, bytes / (head_.cols * sizeof(Acc<S>)) / 16 * 16);
}

/// Where the gradient of a block of logits lies: in their own memory, or beside them when
/// it is stored in fewer bits.
template <class S>
View2<S> LossHead<S>::gradient_memory(View2<Acc<S>> logits, bool gradient,
                                      Arena& arena) const {
  if constexpr (std::is_same_v<S, Acc<S>>) {
    return logits;
  } else {
    return arena.take2<S>("head_logits", gradient ? logits.extent(0) : 0,
                          logits.extent(1));
  }
}

template <class S>
void LossHead<S>::run(View2<const S> x, const DeviceBatch& batch, double scale,
                      View2<S> d_x, LossSums& sums, Context& ctx) const {
  const Region region(ctx.timers, "head");
  Arena& arena = ctx.arena;
  const ArenaScope scope(arena);
  const index_t t = batch.size(), d = x.extent(1), v = head_.cols;
  const bool gradient = scale > 0;
  typename NormGate<S>::Saved norm;
  const auto normed = arena.take2<S>("head", t, d);
  const auto d_normed = arena.take2<S>("head", gradient ? t : 0, d);
  norm_.forward(x, norm, normed, ctx);
  const index_t block = std::min(t, block_rows());
  const auto logits = arena.take2<Acc<S>>("head_logits", block, v);
  const auto d_logits = gradient_memory(logits, gradient, arena);
  const auto ce = arena.take1<Acc<S>>("head", t);
  const auto z = arena.take1<Acc<S>>("head", t);
  for (index_t first = 0; first < t; first += block) {
    const index_t n = std::min(block, t - first);
    const auto part = rows_of(logits, 0, n);
    const auto d_part = rows_of(d_logits, 0, gradient ? n : 0);
    const auto in = rows_of(normed, first, n);
    linear<S>(in, head_.matrix(), part);
    cross_entropy<S>(part, View1<const std::int32_t>(batch.targets.data() + first, n),
                     Acc<S>(scale), z_coefficient_, d_part,
                     View1<Acc<S>>(ce.data() + first, n),
                     View1<Acc<S>>(z.data() + first, n));
    if (!gradient) continue;
    linear_input<S>(d_part, head_.matrix(), rows_of(d_normed, first, n));
    linear_weight<S>(in, d_part, head_.d_matrix());
  }
  sums.cross_entropy += sum_of<Acc<S>>(ce);
  sums.z_loss += sum_of<Acc<S>>(z);
  const auto targets = batch.targets;
  sums.tokens += par_sum<std::int64_t>(
      "loss_tokens", t,
      KOKKOS_LAMBDA(index_t i, std::int64_t & sum) { sum += targets(i) >= 0 ? 1 : 0; });
  if (!gradient) return;
  fill(d_x, S(0));
  norm_.backward(x, norm, d_normed, d_x, ctx);
}

template <class S>
void LossHead<S>::logits(View2<const S> x, index_t first, View2<Acc<S>> out,
                         Context& ctx) const {
  const ArenaScope scope(ctx.arena);
  typename NormGate<S>::Saved norm;
  const auto normed = ctx.arena.take2<S>("head", out.extent(0), x.extent(1));
  norm_.forward(rows_of(x, first, out.extent(0)), norm, normed, ctx);
  linear<S>(normed, head_.matrix(), out);
}

#define CAPSTAN_LOSS(S) template class LossHead<S>;
CAPSTAN_INSTANTIATE(CAPSTAN_LOSS)

}  // namespace capstan
