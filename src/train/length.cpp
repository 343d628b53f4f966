#include "train/length.hpp"

namespace capstan {

index_t total_steps(const Deck& deck) {
  const index_t steps = deck.integer("job/steps"),
                tokens = deck.integer("schedule/tokens");
  if (steps > 0) return steps;
  if (tokens == 0) {
    throw Error(Exit::deck,
                "neither schedule/tokens nor job/steps says how long to train");
  }
  const index_t per_step = tokens_per_step(deck);
  return (tokens + per_step - 1) / per_step;
}

}  // namespace capstan
