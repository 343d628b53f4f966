// The one knob: published rows of marin-community/marin#8435, overrides, the echo.
#include "deck/scale.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "deck/support.hpp"
#include "unit/deck/decks.hpp"

namespace capstan {
namespace {

using namespace test;

/// A deck that turns the knob and gives only what the rule does not know.
std::string knob(index_t hidden, const std::string& more = "") {
  return "<scale>\nhidden = " + std::to_string(hidden) +
         "\n<model>\nvocab = 128256\nseq_len = 4096\n" + more;
}

struct Row {
  index_t hidden, layers, heads, kv, kv_global, steps, warmup;
  double adam, muonh, beta2, eps;
};
const Row kRows[] = {
    {768, 8, 6, 1, 1, 11420, 114, 0.003651, 0.015819, 0.96849, 1.034e-15},
    {1024, 12, 8, 2, 1, 15276, 152, 0.003326, 0.014411, 0.95, 1.196e-15},
    {1536, 16, 12, 3, 1, 15128, 151, 0.003436, 0.014889, 0.95, 1.190e-15},
    {2048, 22, 16, 4, 2, 20072, 200, 0.003097, 0.013422, 0.95, 1.371e-15},
    {6144, 48, 48, 12, 6, 390251, 3902, 0.000759, 0.003290, 0.95, 6.045e-15}};

TEST(Scale, PublishedRowsToTheirPrintedDigits) {
  for (const Row& r : kRows) {
    const Deck d = Deck::parse(knob(r.hidden), "x");
    EXPECT_EQ(d.integer("model/hidden"), r.hidden);
    EXPECT_EQ(d.integer("model/layers"), r.layers) << r.hidden;
    EXPECT_EQ(d.integer("model/heads"), r.heads) << r.hidden;
    EXPECT_EQ(d.integer("model/kv_heads"), r.kv) << r.hidden;
    EXPECT_EQ(d.integer("model/kv_heads_global"), r.kv_global) << r.hidden;
    EXPECT_EQ(d.integer("moe/latent_width"), r.hidden / 2) << r.hidden;
    const index_t per_step = d.integer("batch/sequences") * 4096;
    EXPECT_EQ(d.integer("schedule/tokens"), r.steps * per_step) << r.hidden;
    EXPECT_EQ(std::floor(d.real("schedule/warmup_fraction") * double(r.steps)), r.warmup);
    EXPECT_NEAR(d.real("optimizer/lr"), r.adam, 5e-7) << r.hidden;
    EXPECT_NEAR(d.real("group1/lr"), r.muonh, 5e-7) << r.hidden;
    EXPECT_EQ(d.real("group2/lr"), d.real("group1/lr")) << r.hidden;
    EXPECT_NEAR(d.reals("optimizer/betas").at(1), r.beta2, 5e-6) << r.hidden;
    EXPECT_NEAR(d.real("optimizer/eps"), r.eps, 5e-19) << r.hidden;
    EXPECT_NEAR(d.real("model/init_std"), 0.5 / std::sqrt(double(r.hidden)), 1e-15);
  }
}

TEST(Scale, GivesWhatThePublishedDeckSays) {
  const Deck hero = Deck::load({input("535b.deck")}, {});
  const Deck knobbed = Deck::parse(knob(6144), "x");
  for (const char* path :
       {"model/hidden", "model/layers", "model/heads", "model/kv_heads",
        "model/kv_heads_global", "model/head_dim", "model/window", "model/global_every",
        "moe/experts", "moe/top_k", "moe/shared_experts", "moe/expert_width",
        "moe/shared_width", "moe/latent_width", "batch/sequences", "schedule/tokens",
        "eval/sequences"})
    EXPECT_EQ(knobbed.integer(path), hero.integer(path)) << path;
  for (const char* path : {"optimizer/lr", "optimizer/eps", "group1/lr", "group2/lr",
                           "schedule/warmup_fraction", "schedule/final_fraction"})
    EXPECT_NEAR(knobbed.real(path) / hero.real(path), 1, 1e-4) << path;
  for (const char* path : {"optimizer/kind", "group1/kind", "group2/kind"})
    EXPECT_EQ(knobbed.text(path), hero.text(path)) << path;
  for (const char* path : {"group1/match", "group2/match"})
    EXPECT_EQ(knobbed.texts(path), hero.texts(path)) << path;
  EXPECT_EQ(knobbed.reals("group1/betas").at(0), 0.95);
}

TEST(Scale, EveryDerivedKeyIsEchoedWithItsRule) {
  const Deck d = Deck::parse(knob(768, "layers = 10\n"), "x");
  const std::string dump = d.dump();
  EXPECT_TRUE(contains(dump, "heads              = 6  # scale: hidden / head_dim"));
  EXPECT_TRUE(contains(dump, "layers             = 10  # scale: given, the rule says 8"));
  EXPECT_TRUE(contains(dump, "# scale: 13/3 of the Adam rate"));
  EXPECT_TRUE(contains(dump, "# scale: 0.087571 tokens^-0.3461"));
  EXPECT_FALSE(contains(Deck::parse(kLeast, "x").dump(), "# scale"));
  const Deck again = Deck::parse(dump, "dump");
  EXPECT_EQ(again.dump(), dump);
  EXPECT_EQ(again.hash(), d.hash());
}

TEST(Scale, GivenKeysStandAndTheRestFollowsThem) {
  const Deck d =
      Deck::parse(knob(768, "<group1>\nlr = 0.01\n<batch>\nsequences = 512\n"), "x");
  EXPECT_EQ(d.real("group1/lr"), 0.01);
  EXPECT_EQ(d.text("group1/kind"), "muonh");
  EXPECT_EQ(d.integer("schedule/tokens"), 22840 * index_t(512) * 4096);
  const double tokens = double(d.integer("schedule/tokens"));
  EXPECT_NEAR(d.real("optimizer/lr"), published_adam_rate(tokens, 768, 512 * 4096.0),
              1e-9);
  const Deck narrow = Deck::parse(knob(768, "head_dim = 64\n"), "x");
  EXPECT_EQ(narrow.integer("model/heads"), 12);
  EXPECT_EQ(narrow.integer("model/kv_heads"), 3);
  const Deck twice = Deck::parse(knob(768, "<batch>\nsequences = 512\n"), "x",
                                 {"scale/lr_multiplier=2", "schedule/tokens=47e9"});
  EXPECT_NEAR(twice.real("group2/lr"),
              2 * 13.0 / 3 * published_adam_rate(47e9, 768, 512 * 4096.0), 1e-8);
  // A run whose length is changed on the way keeps the rates of the length before.
  const Deck aimed =
      Deck::parse(knob(768), "x",
                  {"schedule/tokens=30e9", "schedule/reaim_from_tokens=20e9",
                   "schedule/planned_tokens=47898951680"});
  EXPECT_EQ(aimed.real("optimizer/lr"), Deck::parse(knob(768), "x").real("optimizer/lr"));
}

TEST(Scale, OwnGroupsGetTheRateOfTheirKind) {
  const Deck d = Deck::parse(knob(1024,
                                  "<group1>\nmatch = */w_*\nkind = muonh\n"
                                  "<group3>\nmatch = */router\nkind = adamw\n"),
                             "x");
  EXPECT_EQ(d.numbered("group"), (std::vector<int>{1, 3}));
  EXPECT_EQ(d.text("optimizer/kind"), "adamw");
  EXPECT_NEAR(d.real("group1/lr") / d.real("group3/lr"), 13.0 / 3, 1e-6);
  EXPECT_EQ(d.real("group3/lr"), d.real("optimizer/lr"));
}

TEST(Scale, OtherWidthsNeedLayersAndBatch) {
  const std::string text = report(knob(128, "head_dim = 16\n"));
  EXPECT_TRUE(contains(text, "model/layers is required: width 128"));
  EXPECT_TRUE(contains(text, "batch/sequences is required: width 128"));
  EXPECT_EQ(problems(text), 2);
  EXPECT_TRUE(contains(report(knob(64, "layers = 4\n<batch>\nsequences = 8\n")),
                       "model/head_dim = 128 does not divide scale/hidden = 64"));
}

TEST(Scale, WarnsOutsideItsRangeAndWhereTheCapBinds) {
  EXPECT_TRUE(scale_notes(Deck::parse(kLeast, "x")).empty());
  const Deck d = Deck::parse(
      "<scale>\nhidden = 64\ntokens_per_active = 40\nlr_multiplier = 2\n<model>\n"
      "layers = 4\nhead_dim = 16\nvocab = 320\nseq_len = 256\n"
      "<moe>\nexperts = 8\ntop_k = 2\n<batch>\nsequences = 16\n",
      "x");
  std::string notes;
  for (const auto& note : scale_notes(d)) notes += note + "\n";
  EXPECT_TRUE(contains(notes, "fitted for widths of 512 to 2048")) << notes;
  EXPECT_FALSE(contains(notes, "fitted for 30 to 600")) << notes;
  EXPECT_TRUE(contains(notes, "scale/lr_cap = 0.05 binds")) << notes;
  EXPECT_EQ(d.real("group1/lr"), 0.05);
  EXPECT_GT(d.real("optimizer/lr"), 0.05 * 3 / 13);
  EXPECT_TRUE(contains(d.dump(), "scale/lr_cap binds"));
  const auto published = scale_notes(Deck::parse(knob(1024), "x"));
  ASSERT_EQ(published.size(), 1u);
  EXPECT_TRUE(contains(published[0], "fitted for 30 to 600"));
}

TEST(Scale, KvHeadsAreTheLargestDivisor) {
  EXPECT_EQ(published_kv_heads(48, 4), 12);
  EXPECT_EQ(published_kv_heads(12, 8), 1);
  EXPECT_EQ(published_kv_heads(44, 8), 4);
  EXPECT_EQ(published_kv_heads(7, 2), 1);
  EXPECT_EQ(published_kv_heads(2, 8), 1);
}

}  // namespace
}  // namespace capstan
