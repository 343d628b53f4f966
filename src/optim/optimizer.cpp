#include "optim/optimizer.hpp"

#include <cmath>

#include "kernels/swiglu.hpp"

namespace capstan {

namespace {

View1<double> part_of(const View1<double>& x, index_t first, index_t n) {
  return View1<double>(x.data() + first, n);
}

/// A tensor [rows, cols] is one matrix, [N, rows, cols] are N; a vector is a row.
BatchShape matrices_of(const ParamSlot& slot) {
  const std::size_t axes = slot.spec.shape.size();
  const index_t cols = slot.spec.shape.back();
  if (axes < 3) return {1, slot.size() / cols, cols};
  const index_t rows = slot.spec.shape[axes - 2];
  return {slot.size() / (rows * cols), rows, cols};
}

void refuse_groups(const std::vector<std::string>& problems) {
  if (problems.empty()) return;
  std::string text = "parameter groups that cannot be:";
  for (const std::string& line : problems) text += "\n  " + line;
  throw Error(Exit::deck, text);
}

}  // namespace

template <class S>
Optimizer<S>::Optimizer(const Deck& deck, ParamStore<S>& params, const Grid& grid,
                        Context& ctx)
    : params_(params), grid_(grid), groups_(groups_from_deck(deck)) {
  std::vector<ParamSpec> specs;
  for (const ParamSlot& slot : params.slots()) specs.push_back(slot.spec);
  refuse_groups(group_problems(deck, specs));
  index_t blocks = 0, seconds = 0;
  for (const ParamSlot& slot : params.slots()) {
    OptimizerSlot<S> state;
    state.group = group_of(groups_, slot.spec.name);
    const OptimizerKind kind = groups_[state.group].kind;
    state.matrices = matrices_of(slot);
    state.shared_radius =
        slot.spec.expert && deck.text("optimizer/norm_scope") == "layer";
    if (keeps_norm(kind))
      state.radius.assign(state.shared_radius ? 1 : state.matrices.count, 0.0);
    state.block = blocks;
    blocks += update_blocks(slot.size());
    if (!slot.spec.expert) dense_blocks_ = blocks;
    if (moments_of(kind) == 2) seconds += slot.size();
    slots_.push_back(state);
  }
  squares_ = make1<double>(ctx.ledger, "norms", blocks);
  square_sums_ =
      make1<double>(ctx.ledger, "norms",
                    update_blocks(dense_blocks_) + update_blocks(blocks - dense_blocks_));
  first_ = make1<Acc<S>>(ctx.ledger, "moments", params.size());
  second_ = make1<Acc<S>>(ctx.ledger, "moments", seconds);
  index_t second = 0;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const ParamSlot& slot = params.slots()[i];
    slots_[i].first = params.part(first_, slot);
    if (moments_of(groups_[slots_[i].group].kind) == 1) continue;
    slots_[i].second = View1<Acc<S>>(second_.data() + second, slot.size());
    second += slot.size();
  }
}

template <class S>
AdamStep Optimizer<S>::adam_step(const ParamSlot& slot, const ParamGroup& group,
                                 double lr_factor, double grad_scale) const {
  AdamStep step;
  step.lr = group.lr * lr_factor;
  step.beta1 = group.beta1;
  step.beta2 = group.beta2;
  step.eps = group.eps;
  step.grad_scale = grad_scale;
  step.count = updates_;
  const bool decays = !group.decay_matrices_only || slot.spec.kind == ParamSpec::matrix;
  step.weight_decay = decays ? group.weight_decay : 0;
  return step;
}

/// The rounded copy of the masters; extent 0 where the masters are the weights.
template <class S>
View1<S> Optimizer<S>::weights_of(const ParamSlot& slot) const {
  constexpr bool kSeparate = !std::is_same_v<S, Acc<S>>;
  return kSeparate ? params_.part(params_.weights(), slot) : View1<S>();
}

