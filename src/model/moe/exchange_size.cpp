#include "model/moe/exchange_size.hpp"

#include <algorithm>

namespace capstan {

namespace {

ExchangeSize pooled(const TransportSpec& spec, index_t wanted, index_t tokens,
                    index_t top_k, index_t local, index_t ranks, index_t width) {
  const index_t capacity = capacity_rows(spec.capacity_send, wanted, ranks * spec.waves);
  const index_t most = (tokens * std::min(top_k, local) + spec.waves - 1) / spec.waves;
  const index_t pool = std::max<index_t>(1, std::min(capacity, most));
  const index_t bank =
      capacity_rows(spec.capacity_receive, wanted * ranks, ranks * local * spec.waves);
  ExchangeSize size;
  size.waves = spec.waves;
  size.travels = true;
  size.arrived = ranks * (pool + header_rows(pool, width));
  size.sent = spec.waves * size.arrived;
  size.room = std::min(ranks * pool, local * bank);
  return size;
}

}  // namespace

ExchangeSize exchange_size(const TransportSpec& spec, index_t tokens, index_t top_k,
                           index_t experts, index_t n_ranks, index_t width) {
  const index_t wanted = tokens * top_k, local = experts / n_ranks;
  if (spec.kind == Transport::pooled_wave)
    return pooled(spec, wanted, tokens, top_k, local, n_ranks, width);
  ExchangeSize size;
  size.waves = spec.waves;
  size.travels = n_ranks > 1;
  size.sent = wanted;
  // Rows that the experts of one wave can be sent: by all ranks, each token once an
  // expert.
  const index_t part = std::max<index_t>(1, local / spec.waves);
  index_t most = n_ranks * tokens * std::min(top_k, part);
  if (spec.kind == Transport::cells || spec.kind == Transport::spill) {
    const index_t cell = capacity_rows(spec.capacity_send, wanted, experts);
    size.sent = std::min(wanted, experts * cell);
    most = std::min(most, n_ranks * part * cell);
  } else if (spec.kind == Transport::ragged) {
    most = std::min(most, capacity_rows(spec.capacity_receive, wanted, spec.waves));
  } else if (spec.kind == Transport::waterfill) {
    const index_t floor = capacity_rows(spec.capacity_receive, wanted * n_ranks, experts);
    most = std::min(most, local * floor);
  }
  size.arrived = size.room = most;
  return size;
}

}  // namespace capstan
