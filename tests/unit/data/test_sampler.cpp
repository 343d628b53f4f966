/// \file The order of the data: coverage, epochs, resuming, mixtures, changes of length.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "base/hash.hpp"
#include "data/sampler.hpp"
#include "unit/data/files.hpp"

namespace capstan::test {
namespace {

constexpr std::int32_t kVocab = 1 << 20;

/// Document lengths between 1 and 60, one of 700.
std::vector<index_t> lengths_of(index_t documents, std::uint64_t seed) {
  std::vector<index_t> lengths;
  for (index_t d = 0; d < documents; ++d) {
    lengths.push_back(1 + static_cast<index_t>(mix64(seed + d) % 60));
  }
  lengths[documents / 2] = 700;
  return lengths;
}

class SamplerTest : public testing::Test {
 protected:
  /// A source whose ids are all different: from `first` on.
  void add(const std::string& name, index_t documents, std::int32_t first) {
    const std::string prefix = folder_.at(name);
    write_documents(prefix, lengths_of(documents, first + 1), kVocab, -1, first);
    spec_.sources.push_back({name, {prefix}});
  }
  void SetUp() override {
    spec_.vocab = kVocab;
    spec_.window_tokens = 256;
    spec_.lengths = {{0, 16}};
    spec_.valid_fraction = 0.1;
    spec_.seed = 11;
  }
  Folder folder_;
  SamplerSpec spec_;
};

index_t per_epoch(const Sampler& sampler, int s = 0, index_t seq_len = 16) {
  return sampler.sources()[s].tokens(Part::train) / seq_len;
}

TEST_F(SamplerTest, AnEpochCoversEverythingOnce) {
  add("a", 100, 0);
  for (const index_t seq_len : {1, 7, 16, 300}) {
    spec_.lengths = {{0, seq_len}};
    const Sampler sampler(spec_);
    const index_t n = per_epoch(sampler, 0, seq_len);
    for (index_t epoch = 0; epoch < 3; ++epoch) {
      std::set<std::int32_t> seen;
      for (index_t g = epoch * n; g < (epoch + 1) * n; ++g) {
        ASSERT_EQ(sampler.place(g).epoch, epoch);
        for (const std::int32_t id : sampler.train(g, 1).tokens) {
          ASSERT_TRUE(seen.insert(id).second) << "twice: " << id;
        }
      }
      // The tail of less than one sequence is all that is lost.
      EXPECT_EQ(static_cast<index_t>(seen.size()), n * seq_len);
    }
  }
}

TEST_F(SamplerTest, OrdersDifferBetweenEpochsAndSeedsAndRepeatBetweenRuns) {
  add("a", 200, 0);
  const Sampler sampler(spec_), again(spec_);
  spec_.seed = 12;
  const Sampler other(spec_);
  const index_t n = per_epoch(sampler);
  index_t same_epoch = 0, same_seed = 0, in_order = 0, sorted_windows = 0;
  for (index_t g = 0; g < n; ++g) {
    ASSERT_EQ(sampler.place(g).first, again.place(g).first);
    same_epoch += sampler.place(g).first == sampler.place(g + n).first;
    same_seed += sampler.place(g).first == other.place(g).first;
    in_order += g > 0 && sampler.place(g).first == sampler.place(g - 1).first + 16;
    sorted_windows += sampler.place(g).first / 256 == g / 16;
  }
  for (const index_t same : {same_epoch, same_seed, in_order, sorted_windows}) {
    EXPECT_LT(same, n / 5);
  }
}

TEST_F(SamplerTest, WindowsAreFinishedBeforeTheNextBegins) {
  add("a", 200, 0);
  const Sampler sampler(spec_);
  std::set<index_t> done;
  index_t current = -1;
  for (index_t g = 0; g < per_epoch(sampler); ++g) {
    const index_t window = sampler.place(g).first / 256;
    if (window == current) continue;
    ASSERT_TRUE(done.insert(window).second);
    current = window;
  }
}

// Nothing but the token count is restored, so a resume anywhere, epoch ends included, is
// the same function at another argument; what can break it is the count -> sequence map.
TEST_F(SamplerTest, ResumesAtAnyTokenCount) {
  add("a", 60, 0);
  add("b", 40, 100000);
  spec_.mixture = {{0, {0.7, 0.3}}};
  const Sampler whole(spec_);
  const index_t n = 3 * per_epoch(whole);
  for (index_t g = 0; g < n; ++g) {
    ASSERT_EQ(whole.sequence_after(g * 16), g);
    if (g % 37 != 0) continue;
    const Sampler resumed(spec_);
    const index_t from = resumed.sequence_after(g * 16);
    ASSERT_EQ(resumed.train(from, 5).tokens, whole.train(g, 5).tokens);
  }
}

TEST_F(SamplerTest, TargetsAndSegments) {
  const std::string prefix = folder_.at("t");
  write_documents(prefix, {3, 0, 1, 5, 12}, kVocab);
  spec_.sources = {{"t", {prefix}}};
  spec_.valid_fraction = 0;
  spec_.lengths = {{0, 7}};
  spec_.window_tokens = 7;
  const Sampler sampler(spec_);
  std::map<std::int32_t, Batch> by_first;
  for (index_t g = 0; g < 3; ++g) {
    const Batch batch = sampler.train(g, 1);
    by_first[batch.tokens[0]] = batch;
  }
  ASSERT_EQ(by_first.size(), 3u);
  using Ids = std::vector<std::int32_t>;
  EXPECT_EQ(by_first[0].tokens, (Ids{0, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(by_first[0].targets, (Ids{1, 2, -1, -1, 5, 6, -1}));
  EXPECT_EQ(by_first[0].segments, (Ids{0, 0, 0, 1, 2, 2, 2}));
  EXPECT_EQ(by_first[7].tokens, (Ids{7, 8, 9, 10, 11, 12, 13}));
  EXPECT_EQ(by_first[7].targets, (Ids{8, -1, 10, 11, 12, 13, -1}));
  EXPECT_EQ(by_first[7].segments, (Ids{0, 0, 1, 1, 1, 1, 1}));
  EXPECT_EQ(by_first[14].targets, (Ids{15, 16, 17, 18, 19, 20, -1}));
}

TEST_F(SamplerTest, ASourceShorterThanOneSequenceIsPadded) {
  const std::string prefix = folder_.at("short");
  write_documents(prefix, {3, 2}, kVocab, -1, 40);
  spec_.sources = {{"short", {prefix}}};
  spec_.valid_fraction = 0;
  spec_.lengths = {{0, 8}};
  const Sampler sampler(spec_);
  const Batch batch = sampler.train(4, 2);
  using Ids = std::vector<std::int32_t>;
  EXPECT_EQ(batch.sequences, 2);
  EXPECT_EQ(Ids(batch.tokens.begin() + 8, batch.tokens.end()),
            (Ids{40, 41, 42, 43, 44, 0, 0, 0}));
  EXPECT_EQ(Ids(batch.targets.begin() + 8, batch.targets.end()),
            (Ids{41, 42, -1, 44, -1, -1, -1, -1}));
  EXPECT_EQ(Ids(batch.segments.begin() + 8, batch.segments.end()),
            (Ids{0, 0, 0, 1, 1, -1, -1, -1}));
  EXPECT_EQ(sampler.place(4).epoch, 4);
}

TEST_F(SamplerTest, MixtureDrawsAreExactAndNothingRepeatsBeforeASourceIsUsedUp) {
  add("a", 300, 0);
  add("b", 60, 100000);
  add("rare", 20, 200000);
  spec_.mixture = {{0, {0.9, 0.0975, 0.0025}}};
  const Sampler sampler(spec_);
  std::vector<index_t> count(3, 0);
  std::vector<std::set<index_t>> seen(3);
  for (index_t g = 0; g < 2000; ++g) {
    for (int s = 0; s < 3; ++s) {
      const double expected = spec_.mixture[0].weights[s] * static_cast<double>(g);
      ASSERT_LE(std::abs(static_cast<double>(count[s]) - expected), 1 + 1e-9);
    }
    const Place p = sampler.place(g);
    ASSERT_EQ(sampler.drawn(p.source, g), count[p.source]);
    ASSERT_EQ(p.epoch, count[p.source] / per_epoch(sampler, p.source));
    if (count[p.source]++ % per_epoch(sampler, p.source) == 0) seen[p.source].clear();
    ASSERT_TRUE(seen[p.source].insert(p.first).second);
  }
  EXPECT_GE(count[2], 4);
}

TEST_F(SamplerTest, WithoutWeightsSourcesAreDrawnBySize) {
  add("a", 300, 0);
  add("b", 100, 100000);
  const Sampler sampler(spec_);
  const double a = static_cast<double>(sampler.sources()[0].tokens(Part::train));
  const double b = static_cast<double>(sampler.sources()[1].tokens(Part::train));
  EXPECT_NEAR(static_cast<double>(sampler.drawn(0, 1000)), 1000 * a / (a + b), 1.01);
}

TEST_F(SamplerTest, AStageBeginsAtItsSequenceAndGoesOnInEachSource) {
  add("a", 300, 0);
  add("b", 300, 100000);
  spec_.mixture = {{0, {1, 0}}, {50 * 16 - 7, {0, 1}}, {80 * 16, {1, 1}}};
  const Sampler sampler(spec_);
  std::vector<std::set<index_t>> seen(2);
  for (index_t g = 0; g < 150; ++g) {
    const Place p = sampler.place(g);
    if (g < 80) {
      ASSERT_EQ(p.source, g < 50 ? 0 : 1) << g;
    }
    ASSERT_EQ(sampler.sequence_after(g * 16), g);
    ASSERT_TRUE(seen[p.source].insert(p.first).second);
  }
  EXPECT_EQ(seen[0].size(), 85u);
}

// Permuted draws: nothing repeats within an epoch across stages that end inside blocks,
// and a stage added later leaves what comes before it.
TEST_F(SamplerTest, PermutedStagesRepeatNothingAndDoNotLookAhead) {
  add("a", 900, 0);
  add("b", 900, 100000);
  spec_.mixture = {{0, {2, 1}, true}, {700 * 16, {1, 1}, true}};
  SamplerSpec longer = spec_;
  longer.mixture.push_back({1100 * 16 - 3, {1, 9}, true});
  const Sampler sampler(longer), shorter(spec_);
  std::vector<std::set<index_t>> seen(2);
  std::vector<index_t> count(2, 0);
  for (index_t g = 0; g < 1300; ++g) {
    const Place p = sampler.place(g);
    ASSERT_EQ(sampler.drawn(p.source, g), count[p.source]);
    if (count[p.source]++ % per_epoch(sampler, p.source) == 0) seen[p.source].clear();
    ASSERT_TRUE(seen[p.source].insert(p.first).second) << g;
    if (g >= 1100) continue;
    ASSERT_EQ(p.source, shorter.place(g).source) << g;
    ASSERT_EQ(p.first, shorter.place(g).first) << g;
  }
}

// The tokens seen before the change are not seen after it, in the same epoch.
TEST_F(SamplerTest, ANewLengthRepeatsNothingAndStartsAtTheNextWindow) {
  add("a", 400, 0);
  add("b", 300, 100000);
  for (const index_t at : {0, 1, 15, 16, 40, 123}) {
    spec_.mixture = {{0, {2, 1}}};
    spec_.lengths = {{0, 16}, {at * 64, 64}, {at * 64 + 64 * 9, 32}};
    if (at == 0) spec_.lengths.erase(spec_.lengths.begin());
    const Sampler sampler(spec_);
    std::set<std::int32_t> seen;
    std::set<index_t> windows[2];
    index_t g = 0;
    for (index_t tokens = 0; tokens < at * 64 + 64 * 20;) {
      const Place p = sampler.place(g);
      ASSERT_EQ(sampler.sequence_after(tokens), g);
      ASSERT_EQ(p.epoch, 0) << "the test needs more data";
      const index_t expected = tokens < at * 64            ? 16
                               : tokens < at * 64 + 64 * 9 ? 64
                                                           : 32;
      ASSERT_EQ(p.seq_len, at == 0 && expected == 16 ? 64 : expected);
      for (const std::int32_t id : sampler.train(g, 1).tokens) {
        ASSERT_TRUE(seen.insert(id).second) << "twice: " << id;
      }
      windows[p.source].insert(p.first / 256);
      tokens += p.seq_len;
      ++g;
    }
    // At most one window per source and change is left unfinished.
    const auto used = static_cast<index_t>(windows[0].size() + windows[1].size());
    EXPECT_LE(used, static_cast<index_t>(seen.size()) / 256 + 2 * 3 + 1);
  }
}

TEST_F(SamplerTest, RefusesWhatCannotBe) {
  add("a", 20, 0);
  const auto expect = [&](const SamplerSpec& spec, const char* words) {
    const std::string text = error_of([&] { Sampler sampler(spec); }, Exit::deck);
    EXPECT_NE(text.find(words), std::string::npos) << text;
  };
  SamplerSpec bad = spec_;
  bad.lengths = {{0, 16}, {160, 100}};
  expect(bad, "take one that divides 256");
  bad = spec_;
  bad.lengths = {{0, 16}, {0, 32}};
  expect(bad, "ascend");
  bad = spec_;
  bad.mixture = {{16, {1}}};
  expect(bad, "ascend");
  bad = spec_;
  bad.mixture = {{0, {1, 1}}};
  expect(bad, "one weight per source");
  bad = spec_;
  bad.sources.push_back(bad.sources[0]);
  expect(bad, "two data sources are named a");
  bad = spec_;
  bad.sources.clear();
  expect(bad, "no data source");
  bad = spec_;
  bad.valid_fraction = 0.999999;
  EXPECT_NE(error_of([&] { Sampler sampler(bad); }, Exit::file)
                .find("source a has no training"),
            std::string::npos);
  bad = spec_;
  bad.sources.push_back({"gone", {folder_.at("gone")}});
  bad.sources.push_back({"lost", {folder_.at("lost")}});
  const std::string text = error_of([&] { Sampler sampler(bad); }, Exit::file);
  EXPECT_NE(text.find("gone.idx: no such"), std::string::npos);
  EXPECT_NE(text.find("lost.idx: no such"), std::string::npos);
}

}  // namespace
}  // namespace capstan::test
