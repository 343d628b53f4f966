/// \file Batches of ranks: independent of the grid, of the number of ranks at a resume,
/// of reading ahead.
#include <gtest/gtest.h>

#include "data/loader.hpp"
#include "unit/data/files.hpp"

namespace capstan::test {
namespace {

class LoaderTest : public testing::Test {
 protected:
  void SetUp() override {
    write_documents(folder_.at("a"), std::vector<index_t>(90, 21), 1000);
    write_documents(folder_.at("b"), std::vector<index_t>(30, 21), 1000);
    SamplerSpec spec;
    spec.sources = {{"ab", {folder_.at("a"), folder_.at("b")}}};
    spec.lengths = {{0, 16}};
    spec.window_tokens = 128;
    spec.vocab = 1000;
    sampler_ = std::make_unique<Sampler>(spec);
  }
  /// The step as the ranks of a grid load it, put back into data order.
  std::vector<std::int32_t> step_on(index_t ranks, index_t micro_batches,
                                    index_t tokens_seen) {
    std::vector<std::vector<Batch>> parts;
    for (index_t r = 0; r < ranks; ++r) {
      Loader loader(*sampler_, {24, micro_batches, ranks, r});
      parts.push_back(loader.step(tokens_seen));
      EXPECT_EQ(static_cast<index_t>(parts.back().size()), micro_batches);
    }
    std::vector<std::int32_t> tokens;
    for (index_t m = 0; m < micro_batches; ++m) {
      for (index_t r = 0; r < ranks; ++r) {
        const Batch& b = parts[r][m];
        EXPECT_EQ(b.sequences, 24 / ranks / micro_batches);
        tokens.insert(tokens.end(), b.tokens.begin(), b.tokens.end());
      }
    }
    return tokens;
  }
  Folder folder_;
  std::unique_ptr<Sampler> sampler_;
};

TEST_F(LoaderTest, TheStepIsTheSameOnAnyGrid) {
  for (const index_t tokens_seen :
       {index_t{0}, index_t{24 * 16}, index_t{24 * 16 * 1000}}) {
    const auto whole = Loader(*sampler_, {24, 1, 1, 0}).whole_step(tokens_seen);
    EXPECT_EQ(whole.tokens, sampler_->train(tokens_seen / 16, 24).tokens);
    for (const index_t ranks : {1, 2, 4, 12}) {
      for (const index_t micro_batches : {1, 2}) {
        EXPECT_EQ(step_on(ranks, micro_batches, tokens_seen), whole.tokens)
            << ranks << " ranks, " << micro_batches << " micro-batches";
      }
    }
  }
}

// Trained on 4 ranks, then on 2: the global order goes on where it was.
TEST_F(LoaderTest, ResumesOnFewerRanks) {
  index_t tokens = 0;
  const Loader one(*sampler_, {24, 1, 1, 0});
  for (index_t step = 0; step < 20; ++step) {
    EXPECT_EQ(one.step_tokens(tokens), 24 * 16);
    EXPECT_EQ(step_on(step < 7 ? 4 : 2, 1, tokens),
              sampler_->train(step * 24, 24).tokens);
    tokens += one.step_tokens(tokens);
  }
}

TEST_F(LoaderTest, ReadingAheadChangesNothing) {
  Loader loader(*sampler_, {24, 2, 2, 1});
  index_t tokens = 0;
  const auto expect_step = [&] {
    Loader fresh(*sampler_, {24, 2, 2, 1});
    const auto got = loader.step(tokens), expected = fresh.step(tokens);
    for (int m = 0; m < 2; ++m) {
      ASSERT_EQ(got[m].tokens, expected[m].tokens);
      ASSERT_EQ(got[m].targets, expected[m].targets);
      ASSERT_EQ(got[m].segments, expected[m].segments);
    }
  };
  for (int step = 0; step < 10; ++step, tokens += 24 * 16) expect_step();
  tokens = 24 * 16 * 3;  // back, then a skip
  expect_step();
  tokens = 24 * 16 * 300;
  expect_step();
}

TEST_F(LoaderTest, NamesTheNearestBatchThatDivides) {
  const std::string text = error_of(
      [&] {
        Loader loader(*sampler_, {10, 2, 4, 0});
      },
      Exit::deck);
  EXPECT_NE(text.find("batch/sequences = 10"), std::string::npos) << text;
  EXPECT_NE(text.find("take 8 or 16"), std::string::npos) << text;
}

// An id beyond the vocabulary that the look at opening could not see fails in the step.
TEST_F(LoaderTest, AnErrorWhileReadingAheadArrives) {
  SamplerSpec spec;
  spec.sources = {{"a", {folder_.at("a")}}};
  spec.lengths = {{0, 16}};
  spec.vocab = 1000;
  const Sampler sampler(spec);
  Loader loader(sampler, {1, 1, 1, 0});
  loader.step(0);
  // The file changes under the mapping.
  std::fstream bin(folder_.at("a.bin"), std::ios::in | std::ios::out | std::ios::binary);
  const std::string bytes(90 * 21 * 2, '\x7f');
  bin.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  bin.close();
  const std::string text = error_of(
      [&] {
        for (index_t step = 1; step < 4; ++step) loader.step(step * 16);
      },
      Exit::file);
  EXPECT_NE(text.find("a.bin: token"), std::string::npos) << text;
}

}  // namespace
}  // namespace capstan::test
