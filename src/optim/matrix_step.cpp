// Steps of whole matrices: MuonH, AdamH, Muon.
#include <algorithm>
#include <cmath>

#include "kernels/directions.hpp"
#include "kernels/hyperball.hpp"
#include "optim/optimizer.hpp"

namespace capstan {

namespace {
constexpr index_t kTerms = 3;  // u.u, p.u, p.p

void to_device(const std::vector<double>& values, double* device) {
  copy_to_device<double>(values.data(), device, static_cast<index_t>(values.size()));
}
}  // namespace

/// [count, 3]: u.u, p.u, p.p of every matrix (or row) of this rank.
template <class S>
std::vector<double> Optimizer<S>::matrix_sums(std::size_t i,
                                              View1<const Acc<S>> direction,
                                              Context& ctx) const {
  const BatchShape& m = slots_[i].matrices;
  const ArenaScope scope(ctx.arena);
  const auto partial = ctx.arena.template take1<double>(
      "optimizer", hyperball_partials(m.count, m.size()));
  const auto sums = ctx.arena.template take1<double>("optimizer", m.count * kTerms);
  hyperball_sums<Acc<S>>(m.count, m.size(), params_.owned_masters(i), direction, partial,
                         sums);
  return to_host<double>(sums);
}

/// The same sums for every kept norm of slot i: as they are, or added up over the
/// matrices (or rows) of all ranks, in one reduction over the ranks that own some, in the
/// same order on any grid.
template <class S>
std::vector<double> Optimizer<S>::norm_sums(std::size_t i,
                                            const std::vector<double>& sums) const {
  if (!slots_[i].shared_radius) return sums;
  const ParamSlot& slot = params_.slots()[i];
  std::vector<double> all(static_cast<std::size_t>(slot.spec.shape[0] * kTerms), 0.0);
  const index_t first = slot.row0 + params_.owned()[i].first;
  std::copy(sums.begin(), sums.end(), all.begin() + first * kTerms);
  const auto n = static_cast<index_t>(all.size());
  if (params_.sharded())
    grid_.dense.all_reduce_host(all.data(), n, Reduce::sum);
  else if (slot.spec.expert)
    grid_.expert_group.all_reduce_host(all.data(), n, Reduce::sum);
  std::vector<double> total(kTerms, 0.0);
  for (std::size_t k = 0; k < all.size(); ++k) total[k % kTerms] += all[k];
  return total;
}

template <class S>
void Optimizer<S>::start(Context& ctx) {
  gather_weights(ctx);
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    OptimizerSlot<S>& state = slots_[i];
    if (state.radius.empty()) continue;
    const auto masters = params_.owned_masters(i);
    const std::vector<double> sums = norm_sums(i, matrix_sums(i, masters, ctx));
    for (std::size_t m = 0; m < state.radius.size(); ++m) {
      state.radius[m] = std::sqrt(sums[m * kTerms]);
      if (state.radius[m] > 0) continue;
      throw Error(Exit::deck, params_.slots()[i].spec.name +
                                  " has a matrix of zeros: kinds that keep "
                                  "norms cannot train it");
    }
  }
}

/// Momentum and direction of one tensor. The momentum is not what gets orthogonalised.
template <class S>
void Optimizer<S>::set_direction(std::size_t i, const AdamStep& step,
                                 View1<Acc<S>> direction, Context& ctx) {
  using T = Acc<S>;
  const OptimizerSlot<S>& state = slots_[i];
  const auto gradient = params_.owned_part(params_.gradients(), i);
  if (!orthogonalises(groups_[state.group].kind)) {
    adam_direction<T>(step, gradient, state.first, state.second, direction);
    return;
  }
  nesterov_direction<T>(step.beta1, step.grad_scale, gradient, state.first, direction);
  const Region region(ctx.timers, "newton_schulz");
  const ArenaScope scope(ctx.arena);
  const BatchShape& m = state.matrices;
  const auto scratch = ctx.arena.template take1<T>("optimizer", newton_schulz_scratch(m));
  const auto sums = ctx.arena.template take1<double>("optimizer", newton_schulz_sums(m));
  if (ns_bf16_)
    newton_schulz_bf16<T>(m, direction, scratch, sums);
  else
    newton_schulz<T>(m, direction, scratch, sums);
}

/// [count, 2]: p becomes keep p - move u, for every matrix.
template <class S>
std::vector<double> Optimizer<S>::step_factors(std::size_t i, const AdamStep& step,
                                               const std::vector<double>& sums) const {
  const OptimizerSlot<S>& state = slots_[i];
  const BatchShape& m = state.matrices;
  std::vector<double> factors;
  if (!keeps_norm(groups_[state.group].kind)) {
    const double stretch = std::sqrt(std::max(1.0, double(m.cols) / double(m.rows)));
    for (index_t k = 0; k < m.count; ++k) {
      factors.push_back(1 - step.lr * step.weight_decay);
      factors.push_back(step.lr * stretch);
    }
    return factors;
  }
  const std::vector<double> norms = norm_sums(i, sums);
  for (index_t k = 0; k < m.count; ++k) {
    const std::size_t r = state.shared_radius ? 0 : static_cast<std::size_t>(k);
    const HyperballFactors f =
        hyperball_factors(step.lr, state.radius[r], norms.data() + r * kTerms);
    factors.push_back(f.keep);
    factors.push_back(f.move);
  }
  return factors;
}

template <class S>
void Optimizer<S>::matrix_step(std::size_t i, const AdamStep& step, Context& ctx) {
  using T = Acc<S>;
  const OptimizerSlot<S>& state = slots_[i];
  const BatchShape& m = state.matrices;
  if (m.count == 0 && !state.shared_radius) return;
  const ArenaScope scope(ctx.arena);
  const auto direction = ctx.arena.template take1<T>("optimizer", params_.owned_size(i));
  set_direction(i, step, direction, ctx);
  const std::vector<double> sums = matrix_sums(i, direction, ctx);
  const std::vector<double> factors = step_factors(i, step, sums);
  const auto on_device = ctx.arena.template take1<double>("optimizer", 2 * m.count);
  to_device(factors, on_device.data());
  keep_and_move<S>(m.count, m.size(), on_device, direction, params_.owned_masters(i),
                   weights_of(i));
  if (m.count == 0) return;  // it only took part in the sums
  double squares = 0;
  for (std::size_t k = 0; k < factors.size() / 2; ++k)
    squares += change_squares(factors[2 * k], factors[2 * k + 1], &sums[k * kTerms]);
  to_device({squares}, squares_.data() + state.block);
}

#define CAPSTAN_MATRIX_STEP(S)                                                           \
  template std::vector<double> Optimizer<S>::matrix_sums(                                \
      std::size_t, View1<const Acc<S>>, Context&) const;                                 \
  template std::vector<double> Optimizer<S>::norm_sums(                                  \
      std::size_t, const std::vector<double>&) const;                                    \
  template void Optimizer<S>::start(Context&);                                           \
  template void Optimizer<S>::set_direction(std::size_t, const AdamStep&, View1<Acc<S>>, \
                                            Context&);                                   \
  template std::vector<double> Optimizer<S>::step_factors(                               \
      std::size_t, const AdamStep&, const std::vector<double>&) const;                   \
  template void Optimizer<S>::matrix_step(std::size_t, const AdamStep&, Context&);
CAPSTAN_INSTANTIATE(CAPSTAN_MATRIX_STEP)

}  // namespace capstan
