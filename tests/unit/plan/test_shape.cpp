/// \file The shape of a deck and the list of tensors.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include "deck/key.hpp"
#include "model/param_list.hpp"

namespace capstan {
namespace {

ModelShape shape_of(const std::string& name,
                    const std::vector<std::string>& overrides = {}) {
  return ModelShape::from_deck(
      Deck::load({std::string(CAPSTAN_SOURCE_DIR) + "/inputs/" + name}, overrides));
}

std::string shape_text(const ParamSpec& p) {
  std::string out;
  for (const index_t n : p.shape) {
    if (!out.empty()) out += 'x';
    out += std::to_string(n);
  }
  return out;
}

TEST(Shape, OfTheHero) {
  const ModelShape s = shape_of("535b.deck");
  int global = 0;
  for (index_t l = 0; l < s.layers; ++l) global += s.is_global(l) ? 1 : 0;
  EXPECT_EQ(global, 12);
  EXPECT_TRUE(s.is_global(3) && s.is_global(47) && !s.is_global(0));
  EXPECT_EQ(s.kv_heads_of(0), 12);
  EXPECT_EQ(s.kv_heads_of(3), 6);
  EXPECT_EQ(s.window_of(0), 2048);
  EXPECT_EQ(s.window_of(3), 0);
  EXPECT_EQ(s.rope_dims_of(0), 64);
  EXPECT_EQ(s.rope_dims_of(3), 0);
  EXPECT_NEAR(s.init_std, 0.006379, 5e-7);
  EXPECT_TRUE(s.router_bf16_out && !s.softmax && s.balance == Balance::qb);
  EXPECT_EQ(s.recompute, Recompute::full);
}

TEST(Shape, TheLastLayerIsGlobalAlways) {
  const ModelShape s = shape_of("ladder/d2048.deck");  // 22 layers, every 4th
  EXPECT_TRUE(s.is_global(21) && s.is_global(19) && !s.is_global(20));
  EXPECT_FALSE(shape_of("tests/tiny.deck", {"model/global_every=0"}).is_global(2));
}

TEST(Shape, ZerosStandForOtherKeys) {
  const ModelShape s =
      shape_of("tests/tiny.deck", {"model/kv_heads=0", "model/kv_heads_global=0",
                                   "moe/shared_width=0", "moe/latent_width=0"});
  EXPECT_EQ(s.kv_heads, s.heads);
  EXPECT_EQ(s.kv_heads_global, s.heads);
  EXPECT_EQ(s.shared_width, s.expert_width);
  EXPECT_EQ(s.latent(), s.hidden);
}

/// The whole meaning of a word of a deck, for comparison.
std::array<int, 5> meaning(const ModelShape& s) {
  return {int(s.transport.kind), int(s.transport.policy), int(s.balance),
          int(s.aux_scope), int(s.softmax) + 2 * int(s.router_bf16_out)};
}

TEST(Shape, EveryListedWordIsTakenAndMeansSomethingElse) {
  // Words that a parser and the code spell differently are refused, or fall back to
  // another one in silence.
  for (const Key& key : find_block("moe")->keys) {
    if (key.type != KeyType::text || key.choices.empty()) continue;
    std::set<std::array<int, 5>> seen;
    for (const std::string& word : key.choices) {
      std::vector<std::string> deck = {"moe/" + key.name + "=" + word};
      if (word == "aux") deck.push_back("moe/aux_loss=0.01");
      seen.insert(meaning(shape_of("tests/tiny.deck", deck)));
    }
    EXPECT_EQ(seen.size(), key.choices.size()) << key.name;
  }
}

TEST(Shape, LossTermsAndSignsAreOffByDefault) {
  const ModelShape s = shape_of("quickstart.deck");
  EXPECT_EQ(s.aux_loss, 0);
  EXPECT_EQ(s.router_z_loss, 0);
  EXPECT_EQ(s.balance, Balance::qb);
}

TEST(ParamList, CanonicalNamesAndShapes) {
  const std::vector<std::pair<const char*, const char*>> expected = {
      {"embed/table", "320x32"},
      {"embed/norm", "32"},
      {"embed/gate_down", "32x4"},
      {"embed/gate_up", "4x32"},
      {"layer_000/attn/norm", "32"},
      {"layer_000/attn/gate_down", "32x4"},
      {"layer_000/attn/gate_up", "4x32"},
      {"layer_000/attn/w_q", "32x32"},
      {"layer_000/attn/w_k", "32x16"},
      {"layer_000/attn/w_v", "32x16"},
      {"layer_000/attn/w_o", "32x32"},
      {"layer_000/attn/head_gate", "32x4"},
      {"layer_000/attn/sconv_k", "4x16"},
      {"layer_000/attn/sconv_out", "4x32"},
      {"layer_000/moe/norm", "32"},
      {"layer_000/moe/gate_down", "32x4"},
      {"layer_000/moe/gate_up", "4x32"},
      {"layer_000/moe/router", "32x8"},
      {"layer_000/moe/router_bias", "8"},
      {"layer_000/moe/latent_down", "32x16"},
      {"layer_000/moe/latent_norm", "16"},
      {"layer_000/moe/latent_up", "16x32"},
      {"layer_000/moe/w_gate", "8x16x16"},
      {"layer_000/moe/w_up", "8x16x16"},
      {"layer_000/moe/w_down", "8x16x16"},
      {"layer_000/moe/shared_gate", "2x32x16"},
      {"layer_000/moe/shared_up", "2x32x16"},
      {"layer_000/moe/shared_down", "2x16x32"},
      {"layer_000/moe/sconv_out", "4x32"}};
  const auto list = param_list(shape_of("tests/tiny.deck"));
  ASSERT_EQ(list.size(), 4u + 3 * 25 + 4);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(list[i].name, expected[i].first);
    EXPECT_EQ(shape_text(list[i]), expected[i].second) << list[i].name;
  }
  EXPECT_EQ(list.back().name, "head/table");
  EXPECT_EQ(shape_text(list.back()), "32x320");
  std::set<std::string> names;
  for (const auto& p : list) EXPECT_TRUE(names.insert(p.name).second) << p.name;
}

TEST(ParamList, FeaturesThatAreOffHaveNoTensors) {
  const auto list = param_list(
      shape_of("tests/tiny.deck",
               {"model/gate_rank=0", "model/head_gate=false", "model/sconv=none",
                "moe/shared_experts=0", "moe/latent_width=0"}));
  // table, norm; norm, 4 projections, norm, router, bias, 3 expert tensors; norm, table
  EXPECT_EQ(list.size(), 2u + 3 * 11 + 2);
  for (const auto& p : list) {
    if (p.name != "layer_001/moe/w_down") continue;
    EXPECT_EQ(shape_text(p), "8x16x32");
  }
}

/// Norms at the start, stacked over the layers of the 535B run, published with its step
/// 0.
TEST(ParamList, InitialNormsOfTheHero) {
  const double kTruncated = 0.9866;  // std of a normal cut at 3 sigma
  std::map<std::string, double> squares;
  for (const auto& p : param_list(shape_of("535b.deck"))) {
    const double std_of_element = p.kind == ParamSpec::matrix ? p.init_std * kTruncated
                                  : p.kind == ParamSpec::gain ? 1.0
                                                              : 0.0;
    const std::string name = p.layer < 0 ? p.name : p.name.substr(10);
    squares[name] += std_of_element * std_of_element * static_cast<double>(p.size());
  }
  const std::vector<std::pair<const char*, double>> published = {
      {"attn/w_q", 268},      {"attn/w_o", 268},        {"attn/w_k", 134},
      {"moe/w_gate", 2624},   {"moe/w_down", 2624},     {"moe/latent_down", 189},
      {"moe/latent_up", 189}, {"embed/table", 177},     {"head/table", 177},
      {"moe/router", 67},     {"moe/latent_norm", 384}, {"attn/norm", 543},
      {"attn/head_gate", 0}};
  for (const auto& [name, norm] : published)
    EXPECT_NEAR(std::sqrt(squares[name]), norm, std::max(0.6, 5e-4 * norm)) << name;
}

}  // namespace
}  // namespace capstan
