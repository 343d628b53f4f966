#include "model/moe/router_state.hpp"

#include <algorithm>
#include <cmath>

#include "base/parallel.hpp"

namespace capstan {

template <class S>
RouterState<S>::RouterState(const ModelShape& shape, LayerRange layers,
                            index_t step_tokens, Context& ctx)
    : shape_(shape), layers_(layers), step_tokens_(step_tokens), drops_(layers.count()) {
  Ledger& ledger = ctx.ledger;
  const index_t l = layers.count(), e = shape.experts;
  bias_ = make2<Acc<S>>(ledger, "router", l, e);
  logits_ = make3<Acc<S>>(ledger, "router_logits", l, step_tokens, e);
  alpha_ = make2<Acc<S>>(ledger, "router_logits", l, step_tokens);
  segments_ = make1<std::int32_t>(ledger, "router", step_tokens);
  load_ = make2<std::int64_t>(ledger, "router", l, e);
  probability_ = make2<double>(ledger, "router", l, e);
  z_ = make1<double>(ledger, "router", l);
  range_ = make1<double>(ledger, "router", 2);
  if (shape.balance == Balance::aux) balance_ = make1<double>(ledger, "router", l);
  if (shape.balance == Balance::aux || shape.balance == Balance::sign) {
    scope_counts_ = make2<std::int64_t>(ledger, "router", l, e);
  }
  if (shape.balance == Balance::qb) {
    histogram_ = make2<std::int32_t>(ledger, "router", e, shape.qb_bins);
  }
}

template <class S>
void RouterState<S>::begin_step(std::int64_t valid_tokens) {
  valid_tokens_ = valid_tokens;
  counted_ = false;
  fill(scope_counts_, std::int64_t(0));
  fill(balance_, 0.0);
  drops_.begin_step();
  fill(load_, std::int64_t(0));
  fill(probability_, 0.0);
  fill(z_, 0.0);
}

template <class S>
void RouterState<S>::set_segments(View1<const std::int32_t> segments,
                                  index_t first_token) {
  const auto to = segments_;
  par_for(
      "router_segments", segments.extent(0),
      KOKKOS_LAMBDA(index_t t) { to(first_token + t) = segments(t); });
}

template <class S>
View1<Acc<S>> RouterState<S>::bias(index_t layer) const {
  return View1<Acc<S>>(&bias_.data()[layer * shape_.experts], shape_.experts);
}

template <class S>
View2<Acc<S>> RouterState<S>::logits(index_t layer, index_t first_token,
                                     index_t tokens) const {
  return View2<Acc<S>>(
      logits_.data() + (layer * step_tokens_ + first_token) * shape_.experts, tokens,
      shape_.experts);
}

template <class S>
View1<Acc<S>> RouterState<S>::alpha(index_t layer, index_t first_token,
                                    index_t tokens) const {
  return View1<Acc<S>>(alpha_.data() + layer * step_tokens_ + first_token, tokens);
}

template <class S>
index_t RouterState<S>::groups(const DeviceBatch& batch) const {
  return shape_.balance == Balance::aux && by_sequence() ? batch.sequences : 1;
}

/// Assignments of each group [groups, E], in the arena.
template <class S>
View2<std::int64_t> RouterState<S>::group_counts(View2<const std::int32_t> experts,
                                                 index_t groups, Context& ctx) const {
  const index_t e = shape_.experts;
  const auto counts = ctx.arena.take2<std::int64_t>("router", groups, e);
  const ArenaScope scope(ctx.arena);
  const auto blocks =
      ctx.arena.take2<std::int32_t>("router", group_blocks(experts.extent(0), groups), e);
  count_by_group(experts, blocks, counts);
  return counts;
}

template <class S>
void RouterState<S>::record(index_t layer, const DeviceBatch& batch,
                            View2<const std::int32_t> experts, View2<const Acc<S>> logits,
                            const Grid& grid, Context& ctx) {
  const ArenaScope scope(ctx.arena);
  const index_t e = shape_.experts, n = groups(batch);
  const auto counts = group_counts(experts, n, ctx);
  const auto probability = ctx.arena.take2<double>("router", n, e);
  const auto z = ctx.arena.take1<double>("router", n);
  const auto blocks =
      ctx.arena.take2<double>("router", group_blocks(batch.size(), n), e + 1);
  router_statistics<S>(logits, batch.segments, blocks, probability, z);
  const auto load_sum = load_;
  const auto probability_sum = probability_;
  const auto z_sum = z_;
  par_for(
      "router_record", e, KOKKOS_LAMBDA(index_t i) {
        for (index_t g = 0; g < n; ++g) {
          load_sum(layer, i) += counts(g, i);
          probability_sum(layer, i) += probability(g, i);
          if (i == 0) z_sum(layer) += z(g);
        }
      });
  if (shape_.balance == Balance::aux) {
    record_balance(layer, batch, counts, probability, grid, ctx);
  }
}

/// Of the layers of this stage.
template <class S>
RouterReport RouterState<S>::own_report(const Grid& grid) const {
  const index_t layers = layers_.count(), e = shape_.experts;
  RouterReport report;
  report.load = to_host<std::int64_t>(flat(load_));
  std::vector<double> p = to_host<double>(flat(probability_)), z = to_host<double>(z_);
  std::vector<double> balance = to_host<double>(balance_);
  const auto bias = to_host<Acc<S>>(flat(bias_));
  grid.dense.all_reduce_host(report.load.data(), layers * e, Reduce::sum);
  grid.dense.all_reduce_host(p.data(), layers * e, Reduce::sum);
  grid.dense.all_reduce_host(z.data(), layers, Reduce::sum);
  grid.dense.all_reduce_host(balance.data(), index_t(balance.size()), Reduce::sum);
  for (index_t l = 0; l < layers; ++l) {
    double total = 0, most = 0, entropy = 0, dot = 0;
    for (index_t i = 0; i < e; ++i) {
      total += static_cast<double>(report.load[l * e + i]);
      most = std::max(most, static_cast<double>(report.load[l * e + i]));
    }
    const double n = std::max(1.0, total), valid = n / static_cast<double>(shape_.top_k);
    for (index_t i = 0; i < e; ++i) {
      const double f = static_cast<double>(report.load[l * e + i]) / n;
      if (f > 0) entropy -= f * std::log(f);
      dot += f * p[l * e + i] / valid;
    }
    report.entropy.push_back(entropy);
    report.load_balance.push_back(dot * static_cast<double>(e * shape_.top_k));
    report.z_loss.push_back(z[l] / valid);
    if (!balance.empty()) report.balance_loss.push_back(balance[l] / valid);
    report.max_over_mean.push_back(most * static_cast<double>(e) / n);
    const auto [lo, hi] =
        std::minmax_element(bias.begin() + l * e, bias.begin() + (l + 1) * e);
    report.bias_min.push_back(*lo);
    report.bias_max.push_back(*hi);
    report.assignments += static_cast<std::int64_t>(total);
  }
  report.drops = drops_.end_step(grid);
  return report;
}

template <class S>
RouterReport RouterState<S>::end_step(const Grid& grid, Context& ctx) {
  const Region region(ctx.timers, "balance");
  RouterReport report = own_report(grid);
  set_bias(grid, report);
  return gather_layers(report, grid.pipeline);
}

RouterReport gather_layers(const RouterReport& own, const Comm& pipeline) {
  if (pipeline.size() == 1) return own;
  RouterReport all = own;
  const auto join = [&](auto& list) { list = pipeline.gather_lists(list); };
  join(all.load);
  for (auto* list : {&all.entropy, &all.load_balance, &all.z_loss, &all.balance_loss,
                     &all.max_over_mean, &all.bias_min, &all.bias_max, &all.margin_min,
                     &all.margin_max, &all.drops.pool_rows, &all.drops.pool_factor,
                     &all.drops.bank_rows, &all.drops.bank_factor})
    join(*list);
  for (auto* list : {&all.drops.sender, &all.drops.receiver, &all.drops.spilled})
    join(*list);
  all.assignments = pipeline.all_reduce_value(own.assignments, Reduce::sum);
  return all;
}

#define CAPSTAN_ROUTER_STATE(S) template class RouterState<S>;
CAPSTAN_INSTANTIATE_ACC(CAPSTAN_ROUTER_STATE)

}  // namespace capstan
