#include "data/loader.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/log.hpp"

namespace capstan {

Loader::Loader(const Sampler& sampler, const LoaderSpec& spec)
    : sampler_(sampler), spec_(spec) {
  require(spec.dense_rank >= 0 && spec.dense_rank < spec.n_dense,
          "loader: rank outside the grid");
  const index_t unit = spec.n_dense * spec.micro_batches;
  if (spec.sequences > 0 && spec.sequences % unit == 0) return;
  const auto lower = static_cast<long long>(spec.sequences / unit * unit);
  throw Error(
      Exit::deck,
      format("batch/sequences = %lld does not divide among %lld ranks x %lld "
             "micro-batches: take %lld or %lld",
             static_cast<long long>(spec.sequences), static_cast<long long>(spec.n_dense),
             static_cast<long long>(spec.micro_batches),
             lower > 0 ? lower : static_cast<long long>(unit),
             lower > 0 ? lower + unit : static_cast<long long>(2 * unit)));
}

index_t Loader::step_tokens(index_t tokens_seen) const {
  return spec_.sequences * sampler_.seq_len(sampler_.sequence_after(tokens_seen));
}

std::vector<Batch> Loader::load(index_t tokens_seen) const {
  const index_t per_micro = spec_.sequences / spec_.micro_batches;
  const index_t local = per_micro / spec_.n_dense;
  const index_t first = sampler_.sequence_after(tokens_seen) + spec_.dense_rank * local;
  std::vector<Batch> batches;
  for (index_t m = 0; m < spec_.micro_batches; ++m) {
    batches.push_back(sampler_.train(first + m * per_micro, local));
  }
  return batches;
}

std::vector<Batch> Loader::step(index_t tokens_seen) {
  std::vector<Batch> batches;
  if (ahead_.valid() && ahead_of_ == tokens_seen) {
    batches = ahead_.get();
  } else {
    batches = load(tokens_seen);
  }
  ahead_of_ = tokens_seen + step_tokens(tokens_seen);
  // Assigning waits for a step that was read ahead in vain: at most one is in flight.
  ahead_ =
      std::async(std::launch::async, [this, next = ahead_of_] { return load(next); });
  return batches;
}

Batch Loader::whole_step(index_t tokens_seen) const {
  return sampler_.train(sampler_.sequence_after(tokens_seen), spec_.sequences);
}

}  // namespace capstan
