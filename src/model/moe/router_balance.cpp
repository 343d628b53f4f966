// What RouterState does about the load: the balance and z terms of the objective, and the
// biases of the next step.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/parallel.hpp"
#include "model/moe/router_state.hpp"

namespace capstan {

namespace {

/// row = counts, both [1, E]. (Kernels stand apart from private members: nvcc wants so.)
void copy_counts(View2<const std::int64_t> counts, View2<std::int64_t> row) {
  par_for(
      "router_scope", row.extent(1),
      KOKKOS_LAMBDA(index_t i) { row(0, i) = counts(0, i); });
}

/// sum(layer) += factor * the scalar product of a and b.
void add_product(View1<const double> a, View1<const double> b, double factor,
                 View1<double> sum, index_t layer) {
  const index_t n = a.extent(0);
  par_rows(
      "router_balance", 1, 0, KOKKOS_LAMBDA(const Team& team, index_t) {
        const double dot = team.sum(n, [&](index_t i) { return a(i) * b(i); });
        team.once([&] { sum(layer) += factor * dot; });
      });
}

}  // namespace

template <class S>
bool RouterState<S>::counts_first(index_t micro_batches) const {
  return shape_.balance == Balance::aux && shape_.aux_scope == AuxScope::global &&
         micro_batches > 1;
}

/// A row of scope_counts_, as one group.
template <class S>
View2<std::int64_t> RouterState<S>::scope_row(index_t row) const {
  const index_t e = shape_.experts;
  return View2<std::int64_t>(scope_counts_.data() + row * e, 1, e);
}

/// The row of the layer and, where those are the scope, the micro-batch.
template <class S>
View2<std::int64_t> RouterState<S>::scope_counts(index_t layer,
                                                 const DeviceBatch& batch) const {
  const index_t m = by_micro_batch() ? batch.first_token / batch.size() : 0;
  return scope_row(m * layers_.count() + layer);
}

template <class S>
void RouterState<S>::count(index_t layer, View2<const std::int32_t> experts,
                           Context& ctx) {
  const ArenaScope scope(ctx.arena);
  const auto counts = group_counts(experts, 1, ctx);
  const auto sum = scope_row(layer);
  par_for(
      "router_count", shape_.experts,
      KOKKOS_LAMBDA(index_t i) { sum(0, i) += counts(0, i); });
}

template <class S>
void RouterState<S>::share_counts(const Grid& grid) {
  fence();
  grid.dense.all_reduce(flat(scope_counts_), Reduce::sum).wait();
  counted_ = true;
}

/// balance_(layer) += E sum_e f_e * (sum of p_e over the group's valid tokens), all
/// groups.
template <class S>
void RouterState<S>::record_balance(index_t layer, const DeviceBatch& batch,
                                    View2<const std::int64_t> counts,
                                    View2<const double> probability, const Grid& grid,
                                    Context& ctx) {
  const index_t e = shape_.experts, n = counts.extent(0);
  View2<const std::int64_t> of_scope = counts;
  if (!by_sequence()) {
    const index_t rows = layers_.count() * (step_tokens_ / batch.size());
    if (by_micro_batch() && index_t(scope_counts_.extent(0)) < rows) {
      const index_t more = rows - index_t(scope_counts_.extent(0));
      ctx.ledger.add("router", more * e * index_t(sizeof(std::int64_t)));
      scope_counts_ = View2<std::int64_t>("router", rows, e);
    }
    const auto row = scope_counts(layer, batch);
    if (!counted_) {
      require(by_micro_batch() || batch.size() == step_tokens_,
              "router: the whole step must be counted before a part of it is trained on");
      copy_counts(counts, row);
      fence();
      grid.dense.all_reduce(flat(row), Reduce::sum).wait();
    }
    of_scope = row;
  }
  const auto shares = ctx.arena.take2<double>("router", n, e);
  assignment_shares(of_scope, shares);
  add_product(flat(shares), View1<const double>(probability.data(), n * e), double(e),
              balance_, layer);
}

template <class S>
void RouterState<S>::add_gradient(index_t layer, const DeviceBatch& batch,
                                  View2<const std::int32_t> experts,
                                  View2<const Acc<S>> logits, View2<Acc<S>> d_logits,
                                  Context& ctx) const {
  const bool aux = shape_.balance == Balance::aux;
  if ((!aux && shape_.router_z_loss == 0) || valid_tokens_ == 0) return;
  const ArenaScope scope(ctx.arena);
  const index_t e = shape_.experts, n = groups(batch);
  const auto shares = ctx.arena.take2<double>("router", n, e);
  if (aux) {
    assignment_shares(
        by_sequence() ? group_counts(experts, n, ctx) : scope_counts(layer, batch),
        shares);
  } else {
    fill(shares, 0.0);
  }
  const double mean = 1.0 / (double(valid_tokens_) * double(shape_.layers));
  router_losses_backward<S>(logits, batch.segments, shares,
                            aux ? shape_.aux_loss * double(e) * mean : 0.0,
                            shape_.router_z_loss * mean, d_logits);
}

template <class S>
RouterTerms RouterState<S>::terms(const Grid& grid) const {
  RouterTerms terms;
  const bool aux = shape_.balance == Balance::aux;
  if ((!aux && shape_.router_z_loss == 0) || valid_tokens_ == 0) return terms;
  double sums[2] = {0, 0};
  for (const double x : to_host<double>(balance_)) sums[0] += x;
  for (const double x : to_host<double>(z_)) sums[1] += x;
  grid.dense.all_reduce_host(sums, 2, Reduce::sum);
  grid.pipeline.all_reduce_host(sums, 2, Reduce::sum);
  const double mean = 1.0 / (double(valid_tokens_) * double(shape_.layers));
  if (aux) terms.balance = shape_.aux_loss * mean * sums[0];
  terms.z = shape_.router_z_loss * mean * sums[1];
  return terms;
}

template <class S>
void RouterState<S>::set_bias(const Grid& grid, RouterReport& report) {
  if (report.assignments == 0) return;
  if (shape_.balance == Balance::qb) {
    quantile_balance(grid, report.assignments / layers_.count(), report);
  } else if (shape_.balance == Balance::sign) {
    copy_to_device(report.load.data(), scope_counts_.data(), index_t(report.load.size()));
    for (index_t l = 0; l < layers_.count(); ++l) {
      sign_bias<S>(flat(scope_row(l)), shape_.sign_rate, bias(l));
    }
  }
}

template <class S>
void RouterState<S>::quantile_balance(const Grid& grid, std::int64_t assignments,
                                      RouterReport& report) {
  // A bin counts a token once: 32 bits hold it, and a histogram is half as large.
  require(assignments / shape_.top_k <= std::numeric_limits<std::int32_t>::max(),
          "router: a step of more than 2^31 tokens");
  const double target =
      static_cast<double>(assignments) / static_cast<double>(shape_.experts);
  const index_t layers = layers_.count();
  std::vector<double> ranges(2 * layers);  // lowest, minus highest: one min-reduction
  for (index_t l = 0; l < layers; ++l) {
    margin_range<S>(logits(l, 0, step_tokens_), alpha(l, 0, step_tokens_), segments_,
                    range_);
    copy_to_host(range_.data(), &ranges[2 * l], 2);
    ranges[2 * l + 1] = -ranges[2 * l + 1];
  }
  grid.dense.all_reduce_host(ranges.data(), 2 * layers, Reduce::min);
  for (index_t l = 0; l < layers; ++l) {
    const double lo = ranges[2 * l];
    report.margin_min.push_back(lo);
    report.margin_max.push_back(-ranges[2 * l + 1]);
    const double floor = 1e-6 * std::max(1.0, std::fabs(lo));
    const double hi = std::max(-ranges[2 * l + 1], lo + floor);
    fill(histogram_, std::int32_t(0));
    margin_histogram<S>(logits(l, 0, step_tokens_), alpha(l, 0, step_tokens_), segments_,
                        lo, hi, histogram_);
    fence();
    grid.dense.all_reduce(flat(histogram_), Reduce::sum).wait();
    quantile_bias<S>(histogram_, lo, hi, target, bias(l));
  }
}

#define CAPSTAN_ROUTER_BALANCE(S)                                                    \
  template bool RouterState<S>::counts_first(index_t) const;                         \
  template void RouterState<S>::count(index_t, View2<const std::int32_t>, Context&); \
  template void RouterState<S>::share_counts(const Grid&);                           \
  template void RouterState<S>::record_balance(                                      \
      index_t, const DeviceBatch&, View2<const std::int64_t>, View2<const double>,   \
      const Grid&, Context&);                                                        \
  template void RouterState<S>::add_gradient(                                        \
      index_t, const DeviceBatch&, View2<const std::int32_t>, View2<const Acc<S>>,   \
      View2<Acc<S>>, Context&) const;                                                \
  template RouterTerms RouterState<S>::terms(const Grid&) const;                     \
  template void RouterState<S>::set_bias(const Grid&, RouterReport&);
CAPSTAN_INSTANTIATE_ACC(CAPSTAN_ROUTER_BALANCE)

}  // namespace capstan
