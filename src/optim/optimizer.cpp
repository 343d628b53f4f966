#include "optim/optimizer.hpp"

#include <cmath>
#include <sstream>

#include "kernels/swiglu.hpp"

namespace capstan {

namespace {

View1<double> part_of(const View1<double>& x, index_t first, index_t n) {
  return View1<double>(x.data() + first, n);
}

/// A tensor [rows, cols] is one matrix, [N, rows, cols] are N; a vector is a row. `size`:
/// elements that are owned, which may be some rows of the one matrix of `kind` adamh.
BatchShape matrices_of(const ParamSlot& slot, OptimizerKind kind, index_t size) {
  const std::size_t axes = slot.spec.shape.size();
  const index_t cols = slot.spec.shape.back();
  if (axes < 3 && kind == OptimizerKind::adamh) return {size / cols, 1, cols};
  if (axes < 3) return {size > 0 ? 1 : 0, size / cols, cols};
  const index_t rows = slot.spec.shape[axes - 2];
  return {size / (rows * cols), rows, cols};
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
  ns_bf16_ = deck.text("optimizer/ns_precision") == "bf16";
  std::vector<ParamSpec> specs;
  for (const ParamSlot& slot : params.slots()) specs.push_back(slot.spec);
  refuse_groups(group_problems(deck, specs));
  if (deck.text("memory/optimizer") == "sharded" && grid.dense.size() > 1) {
    const auto cuts = share_state(specs, groups_, grid.n_data, grid.n_expert);
    shards_ = std::make_unique<Shards<S>>(params, cuts, grid, kShardBucket, ctx.ledger);
    params.own(shards_->owned(), ctx);
  }
  index_t blocks = 0, firsts = 0, seconds = 0;
  for (std::size_t i = 0; i < params.slots().size(); ++i) {
    const ParamSlot& slot = params.slots()[i];
    const index_t size = params.owned_size(i);
    OptimizerSlot<S> state;
    state.group = group_of(groups_, slot.spec.name);
    const OptimizerKind kind = groups_[state.group].kind;
    state.matrices = matrices_of(slot, kind, size);
    const bool layer = deck.text("optimizer/norm_scope") == "layer";
    state.shared_radius = (slot.spec.expert && layer) ||
                          (slot.spec.shape.size() < 3 && kind == OptimizerKind::adamh);
    if (keeps_norm(kind))
      state.radius.assign(state.shared_radius ? 1 : state.matrices.count, 0.0);
    state.block = blocks;
    blocks += update_blocks(size);
    if (!slot.spec.expert) dense_blocks_ = blocks;
    firsts += size;
    if (moments_of(kind) == 2) seconds += size;
    slots_.push_back(state);
  }
  squares_ = make1<double>(ctx.ledger, "norms", blocks);
  square_sums_ =
      make1<double>(ctx.ledger, "norms",
                    update_blocks(dense_blocks_) + update_blocks(blocks - dense_blocks_));
  first_ = make1<Acc<S>>(ctx.ledger, "moments", firsts);
  second_ = make1<Acc<S>>(ctx.ledger, "moments", seconds);
  index_t first = 0, second = 0;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const index_t size = params.owned_size(i);
    slots_[i].first = View1<Acc<S>>(first_.data() + first, size);
    first += size;
    if (moments_of(groups_[slots_[i].group].kind) == 1) continue;
    slots_[i].second = View1<Acc<S>>(second_.data() + second, size);
    second += size;
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

/// The rounded copy of slot i's owned masters; extent 0 where the masters are the
/// weights.
template <class S>
View1<S> Optimizer<S>::weights_of(std::size_t i) const {
  constexpr bool kSeparate = !std::is_same_v<S, Acc<S>>;
  return kSeparate ? params_.owned_part(params_.weights(), i) : View1<S>();
}

template <class S>
void Optimizer<S>::reduce_gradients(Context& ctx) {
  const Region region(ctx.timers, "reduce_gradients");
  require(shards_ != nullptr, "reduce_gradients: the state is not sharded");
  shards_->reduce(params_.gradients(), ctx);
}

template <class S>
void Optimizer<S>::gather_gradients(Context& ctx) {
  if (shards_) shards_->gather(params_.gradients(), ctx);
}

/// Every rank gets the weights of the owners.
template <class S>
void Optimizer<S>::gather_weights(Context& ctx) {
  if (!shards_) return;
  const Region region(ctx.timers, "gather_weights");
  shards_->gather(params_.weights(), ctx);
}

template <class S>
void Optimizer<S>::refresh_weights(Context& ctx) {
  params_.refresh_weights();
  gather_weights(ctx);
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
    adamw<S>(step, params_.owned_part(params_.gradients(), i), params_.owned_masters(i),
             state.first, state.second, weights_of(i),
             part_of(squares_, state.block, update_blocks(params_.owned_size(i))));
  }
  gather_weights(ctx);
}

template <class S>
double Optimizer<S>::update_norm(const Grid& grid) const {
  const index_t dense = update_blocks(dense_blocks_), all = square_sums_.extent(0);
  const index_t experts = index_t(squares_.extent(0)) - dense_blocks_;
  block_sums(part_of(squares_, 0, dense_blocks_), part_of(square_sums_, 0, dense));
  block_sums(part_of(squares_, dense_blocks_, experts),
             part_of(square_sums_, dense, all - dense));
  const std::vector<double> sums = to_host<double>(square_sums_);
  double both[2] = {0, 0};  // dense, experts
  for (index_t i = 0; i < all; ++i) both[i < dense ? 0 : 1] += sums[i];
  sum_over_owners(grid, params_.sharded(), both, 1);
  return std::sqrt(both[0] + both[1]);
}

void sum_over_owners(const Grid& grid, bool sharded, double* sums, index_t n) {
  if (sharded)
    grid.dense.all_reduce_host(sums, 2 * n, Reduce::sum);
  else  // dense tensors are equal on all ranks of a stage
    grid.expert_group.all_reduce_host(sums + n, n, Reduce::sum);
  grid.pipeline.all_reduce_host(sums, 2 * n, Reduce::sum);
}

namespace {

/// part(i): the owned rows of slot i.
template <class S, class Part>
Norms norms_of(const ParamStore<S>& params, const Grid& grid, const Part& part) {
  const std::size_t kinds = param_kinds().size();
  std::vector<double> sums(2 * kinds, 0.0);  // dense, experts
  for (std::size_t i = 0; i < params.slots().size(); ++i) {
    const ParamSpec& spec = params.slots()[i].spec;
    sums[kind_of(spec.name) + (spec.expert ? kinds : 0)] += sum_squares<Acc<S>>(part(i));
  }
  sum_over_owners(grid, params.sharded(), sums.data(), static_cast<index_t>(kinds));
  Norms norms;
  double total = 0;
  for (std::size_t k = 0; k < kinds; ++k) {
    const double sum = sums[k] + sums[k + kinds];
    total += sum;
    norms.by_kind.push_back(std::sqrt(sum));
  }
  norms.total = std::sqrt(total);
  return norms;
}

}  // namespace

template <class S>
Norms gradient_norms(const ParamStore<S>& params, const Grid& grid) {
  return norms_of(params, grid, [&](std::size_t i) {
    return params.owned_part(params.gradients(), i);
  });
}

template <class S>
Norms master_norms(const ParamStore<S>& params, const Grid& grid) {
  return norms_of(params, grid, [&](std::size_t i) { return params.owned_masters(i); });
}

template <class S>
std::vector<std::string> non_finite_tensors(const ParamStore<S>& params,
                                            View1<Acc<S>> buffer, const Grid& grid) {
  std::vector<std::int32_t> found;
  for (std::size_t i = 0; i < params.slots().size(); ++i)
    found.push_back(count_non_finite<Acc<S>>(params.owned_part(buffer, i)) > 0 ? 1 : 0);
  grid.dense.all_reduce_host(found.data(), static_cast<index_t>(found.size()),
                             Reduce::max);
  std::string lines;
  for (std::size_t i = 0; i < found.size(); ++i)
    if (found[i] != 0) lines += params.slots()[i].spec.name + "\n";
  std::string all;
  for (const std::string& stage : grid.pipeline.gather_texts(lines)) all += stage;
  std::istringstream text(grid.pipeline.broadcast_text(all, 0));
  std::vector<std::string> names;
  for (std::string name; std::getline(text, name);) names.push_back(name);
  return names;
}

#define CAPSTAN_OPTIMIZER(S)                                                             \
  template Optimizer<S>::Optimizer(const Deck&, ParamStore<S>&, const Grid&, Context&);  \
  template AdamStep Optimizer<S>::adam_step(const ParamSlot&, const ParamGroup&, double, \
                                            double) const;                               \
  template View1<S> Optimizer<S>::weights_of(std::size_t) const;                         \
  template void Optimizer<S>::reduce_gradients(Context&);                                \
  template void Optimizer<S>::gather_gradients(Context&);                                \
  template void Optimizer<S>::gather_weights(Context&);                                  \
  template void Optimizer<S>::refresh_weights(Context&);                                 \
  template void Optimizer<S>::step(double, double, Context&);                            \
  template double Optimizer<S>::update_norm(const Grid&) const;                          \
  template Norms gradient_norms<S>(const ParamStore<S>&, const Grid&);                   \
  template Norms master_norms<S>(const ParamStore<S>&, const Grid&);                     \
  template std::vector<std::string> non_finite_tensors<S>(const ParamStore<S>&,          \
                                                          View1<Acc<S>>, const Grid&);
CAPSTAN_INSTANTIATE(CAPSTAN_OPTIMIZER)

}  // namespace capstan
