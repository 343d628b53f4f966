#include "train/evaluator.hpp"

#include <algorithm>

namespace capstan {

template <class S>
Evaluator<S>::Evaluator(const Deck& deck, const Grid& grid, const Sampler& sampler,
                        Context& ctx)
    : grid_(grid), sampler_(sampler), ctx_(ctx), seq_len_(deck.integer("model/seq_len")) {
  // As many sequences at a time as a training micro-batch of this rank has.
  per_batch_ = std::max<index_t>(1, deck.integer("batch/sequences") / grid.n_dense() /
                                        deck.integer("grid/micro_batches"));
  chosen_ = sampler.valid_choice(deck.integer("eval/sequences"), seq_len_);
  if (chosen_.empty() && deck.integer("eval/every_tokens") > 0) {
    throw Error(Exit::deck,
                "eval/every_tokens is set and no sequence is held out: raise "
                "data/valid_fraction, or set eval/every_tokens = 0");
  }
}

template <class S>
EvalReport Evaluator<S>::run(Pipeline<S>& pipeline) {
  const Region region(ctx_.timers, "eval");
  require(available(), "eval: no sequence is held out");
  // Every rank runs the same number of batches, because experts are spread over ranks; a
  // rank without a sequence left runs padding.
  const index_t ranks = grid_.n_dense(), stride = ranks * per_batch_;
  std::vector<Batch> batches;
  for (index_t first = 0; first < static_cast<index_t>(chosen_.size()); first += stride) {
    std::vector<index_t> mine;
    for (index_t i = 0; i < per_batch_; ++i) {
      const index_t at = first + grid_.dense_rank() * per_batch_ + i;
      if (at < static_cast<index_t>(chosen_.size())) mine.push_back(chosen_[at]);
    }
    Batch batch = sampler_.valid(mine, seq_len_);
    if (mine.empty()) {
      batch.tokens.assign(seq_len_, 0);
      batch.targets.assign(seq_len_, -1);
      batch.segments.assign(seq_len_, -1);
    }
    batches.push_back(std::move(batch));
  }
  LossSums sums;
  pipeline.evaluate(batches, sums);
  double total[2] = {sums.cross_entropy, static_cast<double>(sums.tokens)};
  grid_.dense.all_reduce_host(total, 2, Reduce::sum);
  grid_.pipeline.all_reduce_host(total, 2, Reduce::sum);
  if (total[1] == 0)
    throw Error(Exit::deck, "eval: the held-out sequences predict no token");
  return {total[0] / total[1], static_cast<std::int64_t>(total[1])};
}

#define CAPSTAN_EVALUATOR(S) template class Evaluator<S>;
CAPSTAN_INSTANTIATE(CAPSTAN_EVALUATOR)

}  // namespace capstan
