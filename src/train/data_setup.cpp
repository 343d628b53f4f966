#include "train/data_setup.hpp"

#include <filesystem>

#include "data/byte_tokenizer.hpp"

namespace capstan {

namespace {

SamplerSpec spec_from_deck(const Deck& deck, const std::vector<double>& weights) {
  SamplerSpec spec;
  const std::vector<std::string> files = deck.texts("data/files");
  if (files.empty()) throw Error(Exit::deck, "data/files is empty: nothing to train on");
  for (std::size_t i = 0; i < files.size(); ++i) {
    SourceSpec source;
    // The name keys the held-out split: the place of the file must not matter.
    source.name = std::filesystem::path(files[i]).filename().string();
    source.files.push_back(files[i]);
    source.weight = weights.empty() ? 1.0 : weights.at(i);
    spec.sources.push_back(source);
  }
  spec.lengths = {{0, deck.integer("model/seq_len")}};
  spec.vocab = deck.integer("model/vocab");
  spec.end_of_document =
      deck.text("data/tokenizer") == "byte" ? byte_tokenizer::kEndOfDocument : -1;
  spec.window_tokens = deck.integer("data/window_tokens");
  spec.valid_fraction = deck.real("data/valid_fraction");
  spec.seed = static_cast<std::uint64_t>(deck.integer("job/seed"));
  return spec;
}

}  // namespace

Sampler make_sampler(const Deck& deck) {
  const std::vector<double> weights = deck.reals("data/weights");
  Sampler sampler(spec_from_deck(deck, weights));
  if (!weights.empty() || sampler.sources().size() == 1) return sampler;
  std::vector<double> by_size;
  for (const Source& source : sampler.sources()) {
    by_size.push_back(static_cast<double>(source.tokens(Part::train)));
  }
  return Sampler(spec_from_deck(deck, by_size));
}

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
