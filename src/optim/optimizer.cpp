#include "optim/optimizer.hpp"

#include <cmath>

#include "kernels/swiglu.hpp"

namespace capstan {

namespace {
View1<double> part_of(const View1<double>& x, index_t first, index_t n) {
  return View1<double>(x.data() + first, n);
}
}  // namespace

template <class S>
Optimizer<S>::Optimizer(const Deck& deck, ParamStore<S>& params, Context& ctx)
    : params_(params), groups_(groups_from_deck(deck)) {
  for (const ParamSlot& slot : params.slots()) {
    group_.push_back(group_of(groups_, slot.spec.name));
  }
  index_t blocks = 0;
  for (const ParamSlot& slot : params.slots()) {
    blocks += update_blocks(slot.size());
    if (!slot.spec.expert) dense_blocks_ = blocks;
  }
  squares_ = make1<double>(ctx.ledger, "norms", blocks);
  square_sums_ =
      make1<double>(ctx.ledger, "norms",
                    update_blocks(dense_blocks_) + update_blocks(blocks - dense_blocks_));
  first_ = make1<Acc<S>>(ctx.ledger, "moments", params.size());
  second_ = make1<Acc<S>>(ctx.ledger, "moments", params.size());
}

template <class S>
void Optimizer<S>::step(double lr_factor, double grad_scale, Context& ctx) {
  const Region region(ctx.timers, "optimizer");
  ++updates_;
  constexpr bool kSeparateWeights = !std::is_same_v<S, Acc<S>>;
  index_t block = 0;
  for (std::size_t i = 0; i < params_.slots().size(); ++i) {
    const ParamSlot& slot = params_.slots()[i];
    const index_t blocks = update_blocks(slot.size());
    const ParamGroup& group = groups_[group_[i]];
    AdamStep step;
    step.lr = group.lr * lr_factor;
    step.beta1 = group.beta1;
    step.beta2 = group.beta2;
    step.eps = group.eps;
    step.grad_scale = grad_scale;
    step.count = updates_;
    const bool decays = !group.decay_matrices_only || slot.spec.kind == ParamSpec::matrix;
    step.weight_decay = decays ? group.weight_decay : 0;
    adamw<S>(step, params_.part(params_.gradients(), slot),
             params_.part(params_.masters(), slot), params_.part(first_, slot),
             params_.part(second_, slot),
             kSeparateWeights ? params_.part(params_.weights(), slot) : View1<S>(),
             part_of(squares_, block, blocks));
    block += blocks;
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
                                            View1<Acc<S>> buffer) {
  std::vector<std::string> names;
  for (const ParamSlot& slot : params.slots()) {
    if (count_non_finite<Acc<S>>(params.part(buffer, slot)) > 0) {
      names.push_back(slot.spec.name);
    }
  }
  return names;
}

#define CAPSTAN_OPTIMIZER(S)                                                    \
  template class Optimizer<S>;                                                  \
  template Norms norms_of<S>(const ParamStore<S>&, View1<Acc<S>>, const Grid&); \
  template std::vector<std::string> non_finite_tensors<S>(const ParamStore<S>&, \
                                                          View1<Acc<S>>);
CAPSTAN_INSTANTIATE(CAPSTAN_OPTIMIZER)

}  // namespace capstan
