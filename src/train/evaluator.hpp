#pragma once
/// \file Held-out evaluation: dropless, pending bias applied, train state untouched.
#include "data/sampler.hpp"
#include "train/pipeline.hpp"

namespace capstan {

struct EvalReport {
  double loss = 0;  ///< mean cross-entropy of counted tokens, nats
  std::int64_t tokens = 0;
};

template <class S>
class Evaluator {
 public:
  /// Error(Exit::deck) when the deck asks for evaluations during the run and none is held
  /// out.
  Evaluator(const Deck& deck, const Grid& grid, const Sampler& sampler, Context& ctx);

  /// False when no sequence is held out.
  bool available() const { return !chosen_.empty(); }
  /// Collective over the world. Needs available().
  EvalReport run(Pipeline<S>& pipeline);

 private:
  const Grid& grid_;
  const Sampler& sampler_;
  Context& ctx_;
  index_t seq_len_, per_batch_;
  std::vector<index_t> chosen_;
};

}  // namespace capstan
