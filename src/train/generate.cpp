#include "train/generate.hpp"

#include <algorithm>
#include <cmath>

#include "base/rng.hpp"
#include "data/byte_tokenizer.hpp"

namespace capstan {

namespace {

/// Draws a token from the logits of the tokenizer's ids (padding of the vocabulary is
/// left out).
std::int32_t draw(const std::vector<double>& logits, const GenerateSpec& spec,
                  std::uint64_t counter) {
  const std::size_t n = std::min<std::size_t>(logits.size(), byte_tokenizer::kVocab);
  const auto best = std::max_element(logits.begin(), logits.begin() + n);
  if (spec.temperature <= 0) return static_cast<std::int32_t>(best - logits.begin());
  std::vector<double> p(n);
  double sum = 0;
  for (std::size_t i = 0; i < n; ++i) {
    p[i] = std::exp((logits[i] - *best) / spec.temperature);
    sum += p[i];
  }
  double u = Rng(spec.seed, stream_of("generate")).uniform(counter) * sum;
  for (std::size_t i = 0; i < n; ++i) {
    u -= p[i];
    if (u <= 0) return static_cast<std::int32_t>(i);
  }
  return static_cast<std::int32_t>(best - logits.begin());
}

}  // namespace

template <class S>
std::string generate(Pipeline<S>& pipeline, index_t seq_len, const std::string& prompt,
                     const GenerateSpec& spec) {
  std::vector<std::int32_t> ids = byte_tokenizer::encode(prompt.empty() ? "\n" : prompt);
  const auto length = static_cast<std::size_t>(seq_len);
  for (index_t i = 0; i < spec.tokens; ++i) {
    const std::size_t n = std::min(ids.size(), length);
    Batch batch;
    batch.sequences = 1;
    batch.seq_len = seq_len;
    batch.tokens.assign(ids.end() - static_cast<std::ptrdiff_t>(n), ids.end());
    batch.tokens.resize(length, 0);
    batch.segments.assign(n, 0);
    batch.segments.resize(length, -1);
    batch.targets.assign(length, -1);
    const auto logits = pipeline.logits(batch, static_cast<index_t>(n) - 1);
    const std::int32_t next = draw(logits, spec, ids.size());
    if (next == byte_tokenizer::kEndOfDocument) break;
    ids.push_back(next);
  }
  return byte_tokenizer::decode(ids);
}

#define CAPSTAN_GENERATE(S)                                                   \
  template std::string generate<S>(Pipeline<S>&, index_t, const std::string&, \
                                   const GenerateSpec&);
CAPSTAN_INSTANTIATE(CAPSTAN_GENERATE)

}  // namespace capstan
