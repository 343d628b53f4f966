#include "optim/ownership.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <tuple>

#include "kernels/newton_schulz.hpp"

namespace capstan {

namespace {

/// What dealing out has given to the ranks so far: units [tensor][rank], and sums.
struct Deal {
  std::vector<std::vector<index_t>> units;
  std::vector<double> state;
};

/// Longest processing time first.
void deal_by_work(const std::vector<DealtTensor>& tensors, Deal& deal) {
  std::vector<std::size_t> order;
  for (std::size_t t = 0; t < tensors.size(); ++t)
    if (tensors[t].work > 0) order.push_back(t);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return tensors[a].work > tensors[b].work;
  });
  std::set<std::tuple<double, double, std::size_t>> ranks;  // work, state, number
  for (std::size_t r = 0; r < deal.state.size(); ++r) ranks.insert({0, 0, r});
  for (const std::size_t t : order) {
    for (index_t unit = 0; unit < tensors[t].units; ++unit) {
      const auto [work, state, r] = *ranks.begin();
      ranks.erase(ranks.begin());
      ranks.insert({work + tensors[t].work, state + tensors[t].state, r});
      deal.state[r] = state + tensors[t].state;
      ++deal.units[t][r];
    }
  }
}

/// What each rank gets of `amount` so that the least filled are filled up first.
std::vector<double> quotas(const std::vector<double>& filled, double amount) {
  std::vector<double> sorted = filled;
  std::sort(sorted.begin(), sorted.end());
  double level = sorted[0], below = 0;
  for (std::size_t k = 0; k < sorted.size(); ++k) {
    below += sorted[k];
    level = (amount + below) / double(k + 1);
    if (k + 1 == sorted.size() || level <= sorted[k + 1]) break;
  }
  std::vector<double> out;
  for (const double x : filled) out.push_back(std::max(0.0, level - x));
  return out;
}

/// The tensors without work, as one line of units that is cut at the quotas.
void deal_by_state(const std::vector<DealtTensor>& tensors, Deal& deal) {
  double amount = 0;
  for (const DealtTensor& t : tensors)
    if (t.work == 0) amount += double(t.units) * t.state;
  std::vector<double> ends = quotas(deal.state, amount);
  std::partial_sum(ends.begin(), ends.end(), ends.begin());
  double start = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const DealtTensor& t = tensors[i];
    if (t.work > 0 || t.units == 0) continue;
    index_t given = 0;
    for (std::size_t r = 0; r < ends.size(); ++r) {
      const bool last = r + 1 == ends.size();
      const double cut = std::round((ends[r] - start) / t.state);
      const index_t end =
          last ? t.units : std::clamp<index_t>(index_t(cut), given, t.units);
      deal.units[i][r] = end - given;
      given = end;
    }
    start += double(t.units) * t.state;
  }
}

}  // namespace

std::vector<std::vector<index_t>> deal_out(const std::vector<DealtTensor>& tensors,
                                           index_t ranks) {
  const auto n = static_cast<std::size_t>(ranks);
  Deal deal;
  deal.units.assign(tensors.size(), std::vector<index_t>(n, 0));
  deal.state.assign(n, 0.0);
  deal_by_work(tensors, deal);
  deal_by_state(tensors, deal);
  std::vector<std::vector<index_t>> cuts;
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    std::vector<index_t> cut = {0};
    for (const index_t units : deal.units[t])
      cut.push_back(cut.back() + units * tensors[t].rows_per_unit);
    cuts.push_back(cut);
  }
  return cuts;
}

DealtTensor dealt_tensor(const ParamSpec& spec, OptimizerKind kind, index_t n_expert) {
  const std::size_t axes = spec.shape.size();
  const index_t rows = spec.shape[0] / (spec.expert ? n_expert : 1);
  const index_t row_size = spec.size() / spec.shape[0];
  DealtTensor t;
  t.units = rows;
  if (orthogonalises(kind) && axes < 3) {
    t.units = 1;
    t.rows_per_unit = rows;
  }
  const index_t size = t.rows_per_unit * row_size;
  t.state = double(size) * (1 + moments_of(kind));
  if (orthogonalises(kind))
    t.work = newton_schulz_flops({1, size / spec.shape.back(), spec.shape.back()});
  return t;
}

std::vector<std::vector<index_t>> share_state(const std::vector<ParamSpec>& specs,
                                              const std::vector<ParamGroup>& groups,
                                              index_t n_data, index_t n_expert) {
  std::vector<std::vector<index_t>> cuts(specs.size());
  for (const bool expert : {false, true}) {
    std::vector<std::size_t> chosen;
    std::vector<DealtTensor> tensors;
    for (std::size_t i = 0; i < specs.size(); ++i) {
      if (specs[i].expert != expert) continue;
      const OptimizerKind kind = groups[group_of(groups, specs[i].name)].kind;
      chosen.push_back(i);
      tensors.push_back(dealt_tensor(specs[i], kind, n_expert));
    }
    const auto dealt = deal_out(tensors, expert ? n_data : n_data * n_expert);
    for (std::size_t k = 0; k < chosen.size(); ++k) cuts[chosen[k]] = dealt[k];
  }
  return cuts;
}

}  // namespace capstan
