// The accept rule of each transport, applied to the routing of all senders at once.
#include <algorithm>

#include "plan/rehearsal.hpp"

namespace capstan {

namespace {

Counts count_matrix(const std::vector<Routing>& routing, index_t experts, index_t top_k) {
  const index_t senders = static_cast<index_t>(routing.size());
  Counts counts{senders, experts, senders,
                std::vector<std::int64_t>(senders * experts, 0)};
  for (index_t s = 0; s < senders; ++s) {
    for (index_t t = 0; t < routing[s].tokens; ++t) {
      for (index_t k = 0; k < top_k; ++k) ++counts.at(s, routing[s].at(t, k));
    }
  }
  return counts;
}

std::int64_t sum(const std::vector<std::int64_t>& v) {
  std::int64_t total = 0;
  for (const std::int64_t x : v) total += x;
  return total;
}

/// Cells of one sender, then three rounds over the tokens for what found no room: round j
/// offers the first dropped assignment of a token to its choice top_k + j.
DropCount spill_one(const Routing& r, index_t experts, index_t top_k, index_t capacity) {
  DropCount count;
  std::vector<index_t> used(experts, 0);
  std::vector<std::int16_t> dropped(r.tokens, 0);
  for (index_t t = 0; t < r.tokens; ++t) {
    for (index_t k = 0; k < top_k; ++k) {
      index_t& cell = used[r.at(t, k)];
      if (cell < capacity) {
        ++cell;
      } else {
        ++dropped[t];
      }
    }
  }
  for (index_t j = top_k; j < r.choices; ++j) {
    for (index_t t = 0; t < r.tokens; ++t) {
      index_t& cell = used[r.at(t, j)];
      if (dropped[t] == 0 || cell >= capacity) continue;
      ++cell;
      --dropped[t];
      ++count.spilled;
    }
  }
  for (const std::int16_t n : dropped) count.sender += n;
  return count;
}

/// Pools of one sender: ids [receiver][wave][slot] = local expert + 1; what has no slot
/// is dropped.
struct Pools {
  index_t capacity = 0, waves = 1, local = 1;
  std::vector<std::vector<std::int32_t>> ids;  ///< [receiver * waves], each [capacity]
};

std::int64_t fill_pools(const Routing& r, index_t top_k, Pools& pools) {
  const index_t receivers = static_cast<index_t>(pools.ids.size()) / pools.waves;
  std::vector<index_t> rank(receivers, 0);
  std::int64_t dropped = 0;
  for (index_t t = 0; t < r.tokens; ++t) {
    for (index_t k = 0; k < top_k; ++k) {
      const index_t expert = r.at(t, k), to = expert / pools.local;
      const PoolPlace place = pool_place(rank[to]++, pools.waves);
      if (place.slot >= pools.capacity) {
        ++dropped;
        continue;
      }
      pools.ids[to * pools.waves + place.wave][place.slot] =
          static_cast<std::int32_t>(expert % pools.local) + 1;
    }
  }
  return dropped;
}

DropCount pooled(const TransportSpec& spec, const std::vector<Routing>& routing,
                 index_t experts, index_t top_k) {
  DropCount count;
  const index_t senders = static_cast<index_t>(routing.size()), local = experts / senders;
  const index_t wanted = routing[0].tokens * top_k;
  const index_t pool = capacity_rows(spec.capacity_send, wanted, senders * spec.waves);
  const index_t bank = capacity_rows(spec.capacity_receive, wanted, local * spec.waves);
  std::vector<Pools> all(senders);
  for (index_t s = 0; s < senders; ++s) {
    all[s] = {pool, spec.waves, local, {}};
    all[s].ids.assign(senders * spec.waves, std::vector<std::int32_t>(pool, 0));
    count.sender += fill_pools(routing[s], top_k, all[s]);
  }
  std::vector<index_t> first(senders), sizes(senders, pool);
  for (index_t s = 0; s < senders; ++s) first[s] = s * pool;
  for (index_t receiver = 0; receiver < senders; ++receiver) {
    for (index_t w = 0; w < spec.waves; ++w) {
      std::vector<std::int32_t> ids;
      for (index_t s = 0; s < senders; ++s) {
        const auto& from = all[s].ids[receiver * spec.waves + w];
        ids.insert(ids.end(), from.begin(), from.end());
      }
      count.receiver += grant_bank(ids, first, sizes, local, bank).dropped;
    }
  }
  return count;
}

}  // namespace

void DropCount::add(const DropCount& other) {
  assignments += other.assignments;
  sender += other.sender;
  receiver += other.receiver;
  spilled += other.spilled;
}

DropCount rehearse_exchange(const TransportSpec& spec,
                            const std::vector<Routing>& routing, index_t experts,
                            index_t top_k) {
  const Counts counts = count_matrix(routing, experts, top_k);
  const index_t senders = counts.senders, tokens = routing.at(0).tokens;
  const std::int64_t wanted = sum(counts.n);
  DropCount count;
  switch (spec.kind) {
    case Transport::cells: {
      const index_t cell = capacity_rows(spec.capacity_send, tokens * top_k, experts);
      count.sender = wanted - sum(accept_cells(counts.n, cell));
      break;
    }
    case Transport::spill: {
      const index_t cell = capacity_rows(spec.capacity_send, tokens * top_k, experts);
      for (const Routing& r : routing) count.add(spill_one(r, experts, top_k, cell));
      break;
    }
    case Transport::pooled_wave:
      count = pooled(spec, routing, experts, top_k);
      break;
    case Transport::ragged: {
      const index_t chunk =
          capacity_rows(spec.capacity_receive, wanted, senders * spec.waves);
      count.receiver =
          wanted - sum(accept_ragged(counts, spec.waves, chunk, spec.policy).n);
      break;
    }
    case Transport::waterfill: {
      const index_t floor = capacity_rows(spec.capacity_receive, wanted, experts);
      count.receiver = wanted - sum(accept_waterfill(counts, floor, spec.policy).n);
      break;
    }
    default:
      break;
  }
  count.assignments = wanted;
  return count;
}

}  // namespace capstan