template <class S>
void Optimizer<S>::step(double lr_factor, double grad_scale, Context& ctx) {
  const Region region(ctx.timers, "optimizer");
  ++updates_;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const ParamSlot& slot = params_.slots()[i];
    const OptimizerSlot<S>& state = slots_[i];
    const ParamGroup& group = groups_[state.group];
    const AdamStep step = adam_step(slot, group, lr_factor, grad_scale);
    if (orthogonalises(group.kind) || keeps_norm(group.kind)) {
      matrix_step(i, step, ctx);
      continue;
    }
    adamw<S>(step, params_.part(params_.gradients(), slot),
             params_.part(params_.masters(), slot), state.first, state.second,
             weights_of(slot),
             part_of(squares_, state.block, update_blocks(slot.size())));
  }
}

template <class S>
double Optimizer<S>::update_norm(const Grid& grid) const {
  const index_t dense = update_blocks(dense_blocks_), all = square_sums_.extent(0);
  const index_t experts = index_t(squares_.extent(0)) - dense_blocks_;
  block_sums(part_of(squares_, 0, dense_blocks_), part_of(square_sums_, 0, dense));
  block_sums(part_of(squares_, dense_blocks_, experts),
             part_of(square_sums_, dense, all - dense));
  const std::vector<double> sums = to_host<double>(square_sums_);
  double of_dense = 0, of_experts = 0;
  for (index_t i = 0; i < all; ++i) (i < dense ? of_dense : of_experts) += sums[i];
  return std::sqrt(of_dense +
                   grid.expert_group.all_reduce_value(of_experts, Reduce::sum));
}

template <class S>
Norms norms_of(const ParamStore<S>& params, View1<Acc<S>> buffer, const Grid& grid) {
  const std::size_t kinds = param_kinds().size();
  std::vector<double> dense(kinds, 0.0), expert(kinds, 0.0);
  for (const ParamSlot& slot : params.slots()) {
    const double sum = sum_squares<Acc<S>>(params.part(buffer, slot));
    (slot.spec.expert ? expert : dense)[kind_of(slot.spec.name)] += sum;
  }
  grid.expert_group.all_reduce_host(expert.data(), static_cast<index_t>(kinds),
                                    Reduce::sum);
  Norms norms;
  double total = 0;
  for (std::size_t k = 0; k < kinds; ++k) {
    total += dense[k] + expert[k];
    norms.by_kind.push_back(std::sqrt(dense[k] + expert[k]));
  }
  norms.total = std::sqrt(total);
  return norms;
}

template <class S>
std::vector<std::string> non_finite_tensors(const ParamStore<S>& params,
                                            View1<Acc<S>> buffer, const Grid& grid) {
  std::vector<std::int32_t> found;
  for (const ParamSlot& slot : params.slots())
    found.push_back(count_non_finite<Acc<S>>(params.part(buffer, slot)) > 0 ? 1 : 0);
  grid.dense.all_reduce_host(found.data(), static_cast<index_t>(found.size()),
                             Reduce::max);
  std::vector<std::string> names;
  for (std::size_t i = 0; i < found.size(); ++i)
    if (found[i] != 0) names.push_back(params.slots()[i].spec.name);
  return names;
}

#define CAPSTAN_OPTIMIZER(S)                                                             \
  template Optimizer<S>::Optimizer(const Deck&, ParamStore<S>&, const Grid&, Context&);  \
  template AdamStep Optimizer<S>::adam_step(const ParamSlot&, const ParamGroup&, double, \
                                            double) const;                               \
  template View1<S> Optimizer<S>::weights_of(const ParamSlot&) const;                    \
  template void Optimizer<S>::step(double, double, Context&);                            \
  template double Optimizer<S>::update_norm(const Grid&) const;                          \
  template Norms norms_of<S>(const ParamStore<S>&, View1<Acc<S>>, const Grid&);          \
  template std::vector<std::string> non_finite_tensors<S>(const ParamStore<S>&,          \
                                                          View1<Acc<S>>, const Grid&);
CAPSTAN_INSTANTIATE(CAPSTAN_OPTIMIZER)

}  // namespace capstan
