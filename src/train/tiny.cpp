#include "train/tiny.hpp"

#include <stdlib.h>

#include <cmath>
#include <filesystem>
#include <numeric>

#include "base/rng.hpp"
#include "data/token_file.hpp"

namespace capstan {

namespace fs = std::filesystem;

namespace {

using Overrides = std::map<std::string, index_t>;

/// Whole numbers of heads in the ratios' spirit: fewer key heads than query heads, and
/// fewer on global layers, where the deck has it so.
void shrink_heads(const Deck& deck, Overrides& to) {
  const index_t heads = deck.integer("model/heads");
  const index_t given = deck.integer("model/kv_heads");
  const index_t given_global = deck.integer("model/kv_heads_global");
  const index_t stored = given > 0 ? given : heads;
  const index_t global = given_global > 0 ? given_global : stored;
  const index_t few = global < stored ? 2 : 1;
  to["model/heads"] = stored < heads ? 2 * few : few;
  to["model/kv_heads"] = few;
  to["model/kv_heads_global"] = 1;
}

/// The least of 16, 32, ... whose rotating part is a whole number of pairs.
index_t tiny_head_dim(const Deck& deck) {
  const double fraction = deck.real("model/rope_fraction");
  const index_t most = deck.integer("model/head_dim");
  for (index_t h = 16; h < most; h *= 2) {
    const double pairs = fraction * double(h) / 2;
    if (std::abs(pairs - std::round(pairs)) < 1e-9) return h;
  }
  return most;
}

void shrink_experts(const Deck& deck, index_t data, index_t expert, Overrides& to) {
  const index_t waves = deck.integer("moe/waves");
  const index_t local = deck.integer("moe/experts") / expert;
  // A grid of other ranks may leave a rank fewer experts than waves, or no whole
  // multiple.
  const bool fits = local % waves == 0;
  to["moe/waves"] = fits ? waves : 1;
  to["moe/experts"] = expert * std::min(local, 2 * to["moe/waves"]);
  to["moe/top_k"] = std::min({deck.integer("moe/top_k"), to["moe/experts"], index_t(2)});
  to["grid/data"] = data;
  to["grid/expert"] = expert;
}

}  // namespace

Deck tiny_deck(const Deck& deck, int ranks, const std::string& tokens) {
  Overrides to;
  index_t data = deck.integer("grid/data"), expert = deck.integer("grid/expert");
  if (deck.integer("grid/pipe") * data * expert != ranks) {
    expert = std::gcd<index_t>(ranks, deck.integer("moe/experts"));
    data = ranks / expert;
    to["grid/pipe"] = to["grid/stages_per_rank"] = 1;
    to["topology/nvlink_ranks"] = 0;
  }
  const auto at_most = [&](const char* key, index_t most) {
    to[key] = std::min(deck.integer(key), most);
  };
  shrink_heads(deck, to);
  shrink_experts(deck, data, expert, to);
  at_most("model/hidden", 64);
  to["model/head_dim"] = tiny_head_dim(deck);
  at_most("model/layers", std::max<index_t>(2, deck.integer("grid/pipe") *
                                                   deck.integer("grid/stages_per_rank")));
  to["model/vocab"] = RandomTokens::kVocab;
  at_most("model/seq_len", 64);
  at_most("model/window", 32);
  at_most("model/gate_rank", 8);
  for (const char* key : {"moe/expert_width", "moe/shared_width", "moe/latent_width"})
    at_most(key, 32);
  at_most("moe/shared_experts", 2);
  to["batch/sequences"] = data * expert * deck.integer("grid/micro_batches");
  to["job/steps"] = 1;
  to["job/dump_step"] = 0;
  std::vector<std::string> overrides = {
      "data/files=" + tokens,  "data/weights=",       "data/tokenizer=byte",
      "data/valid_fraction=0", "eval/every_tokens=0", "eval/at_end=false",
      "grid/layers_per_stage="};
  for (const auto& [key, value] : to)
    overrides.push_back(key + "=" + std::to_string(value));
  return Deck::parse(deck.dump(), "deck at tiny size", overrides);
}

RandomTokens::RandomTokens() {
  std::string name = (fs::temp_directory_path() / "capstan.XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr)
    throw Error(Exit::file, "cannot make a temporary folder like " + name);
  folder_ = name;
  TokenFileWriter writer(prefix(), IdType::uint16);
  const Rng rng(1, stream_of("tiny"));
  for (std::uint64_t document = 0; document < 64; ++document) {
    std::vector<std::int32_t> ids;
    for (std::uint64_t i = 0; i < 97; ++i) {
      ids.push_back(std::int32_t(rng.uniform(document * 97 + i) * double(kVocab)));
    }
    writer.append(ids);
  }
  writer.finish();
}

RandomTokens::~RandomTokens() {
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

}  // namespace capstan
