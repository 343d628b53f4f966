/// \file The data part of decks: sources, names, stages, contradictions.
#include <gtest/gtest.h>

#include "data/from_deck.hpp"
#include "unit/data/files.hpp"

namespace capstan::test {
namespace {

constexpr const char* kShape = R"(
<model>
hidden = 8
layers = 1
heads = 2
head_dim = 4
vocab = 300
seq_len = 16
<moe>
experts = 2
top_k = 1
expert_width = 8
<batch>
sequences = 4
<schedule>
tokens = 6400
<optimizer>
lr = 0.001
)";

SamplerSpec spec_of(const std::string& data) {
  return sampler_spec(Deck::parse(kShape + data, "test.deck"));
}

TEST(FromDeck, PlainFiles) {
  const SamplerSpec spec = spec_of(
      "<data>\nfiles = in/a, b, other/a\nweights = 1, 2, 3\nwindow_tokens = 64\n"
      "valid_fraction = 0.25\n<job>\nseed = 7\n");
  ASSERT_EQ(spec.sources.size(), 3u);
  // The base name, where it tells the sources apart.
  EXPECT_EQ(spec.sources[0].name, "in/a");
  EXPECT_EQ(spec.sources[1].name, "b");
  EXPECT_EQ(spec.sources[2].name, "other/a");
  EXPECT_EQ(spec.sources[2].files, std::vector<std::string>{"other/a"});
  ASSERT_EQ(spec.mixture.size(), 1u);
  EXPECT_EQ(spec.mixture[0].weights, (std::vector<double>{1, 2, 3}));
  EXPECT_EQ(spec.lengths[0].seq_len, 16);
  EXPECT_EQ(spec.vocab, 300);
  EXPECT_EQ(spec.end_of_document, 256);
  EXPECT_EQ(spec.window_tokens, 64);
  EXPECT_EQ(spec.valid_fraction, 0.25);
  EXPECT_EQ(spec.seed, 7u);
}

TEST(FromDeck, MixturesReplaceTheFilesInTheirRanges) {
  const SamplerSpec spec = spec_of(
      "<data>\nfiles = a, b\n"
      "<mixture2>\nfiles = b, c\nweights = 1, 3\nfirst_tokens = 3200\n"
      "<mixture1>\nfiles = c\nfirst_tokens = 160\nlast_tokens = 320\n");
  ASSERT_EQ(spec.sources.size(), 3u);
  ASSERT_EQ(spec.mixture.size(), 4u);
  const std::vector<index_t> starts = {0, 160, 320, 3200};
  const std::vector<std::vector<double>> weights = {
      {kBySize, kBySize, 0}, {0, 0, kBySize}, {kBySize, kBySize, 0}, {0, 1, 3}};
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(spec.mixture[i].from_tokens, starts[i]);
    EXPECT_EQ(spec.mixture[i].weights, weights[i]);
  }
}

TEST(FromDeck, OnlyRangesArePermutedAndOnlyThePastCounts) {
  const char* base = "<data>\nfiles = a, b\n";
  const std::string mixed =
      std::string(base) + "<mixture1>\nfiles = c\nfirst_tokens = 160\n";
  const SamplerSpec plain = spec_of(base), spec = spec_of(mixed);
  EXPECT_FALSE(plain.mixture[0].permuted);
  EXPECT_FALSE(spec.mixture[0].permuted);
  EXPECT_TRUE(spec.mixture[1].permuted);
  EXPECT_FALSE(order_differs(plain, spec, 160));
  EXPECT_TRUE(order_differs(plain, spec, 161));
  EXPECT_TRUE(order_differs(plain, spec_of("<data>\nfiles = a, d\n"), 1));
  EXPECT_FALSE(order_differs(plain, spec_of("<data>\nfiles = a, d\n"), 0));
}

TEST(FromDeck, Contradictions) {
  const auto expect = [](const std::string& data, const char* words) {
    const std::string text = error_of([&] { spec_of(data); }, Exit::deck);
    EXPECT_NE(text.find(words), std::string::npos) << text;
  };
  expect("<data>\nfiles = a, b\nweights = 1\n", "weights has 1 numbers for 2 files");
  expect("<data>\nfiles = a, a\n", "twice a");
  expect("<data>\n", "no data/files");
  expect("<mixture1>\nfiles = a\nfirst_tokens = 16\n", "no mixture holds at token 0");
  expect(
      "<data>\nfiles = a\n<mixture1>\nfiles = a\n<mixture2>\nfiles = a\nfirst_tokens = "
      "9\n",
      "mixture2: overlaps");
  expect("<data>\nfiles = a\n<mixture1>\nfiles = a\nfirst_tokens = 9\nlast_tokens = 9\n",
         "last_tokens = 9 is not after");
}

}  // namespace
}  // namespace capstan::test
