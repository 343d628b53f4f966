#pragma once
/// \file The sampler and loader that a deck describes.
#include "data/loader.hpp"
#include "deck/deck.hpp"

namespace capstan {

/// Sources of data/files, weights of data/weights (by training tokens when there are
/// none). Error(Exit::deck) when data/files is empty, Error(Exit::file) listing the
/// problems of the files.
Sampler make_sampler(const Deck& deck);

/// Tokens of one optimizer step, padding included.
inline index_t tokens_per_step(const Deck& deck) {
  return deck.integer("batch/sequences") * deck.integer("model/seq_len");
}
/// Steps of the whole run: job/steps, or as many as schedule/tokens needs.
/// Error(Exit::deck) when the deck gives neither.
index_t total_steps(const Deck& deck);

}  // namespace capstan
