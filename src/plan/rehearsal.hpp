#pragma once
/// \file Rehearsal of a big grid: the router, the capacities and the accept rules of all
/// ranks of an expert group, simulated in one process. The accept rules are those that
/// the transports call (model/moe/accept.hpp).
///
/// Router logit of a token = sqrt(rho) g(sequence, expert) + bias(expert) + sqrt(1 - rho)
/// noise, with g and noise standard normal; rho is the share of logit variance that the
/// tokens of a sequence have in common, one value per layer; the bias follows quantile
/// balancing with one step of lag. Drops depend on rho and on the sequences per rank,
/// hardly on the tokens per sequence, so a rehearsal may use a part of the tokens.
#include <string>
#include <vector>

#include "deck/deck.hpp"
#include "model/moe/accept.hpp"

namespace capstan {

struct RehearsalSpec {
  index_t ranks = 1, experts = 1, top_k = 1;
  index_t sequences = 1;            ///< of one rank in one micro-batch
  index_t tokens = 1;               ///< simulated in a sequence
  index_t width = 1;                ///< of a row, for the header rows of pooled_wave
  std::vector<double> correlation;  ///< rho of each simulated layer
  int steps = 2;                    ///< measured; two more come first, for the bias
  std::uint64_t seed = 1;
};

/// What one rank's router chose: the best top_k + kSpillChoices experts of each token,
/// best first.
struct Routing {
  index_t tokens = 0, choices = 0;
  std::vector<std::int16_t> experts;  ///< [tokens, choices]
  std::int32_t at(index_t t, index_t k) const { return experts[t * choices + k]; }
};

struct DropCount {
  std::int64_t assignments = 0, sender = 0, receiver = 0, spilled = 0;
  double fraction() const {
    return assignments > 0 ? double(sender + receiver) / double(assignments) : 0;
  }
  void add(const DropCount& other);
};

/// Drops of one exchange in which sender s routed routing[s].
DropCount rehearse_exchange(const TransportSpec& transport,
                            const std::vector<Routing>& routing, index_t experts,
                            index_t top_k);

struct RehearsalResult {
  std::vector<DropCount> total;                  ///< of each transport
  std::vector<std::vector<DropCount>> by_layer;  ///< [transport][layer]
  double load_max_over_mean = 0;                 ///< mean over layers and steps
};

/// All transports see the same routing. Uses both cores of a desk; the result does not
/// depend on the number of threads.
RehearsalResult rehearse(const RehearsalSpec& spec,
                         const std::vector<TransportSpec>& transports);

/// All transports on routing that is there already: [layer][rank].
RehearsalResult rehearse_routing(const std::vector<std::vector<Routing>>& layers,
                                 index_t experts, index_t top_k,
                                 const std::vector<TransportSpec>& transports);

/// Routing of every layer of a dump (postprocess/README), its tokens split over `ranks`
/// in data order: the best top_k + kSpillChoices of logits + router_bias.
/// Error(Exit::file), and Error(Exit::deck) when the tokens do not divide.
std::vector<std::vector<Routing>> routing_of_dump(const std::string& path, index_t ranks,
                                                  index_t experts, index_t top_k);

/// The default correlations: n quantiles of logit(rho) ~ N(logit 0.24, 0.9), which
/// reproduce the published drop rates of the reference run.
std::vector<double> published_correlations(int layers);

/// The rehearsal that a deck describes (block rehearsal).
RehearsalSpec rehearsal_spec(const Deck& deck);

/// `capstan --rehearse`: a table of all transports at the deck's grid and several
/// capacity factors.
std::string rehearsal_text(const Deck& deck);

/// "" for a deck whose transport drops nothing, else one line: the drop rate that a quick
/// rehearsal (about a second) predicts for a trained model.
std::string drop_prediction(const Deck& deck);

}  // namespace capstan
