#include "model/moe/transport.hpp"

#include <algorithm>
#include <numeric>

namespace capstan {

DispatchPlan make_dispatch(const TransportSpec& spec, const Assignments& a,
                           const Grid& grid, Context& ctx) {
  switch (spec.kind) {
    case Transport::cells:
      return plan_cells(spec, a, grid, ctx);
    case Transport::spill:
      return plan_spill(spec, a, grid, ctx);
    case Transport::pooled_wave:
      return plan_pooled_wave(spec, a, grid, ctx);
    case Transport::ragged:
      return plan_ragged(spec, a, grid, ctx);
    case Transport::waterfill:
      return plan_waterfill(spec, a, grid, ctx);
    case Transport::reference:
    case Transport::dropless:
      break;
  }
  return plan_dropless(spec, a, grid, ctx);
}

SortedList sort_assignments(View2<const std::int32_t> keys, index_t n_keys,
                            Context& ctx) {
  const Region region(ctx.timers, "dispatch_plan");
  Arena& arena = ctx.arena;
  const index_t assignments = keys.size();
  SortedList list;
  list.keys = flat(keys);
  list.order = arena.take1<std::int32_t>("dispatch", assignments);
  list.slot = arena.take1<std::int32_t>("dispatch", assignments);
  list.offsets = arena.take1<std::int64_t>("dispatch", n_keys + 1);
  const ArenaScope scope(arena);
  const auto counts = arena.take1<std::int64_t>("dispatch", n_keys);
  const auto blocks =
      arena.take2<std::int32_t>("dispatch", sort_blocks(keys.extent(0)), n_keys);
  sort_by_expert(keys, blocks, counts, list.offsets, list.order, list.slot);
  list.counts = to_host<std::int64_t>(counts);
  list.rows = std::accumulate(list.counts.begin(), list.counts.end(), std::int64_t(0));
  return list;
}

namespace {

View1<std::int64_t> upload(const std::vector<std::int64_t>& host, Context& ctx) {
  const index_t n = static_cast<index_t>(host.size());
  const auto view = ctx.arena.take1<std::int64_t>("dispatch", n);
  copy_to_device(host.data(), view.data(), n);
  return view;
}

/// The places of choose_kept by weight, on the host: only overflowing keys are sorted
/// out.
std::vector<std::int32_t> heaviest(const SortedList& list,
                                   const std::vector<std::int64_t>& accepted,
                                   const Assignments& a) {
  const std::vector<double> weights = a.weights();
  const auto order = to_host<std::int32_t>(list.order);
  std::vector<std::int32_t> place(list.rows, -1), row;
  std::int64_t first = 0;
  for (std::size_t key = 0; key < list.counts.size(); ++key) {
    const std::int64_t n = list.counts[key], kept = accepted[key];
    row.resize(n);
    std::iota(row.begin(), row.end(), static_cast<std::int32_t>(first));
    if (kept < n) {
      std::nth_element(row.begin(), row.begin() + kept, row.end(),
                       [&](std::int32_t i, std::int32_t j) {
                         const double x = weights[order[i]], y = weights[order[j]];
                         return x != y ? x > y : i < j;
                       });
      std::sort(row.begin(), row.begin() + kept);
    }
    for (std::int64_t i = 0; i < kept; ++i) place[row[i]] = static_cast<std::int32_t>(i);
    first += n;
  }
  return place;
}

}  // namespace

View1<std::int32_t> choose_kept(const SortedList& list,
                                const std::vector<std::int64_t>& accepted,
                                DropPolicy policy, const Assignments& a, Context& ctx) {
  const auto place = ctx.arena.take1<std::int32_t>("dispatch", list.rows);
  if (policy == DropPolicy::weight && accepted != list.counts) {
    const auto host = heaviest(list, accepted, a);
    copy_to_device(host.data(), place.data(), list.rows);
  } else {
    keep_first(list.keys, list.order, list.offsets, upload(accepted, ctx), place);
  }
  return place;
}

std::vector<std::int64_t> exchange_counts(const std::vector<std::int64_t>& accepted,
                                          const Grid& grid, Context& ctx) {
  if (grid.n_expert == 1) return accepted;
  const Region region(ctx.timers, "exchange_wait");
  std::vector<std::int64_t> arriving(accepted.size());
  grid.expert_group.all_to_all_host(
      accepted.data(), arriving.data(),
      static_cast<index_t>(accepted.size()) / grid.n_expert);
  return arriving;
}

Counts gather_counts(const std::vector<std::int64_t>& counts, const Grid& grid,
                     Context& ctx) {
  const Region region(ctx.timers, "exchange_wait");
  Counts all;
  all.senders = all.receivers = grid.n_expert;
  all.experts = static_cast<index_t>(counts.size());
  all.n.resize(all.senders * all.experts);
  grid.expert_group.all_gather_host(counts.data(), all.n.data(), all.experts);
  return all;
}

std::vector<std::int64_t> arriving_of(const Counts& accepted, index_t receiver) {
  const index_t local = accepted.local();
  std::vector<std::int64_t> out;
  for (index_t s = 0; s < accepted.senders; ++s) {
    const auto first = accepted.n.begin() + s * accepted.experts + receiver * local;
    out.insert(out.end(), first, first + local);
  }
  return out;
}

std::vector<std::int64_t> row_of(const Counts& counts, index_t sender) {
  const auto first = counts.n.begin() + sender * counts.experts;
  return std::vector<std::int64_t>(first, first + counts.experts);
}

index_t total_valid(const Assignments& a) {
  return std::accumulate(a.valid.begin(), a.valid.end(), index_t(0));
}

}  // namespace capstan
