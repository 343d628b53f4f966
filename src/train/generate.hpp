#pragma once
/// \file Text sampled from the model, for `capstan -r CKPT --generate "prompt"`.
#include <string>

#include "train/pipeline.hpp"

namespace capstan {

struct GenerateSpec {
  index_t tokens = 400;      ///< to sample
  double temperature = 0.8;  ///< 0 = the likeliest token each time
  std::uint64_t seed = 1;
};

/// The prompt followed by sampled text (byte tokenizer); stops at an end of document.
/// Every rank computes the same text: collective over the world.
template <class S>
std::string generate(Pipeline<S>& pipeline, index_t seq_len, const std::string& prompt,
                     const GenerateSpec& spec);

}  // namespace capstan
