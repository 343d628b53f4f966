#include <algorithm>

#include "base/log.hpp"
#include "model/shape.hpp"
#include "plan/rehearsal.hpp"

namespace capstan {

namespace {

const char* name_of(Transport kind) {
  switch (kind) {
    case Transport::reference:
      return "reference";
    case Transport::cells:
      return "cells";
    case Transport::spill:
      return "spill";
    case Transport::pooled_wave:
      return "pooled_wave";
    case Transport::ragged:
      return "ragged";
    case Transport::waterfill:
      return "waterfill";
    case Transport::dropless:
      return "dropless";
  }
  return "";
}

/// Every transport at every factor, with waves that divide the local experts.
std::vector<TransportSpec> table_of_transports(const Deck& deck,
                                               const RehearsalSpec& spec) {
  const TransportSpec own = ModelShape::from_deck(deck).transport;
  const index_t local = spec.experts / spec.ranks;
  std::vector<TransportSpec> list;
  for (const Transport kind : {Transport::cells, Transport::spill, Transport::pooled_wave,
                               Transport::waterfill, Transport::ragged}) {
    for (const double factor : deck.reals("rehearsal/factors")) {
      TransportSpec t = own;
      t.kind = kind;
      t.capacity_send = t.capacity_receive = factor;
      t.waves = kind == Transport::pooled_wave ? (local % 3 == 0   ? 3
                                                  : local % 2 == 0 ? 2
                                                                   : 1)
                : kind == Transport::ragged    ? (local % 2 == 0 ? 2 : 1)
                                               : 1;
      list.push_back(t);
    }
  }
  return list;
}

std::string row_text(const char* name, double factor, const DropCount& d,
                     const std::vector<DropCount>& layers) {
  double worst = 0;
  for (const DropCount& layer : layers) worst = std::max(worst, layer.fraction());
  const double n = double(std::max<std::int64_t>(1, d.assignments));
  return format("%s %g %.6f %.6f %.6f %.6f %.6f\n", name, factor, d.fraction(),
                double(d.sender) / n, double(d.receiver) / n, double(d.spilled) / n,
                worst);
}

}  // namespace

RehearsalSpec rehearsal_spec(const Deck& deck) {
  const ModelShape shape = ModelShape::from_deck(deck);
  RehearsalSpec spec;
  spec.ranks = deck.integer("grid/expert");
  spec.experts = shape.experts;
  spec.top_k = shape.top_k;
  spec.sequences = std::max<index_t>(
      1, deck.integer("batch/sequences") / (spec.ranks * deck.integer("grid/data") *
                                            deck.integer("grid/micro_batches")));
  spec.steps = static_cast<int>(deck.integer("rehearsal/steps"));
  spec.correlation = deck.reals("rehearsal/correlation");
  if (spec.correlation.empty()) {
    spec.correlation = published_correlations(int(deck.integer("rehearsal/layers")));
  }
  spec.seed = static_cast<std::uint64_t>(deck.integer("job/seed"));
  const index_t wanted =
      std::max<index_t>(1, deck.integer("rehearsal/tokens") / spec.sequences);
  spec.tokens = std::min(shape.seq_len, wanted);
  return spec;
}

std::string rehearsal_text(const Deck& deck) {
  RehearsalSpec spec = rehearsal_spec(deck);
  const std::vector<TransportSpec> transports = table_of_transports(deck, spec);
  const std::string& dump = deck.text("rehearsal/dump");
  RehearsalResult result;
  std::size_t layers = spec.correlation.size();
  if (dump.empty()) {
    result = rehearse(spec, transports);
  } else {
    const auto routing = routing_of_dump(dump, spec.ranks, spec.experts, spec.top_k);
    result = rehearse_routing(routing, spec.experts, spec.top_k, transports);
    layers = routing.size();
    spec.steps = 1;
    spec.tokens = routing[0][0].tokens / spec.sequences;
  }
  std::string text = format(
      "#rehearsal expert=%lld experts=%lld top_k=%lld seq_len=%lld "
      "sequences_per_rank=%lld "
      "tokens_simulated=%lld layers=%zu steps=%d load_max_over_mean=%.3f\n"
      "#transport factor drop_fraction sender receiver spilled worst_layer\n",
      static_cast<long long>(spec.ranks), static_cast<long long>(spec.experts),
      static_cast<long long>(spec.top_k),
      static_cast<long long>(deck.integer("model/seq_len")),
      static_cast<long long>(spec.sequences), static_cast<long long>(spec.tokens), layers,
      spec.steps, result.load_max_over_mean);
  for (std::size_t i = 0; i < transports.size(); ++i) {
    const double factor = transports[i].capacity_receive;
    text += row_text(name_of(transports[i].kind), factor, result.total[i],
                     result.by_layer[i]);
  }
  return text;
}

std::string drop_prediction(const Deck& deck) {
  const TransportSpec own = ModelShape::from_deck(deck).transport;
  if (!own.drops()) return "";
  RehearsalSpec spec = rehearsal_spec(deck);
  if (deck.reals("rehearsal/correlation").empty())
    spec.correlation = published_correlations(5);
  spec.steps = 1;
  // About half a second on two cores, whatever the grid.
  const double per_token = double(spec.ranks * spec.experts * spec.sequences) *
                           double(spec.correlation.size()) * 3;
  spec.tokens = std::min(spec.tokens,
                         std::max<index_t>(1, static_cast<index_t>(1.5e8 / per_token)));
  const RehearsalResult result = rehearse(spec, {own});
  const DropCount& d = result.total[0];
  const double n = double(std::max<std::int64_t>(1, d.assignments));
  return format(
      "PLAN: drop_fraction=%.2g sender=%.2g receiver=%.2g transport=%s (rehearsal of a "
      "trained "
      "model, %lld tokens a rank; --rehearse for all transports)\n",
      d.fraction(), double(d.sender) / n, double(d.receiver) / n, name_of(own.kind),
      static_cast<long long>(spec.sequences * spec.tokens));
}

}  // namespace capstan
