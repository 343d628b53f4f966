#pragma once
/// \file How much a deck trains on.
#include "deck/deck.hpp"

namespace capstan {

/// Tokens of one optimizer step, padding included.
inline index_t tokens_per_step(const Deck& deck) {
  return deck.integer("batch/sequences") * deck.integer("model/seq_len");
}
/// Steps of the whole run: job/steps, or as many as schedule/tokens needs.
/// Error(Exit::deck) when the deck gives neither.
index_t total_steps(const Deck& deck);

}  // namespace capstan
