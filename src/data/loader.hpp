#pragma once
/// \file The batches of one rank: which sequences of a step are its own, read ahead by
/// one step.
#include <future>

#include "data/sampler.hpp"

namespace capstan {

struct LoaderSpec {
  index_t sequences = 0;  ///< of a step, over all ranks
  index_t micro_batches = 1;
  index_t n_dense = 1,
          dense_rank = 0;  ///< ranks that take sequences, and the place among them
};

class Loader {
 public:
  /// Error(Exit::deck) when `sequences` does not divide, with the nearest numbers that
  /// do.
  Loader(const Sampler& sampler, const LoaderSpec& spec);
  Loader(const Loader&) = delete;

  /// The rank's part of each micro-batch of the step that follows `tokens_seen` tokens:
  /// sequence i of the step is in micro-batch i div (n / m), ranks taking contiguous
  /// pieces of a micro-batch in their order. Reads the step after it in the background.
  std::vector<Batch> step(index_t tokens_seen);
  /// Tokens of the whole step (padding included) that follows `tokens_seen` tokens.
  index_t step_tokens(index_t tokens_seen) const;
  /// The whole step in data order: for dumps.
  Batch whole_step(index_t tokens_seen) const;

 private:
  std::vector<Batch> load(index_t tokens_seen) const;
  const Sampler& sampler_;
  LoaderSpec spec_;
  std::future<std::vector<Batch>> ahead_;
  index_t ahead_of_ = -1;
};

}  // namespace capstan
