/// \file Numbers, lists, choices, nearest names.
#include <cmath>
#include <random>

#include "deck/nearest.hpp"
#include "deck/values.hpp"
#include "unit/deck/decks.hpp"

namespace capstan {
namespace {

TEST(Integer, Accepts) {
  const std::vector<std::pair<const char*, index_t>> cases = {
      {"0", 0},
      {"-0", 0},
      {"+7", 7},
      {"007", 7},
      {"4e12", 4000000000000},
      {"1_000_000", 1000000},
      {"1.5e3", 1500},
      {"18005144633344", 18005144633344},
      {"-12", -12},
      {"1200e-2", 12},
      {"9223372036854775807", INT64_MAX},
      {"0e99999", 0},
      {"1E3", 1000},
      {"0.5e1", 5},
      {"000000000000000000000001", 1}};
  for (const auto& [text, value] : cases) {
    std::string why;
    const auto n = parse_integer(text, why);
    ASSERT_TRUE(n.has_value()) << text << ": " << why;
    EXPECT_EQ(*n, value) << text;
  }
}

TEST(Integer, Refuses) {
  for (const char* text : {"",     " ",
                           "x",    "12x",
                           "1.5",  "1e-1",
                           "_1",   "1_",
                           "1__0", "1_e3",
                           "0x10", "1e",
                           "1e+",  "--1",
                           "1 2",  "9223372036854775808",
                           "1e19", "1e99999999999",
                           "inf",  "nan",
                           "."}) {
    std::string why;
    EXPECT_FALSE(parse_integer(text, why).has_value()) << text;
    EXPECT_FALSE(why.empty()) << text;
  }
}

TEST(Integer, NamesWhatIsLeftOver) {
  std::string why;
  parse_integer("128x", why);
  EXPECT_TRUE(test::contains(why, "'x' is left over")) << why;
}

TEST(Real, AcceptsAndRefuses) {
  std::string why;
  EXPECT_EQ(parse_real("3e-4", why).value(), 3e-4);
  EXPECT_EQ(parse_real("+.5", why).value(), 0.5);
  EXPECT_EQ(parse_real("1_0.25", why).value(), 10.25);
  EXPECT_EQ(parse_real("5.", why).value(), 5.0);
  for (const char* text :
       {"", "e5", "1.2.3", "1,5", "nan", "inf", "1e999", "0x1p3", "1e5f"})
    EXPECT_FALSE(parse_real(text, why).has_value()) << text;
}

TEST(Real, CanonicalReadsBackTheSame) {
  std::mt19937_64 bits(5);
  for (int i = 0; i < 2000; ++i) {
    const double x =
        std::ldexp(static_cast<double>(bits()) / 3.0, int(bits() % 400) - 200);
    std::string why;
    EXPECT_EQ(parse_real(canonical(x), why).value(), x);
  }
}

TEST(List, SplitsAndTrims) {
  EXPECT_EQ(split_list(" k ,attn,  moe "),
            (std::vector<std::string>{"k", "attn", "moe"}));
  EXPECT_EQ(split_list("a,,b").size(), 3u);
  EXPECT_TRUE(split_list("  ").empty());
}

TEST(Nearest, EditDistance) {
  EXPECT_EQ(edit_distance("window", "windw"), 1);
  EXPECT_EQ(edit_distance("modle", "model"), 1);  // a swap is one edit
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("same", "same"), 0);
}

TEST(Nearest, OnlyWhatIsNear) {
  const std::vector<std::string> names = {"hidden", "layers", "heads"};
  EXPECT_EQ(nearest("hiden", names), "hidden");
  EXPECT_EQ(nearest("layer", names), "layers");
  EXPECT_EQ(nearest("zzzzzz", names), "");
  EXPECT_EQ(nearest(std::string(5000, 'a'), names), "");
}

/// Every choice that the reference lists is accepted, every default of its own key too.
TEST(Tables, ChoicesAndDefaultsAreAccepted) {
  for (const auto& block : deck_blocks()) {
    for (const auto& key : block.keys) {
      std::string why;
      for (const auto& choice : key.choices)
        EXPECT_EQ(check_value(key, choice, why).value_or("?"), choice)
            << block.name << "/" << key.name << ": " << why;
      if (key.is_required || !key.inherits.empty()) continue;
      const bool empty_text = key.fallback.empty() && (key.is_list() || key.is_text());
      EXPECT_TRUE(empty_text || check_value(key, key.fallback, why) == key.fallback)
          << block.name << "/" << key.name << " = " << key.fallback << ": " << why;
      EXPECT_GT(key.doc_text.size(), 10u) << block.name << "/" << key.name;
    }
  }
}

TEST(Tables, InheritedKeysExist) {
  for (const auto& block : deck_blocks())
    for (const auto& key : block.keys)
      EXPECT_TRUE(key.inherits.empty() || find_key(key.inherits)) << key.inherits;
}

TEST(Tables, NumberedHeadings) {
  EXPECT_TRUE(find_block("group12"));
  for (const char* heading :
       {"group", "group0", "group01", "group1x", "group12345", "model1"})
    EXPECT_FALSE(find_block(heading)) << heading;
}

}  // namespace
}  // namespace capstan
