/// \file A sound deck: values, stacking, overrides, numbered blocks, dump, hash,
/// differences.
#include <cstdio>

#include "unit/deck/decks.hpp"

namespace capstan {
namespace {

using test::kLeast;

Deck least(const std::vector<std::string>& overrides = {}) {
  return Deck::parse(kLeast, "x.deck", overrides);
}

/// A file that goes away with the test.
struct TemporaryFile {
  TemporaryFile(const std::string& name, const std::string& text)
      : path(testing::TempDir() + name) {
    std::ofstream(path) << text;
  }
  ~TemporaryFile() { std::remove(path.c_str()); }
  std::string path;
};

TEST(Deck, ValuesAndDefaults) {
  const Deck d =
      least({"model/sconv=k,attn", "optimizer/betas=0.9,0.99", "model/xsa=true"});
  EXPECT_EQ(d.integer("model/hidden"), 64);
  EXPECT_TRUE(d.flag("model/xsa"));
  EXPECT_EQ(d.text("model/scalar"), "float");
  EXPECT_EQ(d.texts("model/sconv"), (std::vector<std::string>{"k", "attn"}));
  EXPECT_EQ(d.reals("optimizer/betas"), (std::vector<double>{0.9, 0.99}));
  EXPECT_DOUBLE_EQ(d.real("schedule/final_fraction"), 0.05);
  EXPECT_TRUE(d.given("model/hidden"));
  EXPECT_FALSE(d.given("model/window"));
  EXPECT_TRUE(d.texts("data/files").empty());
}

TEST(Deck, CommentsSpacesAndLineEnds) {
  std::string text = kLeast +
                     "<experiment>\r\n\t goal =  a b  # why\r\n#<x>\n\n"
                     "links = https://a/b#c, marin#8435\n";
  const Deck d = Deck::parse(text, "x.deck");
  EXPECT_EQ(d.text("experiment/goal"), "a b");
  EXPECT_EQ(d.texts("experiment/links"),
            (std::vector<std::string>{"https://a/b#c", "marin#8435"}));
}

TEST(Deck, AskingForWhatIsNotDeclaredIsABug) {
  const Deck d = least();
  for (const char* path : {"model/nothing", "nothing/x", "model", "group1/lr"}) {
    try {
      d.given(path);
      FAIL() << path;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Exit::internal);
    }
  }
  EXPECT_THROW(d.real("model/hidden"), Error);  // an integer key
}

TEST(Deck, LaterDecksAndOverridesWin) {
  const TemporaryFile first("first.deck", kLeast + "<job>\nseed = 3\nname = one\n");
  const TemporaryFile second("second.deck", "<job>\nseed = 4\n<model>\nwindow = 8\n");
  const Deck d = Deck::load({first.path, second.path}, {"job/seed=5", "job/seed=6"});
  EXPECT_EQ(d.integer("job/seed"), 6);
  EXPECT_EQ(d.integer("model/window"), 8);
  EXPECT_EQ(d.text("job/name"), "one");
  EXPECT_EQ(Deck::load({first.path, second.path}, {}).integer("job/seed"), 4);
}

TEST(Deck, GroupsTakeTheOptimizersValues) {
  const Deck d = Deck::parse(kLeast +
                                 "<group2>\nmatch = */router\n<group10>\nmatch = *\n"
                                 "lr = 0.5\n<optimizer>\nlr = 2e-3\nkind = adam\n",
                             "x.deck", {"optimizer/eps=1e-9"});
  EXPECT_EQ(d.numbered("group"), (std::vector<int>{2, 10}));
  EXPECT_TRUE(d.numbered("mixture").empty());
  EXPECT_EQ(d.real("group2/lr"), 2e-3);
  EXPECT_EQ(d.real("group2/eps"), 1e-9);
  EXPECT_EQ(d.text("group10/kind"), "adam");
  EXPECT_EQ(d.real("group10/lr"), 0.5);
}

TEST(Deck, AnOverrideCanOpenANumberedBlock) {
  EXPECT_EQ(least({"group1/match=*"}).numbered("group"), std::vector<int>{1});
}

TEST(Deck, DumpIsTheSameDeck) {
  for (const char* name : {"quickstart.deck", "535b.deck", "bench/desk.deck",
                           "ladder/d768.deck", "tests/tiny.deck"}) {
    const Deck d =
        Deck::load({test::input(name)}, {"optimizer/lr=0.1234567890123456789"});
    const Deck again = Deck::parse(d.dump(), "deck.used");
    EXPECT_EQ(again.dump(), d.dump()) << name;
    EXPECT_EQ(again.hash(), d.hash()) << name;
    EXPECT_TRUE(again.differences(d).empty()) << name;
    EXPECT_TRUE(again.given("model/norm_eps"));
  }
}

TEST(Deck, HashSeesValuesNotTheirSpelling) {
  const auto h = least().hash();
  EXPECT_EQ(least({"model/hidden=6_4", "job/seed=1e0", "model/norm_eps=0.00001"}).hash(),
            h);
  EXPECT_EQ(Deck::parse("# other text\n\n" + kLeast, "y.deck").hash(), h);
  EXPECT_NE(least({"job/seed=2"}).hash(), h);
  EXPECT_NE(least({"group1/match=*"}).hash(), h);
}

TEST(Deck, DifferencesCarryTheRestartClass) {
  const Deck before = least();
  const Deck after = least(
      {"model/hidden=128", "optimizer/lr=0.5", "job/log_every=7", "group1/match=*"});
  OnRestart hidden{}, lr{}, log{}, match{};
  const auto list = after.differences(before);
  for (const auto& d : list) {
    if (d.path == "model/hidden") {
      EXPECT_EQ(d.before, "64");
      EXPECT_EQ(d.after, "128");
      hidden = d.on_restart;
    }
    if (d.path == "optimizer/lr") lr = d.on_restart;
    if (d.path == "job/log_every") log = d.on_restart;
    if (d.path == "group1/match") {
      EXPECT_EQ(d.before, "(absent)");
      match = d.on_restart;
    }
  }
  EXPECT_EQ(list.size(), 3u + 6u);  // three keys, and the six of the new group
  EXPECT_EQ(hidden, OnRestart::fixed);
  EXPECT_EQ(lr, OnRestart::warn);
  EXPECT_EQ(log, OnRestart::free);
  EXPECT_EQ(match, OnRestart::warn);
  EXPECT_EQ(before.differences(after).size(), list.size());
}

}  // namespace
}  // namespace capstan
