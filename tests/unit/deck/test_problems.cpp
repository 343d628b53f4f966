/// \file Decks that must be refused: every problem, with its place, in one report.
#include <chrono>

#include "deck/support.hpp"
#include "unit/deck/decks.hpp"

namespace capstan {
namespace {

using test::contains;
using test::kLeast;
using test::problems;
using test::report;

TEST(Problems, AllInOneReport) {
  std::string text;
  try {
    Deck::load({test::input("tests/wrong.deck"), "/no/such.deck", "/"},
               {"batch/seq=3", "mode/x=3", "nonsense", "job/name=a # b"});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::deck);
    text = e.what();
  }
  for (const char* part : {"29 problems",
                           ":2: key stray stands before",
                           ":4: unknown block <modle>; did you mean <model>?",
                           ":8: model/hidden: '128x' is not an integer",
                           ":10: model/layers is given twice",
                           "wrong.deck:9)",
                           ":14: unknown key windw in <model>; did you mean window?",
                           "did you mean float?",
                           "'3.5' is not a whole number",
                           ":17: model/seq_len: 1 is out of range",
                           "element 2: 'att'",
                           ":19: model/xsa: 'yes' is neither",
                           ":21: '<data' is not a heading",
                           "it takes a number: <group1>",
                           "has 1 elements, must have 2",
                           "does not fit into 64 bits",
                           "'twelve' is not an integer",
                           "unknown key head_gate in <moe>; <model> has it",
                           ":36: block <moe> is opened twice",
                           ":37: 'nonsense' is neither",
                           "moe/expert_width is required",
                           "group2/match is required",
                           "model/heads = 8 is not a multiple of model/kv_heads = 3",
                           "model/head_dim = 33",
                           "nearest: 6 or 8",
                           "/no/such.deck: cannot be read",
                           "unknown key seq in <batch>",
                           "override mode/x=3: unknown block <mode>",
                           "override nonsense: is not of the form"})
    EXPECT_TRUE(contains(text, part)) << part << "\n in \n" << text;
}

TEST(Problems, MissingKeys) {
  const std::string text = report("<job>\nseed = 1\n");
  for (const char* path :
       {"model/hidden", "model/vocab", "moe/experts", "batch/sequences"})
    EXPECT_TRUE(contains(text, "x.deck: " + std::string(path) + " is required")) << path;
  EXPECT_EQ(problems(text), 10);
}

TEST(Problems, ABadValueIsOneProblem) {
  // No rule reads a key that is bad, and no default stands in for it.
  EXPECT_EQ(problems(report(kLeast, {"model/heads=x"})), 1);
  EXPECT_EQ(problems(report(kLeast, {"optimizer/lr=x", "group1/match=*"})), 1);
  EXPECT_EQ(problems(report("<model\nhidden = 1\nlayers = 1\n" + kLeast)), 1);
}

TEST(Problems, AWrongValueInAnEarlierDeckIsStillReported) {
  EXPECT_TRUE(contains(report(kLeast + "<job>\nseed = x\n", {"job/seed=3"}), "'x'"));
}

TEST(Problems, ValuesWhoseEchoWouldBeAComment) {
  EXPECT_TRUE(contains(report(kLeast + "<job>\nname =#x\n"), "'#x' starts with #"));
  EXPECT_TRUE(
      contains(report(kLeast, {"data/files=a,#b"}), "element 2: '#b' starts with"));
}

TEST(Problems, BinaryFiles) {
  EXPECT_TRUE(
      contains(report(kLeast + std::string("a\0b = 1\n", 8)), "control character"));
}

TEST(Problems, ManyLinesOfGarbageAreQuick) {
  std::string garbage;
  for (int i = 0; i < 20000; ++i) garbage += "nonsense " + std::to_string(i) + "\n";
  const auto start = std::chrono::steady_clock::now();
  const std::string text = report(garbage);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_LT(took.count(), 1.0);
  EXPECT_LT(problems(text), 110);
  EXPECT_TRUE(contains(text, "more"));
}

TEST(Rules, EachIsHeld) {
  const std::vector<std::pair<std::vector<std::string>, const char*>> cases = {
      {{"model/kv_heads=3"}, "model/kv_heads = 3"},
      {{"model/kv_heads=2", "model/kv_heads_global=4"}, "exceeds the stored 2"},
      {{"model/kv_heads_global=3"}, "model/kv_heads_global = 3"},
      {{"model/rope_fraction=0.3"}, "even whole number of dims"},
      {{"model/sconv=none,k"}, "says none and a site"},
      {{"model/sconv=k,k"}, "a site twice"},
      {{"moe/top_k=9"}, "moe/top_k = 9 exceeds moe/experts = 8"},
      {{"moe/balance=aux"}, "needs moe/aux_loss > 0"},
      {{"moe/aux_loss=0.1"}, "only moe/balance = aux uses it"},
      {{"grid/expert=3", "batch/sequences=3"}, "moe/experts = 8 is not a multiple"},
      {{"batch/sequences=5", "grid/expert=2"}, "nearest: 4 or 6"},
      {{"batch/sequences=1", "grid/data=4"}, "nearest: 4"},
      {{"batch/sequences=6", "grid/data=2", "grid/micro_batches=2"}, "nearest: 4 or 8"},
      {{"grid/expert=4", "topology/nvlink_ranks=2"},
       "grid/allow_split = true permits it"},
      {{"grid/pipe=3"}, "exceeds model/layers = 2"},
      {{"grid/pipe=2", "grid/layers_per_stage=2"}, "gives 1 stages 2 layers"},
      {{"grid/pipe=2", "grid/layers_per_stage=2,1"}, "2 stages 3 layers"},
      {{"moe/waves=3"}, "moe/waves = 3 does not divide the 8 experts"},
      {{"moe/transport=reference", "grid/expert=2"}, "needs grid/expert = 1"},
      {{"moe/transport=cells", "moe/experts=64", "moe/capacity_send=0.001"},
       "rows, less than one"},
      {{"moe/transport=ragged", "moe/capacity_receive=0.00001"}, "chunks of"},
      {{"moe/transport=waterfill", "moe/capacity_receive=0.00001"}, "experts of"},
      {{"moe/transport=pooled_wave", "moe/capacity_receive=0.00001"}, "banks of a wave"},
      {{"moe/transport=pooled_wave", "moe/experts=514", "grid/expert=2"},
       "moe/experts / grid/expert = 257"},
      {{"data/window_tokens=31"}, "is less than model/seq_len = 32"},
      {{"data/files=a,b", "data/weights=1"}, "1 numbers for 2 files"},
      {{"mixture3/files=a", "mixture3/weights=1,2"}, "mixture3/weights has 2 numbers"},
      {{"mixture1/files=a", "mixture1/first_tokens=5", "mixture1/last_tokens=5"},
       "mixture1/last_tokens = 5 is not after"},
  };
  for (const auto& [overrides, part] : cases) {
    const std::string text = report(kLeast, overrides);
    EXPECT_TRUE(contains(text, part)) << part << "\n in \n" << text;
    EXPECT_EQ(problems(text), 1) << text;
  }
}

TEST(Rules, SoundNeighboursPass) {
  for (const char* good : {"model/kv_heads=2", "model/rope_fraction=0.5", "moe/waves=4",
                           "model/rope_fraction=0", "moe/top_k=8", "model/sconv=none"})
    EXPECT_NO_THROW(Deck::parse(kLeast, "x", {good})) << good;
  EXPECT_NO_THROW(
      Deck::parse(kLeast, "x",
                  {"grid/expert=4", "topology/nvlink_ranks=2", "grid/allow_split=true"}));
}

TEST(Support, WhatCannotRunIsNamed) {
  EXPECT_TRUE(unsupported(Deck::parse(kLeast, "x")).empty());
  for (const char* setting :
       {"grid/stages_per_rank=2", "memory/dense=sharded", "memory/optimizer=host",
        "memory/carry=host", "checkpoint/ranks_per_file=2", "data/tokenizer=t.json"}) {
    const auto lines = unsupported(Deck::parse(kLeast, "x", {setting}));
    ASSERT_EQ(lines.size(), 1u) << setting;
    const std::string path(setting, 0, std::string(setting).find('='));
    const std::string block = path.substr(0, path.find('/'));
    EXPECT_TRUE(contains(lines[0], path)) << lines[0];
  }
  const Deck hero = Deck::load({test::input("535b.deck")}, {});
  EXPECT_GE(unsupported(hero).size(), 1u);
  EXPECT_THROW(refuse("cannot run", unsupported(hero)), Error);
  EXPECT_NO_THROW(refuse("cannot run", {}));
}

TEST(Support, Bf16IsServed) {
  EXPECT_TRUE(unsupported(Deck::parse(kLeast, "x", {"model/scalar=bf16"})).empty());
}

TEST(Support, WhatARunNeeds) {
  EXPECT_EQ(missing_for_run(Deck::parse(kLeast, "x")).size(), 2u);
  EXPECT_TRUE(
      missing_for_run(Deck::parse(kLeast, "x", {"job/steps=1", "data/files=a"})).empty());
}

}  // namespace
}  // namespace capstan
