/// \file Sources of several files, the held-out split, fingerprints.
#include <gtest/gtest.h>

#include <set>

#include "data/sampler.hpp"
#include "unit/data/files.hpp"

namespace capstan::test {
namespace {

constexpr std::int32_t kVocab = 1 << 20;

class SourceTest : public testing::Test {
 protected:
  void SetUp() override {
    lengths_[0] = std::vector<index_t>(150, 9);
    lengths_[1] = {1, 0, 5};
    lengths_[2] = std::vector<index_t>(80, 13);
    std::int32_t first = 0;
    for (int f = 0; f < 3; ++f) {
      files_.push_back(folder_.at("f" + std::to_string(f)));
      const auto ids = write_documents(files_.back(), lengths_[f], kVocab, -1, first);
      first += static_cast<std::int32_t>(ids.size());
    }
  }
  Folder folder_;
  std::vector<index_t> lengths_[3];
  std::vector<std::string> files_;
};

TEST_F(SourceTest, PartsAreDisjointByDocumentAndCoverAll) {
  const Source source({"s", files_}, kVocab, -1, 0.2);
  ASSERT_EQ(source.documents(), 233);
  std::set<std::int32_t> ids;
  std::set<index_t> documents[2];
  for (const Part part : {Part::train, Part::valid}) {
    const index_t n = source.tokens(part);
    std::vector<std::int32_t> tokens(n), segments(n);
    std::vector<std::uint8_t> ends(n);
    source.read(part, 0, n, tokens.data(), segments.data(), ends.data());
    ids.insert(tokens.begin(), tokens.end());
    for (const index_t d : source.documents_of(part, 0, n)) {
      documents[static_cast<int>(part)].insert(d);
      EXPECT_EQ(source.held_out(d), part == Part::valid);
    }
    EXPECT_EQ(segments.back() + 1,
              static_cast<index_t>(documents[static_cast<int>(part)].size()));
  }
  const std::size_t all = 150 * 9 + 6 + 80 * 13;
  EXPECT_EQ(ids.size(), all);
  EXPECT_EQ(documents[0].size() + documents[1].size(), 232u);  // one document is empty
  EXPECT_NEAR(static_cast<double>(documents[1].size()), 0.2 * 233, 20);
}

// A piece read across documents, blocks of 64 and files is the same piece of the whole.
TEST_F(SourceTest, AnyPieceOfTheStream) {
  const Source source({"s", files_}, kVocab, -1, 0.3);
  for (const Part part : {Part::train, Part::valid}) {
    const index_t n = source.tokens(part);
    std::vector<std::int32_t> whole(n), segments(n), tokens(40), local(40);
    std::vector<std::uint8_t> ends(n), local_ends(40);
    source.read(part, 0, n, whole.data(), segments.data(), ends.data());
    for (index_t first = 0; first + 40 <= n; ++first) {
      source.read(part, first, 40, tokens.data(), local.data(), local_ends.data());
      for (index_t i = 0; i < 40; ++i) {
        ASSERT_EQ(tokens[i], whole[first + i]);
        ASSERT_EQ(local[i], segments[first + i] - segments[first]);
        ASSERT_EQ(local_ends[i], ends[first + i]);
      }
    }
  }
}

TEST_F(SourceTest, TheSplitIsAPureFunctionOfNameAndNumber) {
  const Source one({"s", {files_[0]}}, kVocab, -1, 0.2),
      all({"s", files_}, kVocab, -1, 0.2);
  const Source other({"t", {files_[0]}}, kVocab, -1, 0.2);
  index_t differ = 0;
  for (index_t d = 0; d < one.documents(); ++d) {
    EXPECT_EQ(one.held_out(d), all.held_out(d));
    differ += one.held_out(d) != other.held_out(d);
  }
  EXPECT_GT(differ, 10);
  // A larger fraction holds out more of the same.
  const Source more({"s", files_}, kVocab, -1, 0.4);
  for (index_t d = 0; d < all.documents(); ++d) {
    EXPECT_LE(all.held_out(d), more.held_out(d));
  }
  EXPECT_EQ(Source({"s", files_}, kVocab, -1, 0).tokens(Part::valid), 0);
}

TEST_F(SourceTest, HeldOutSequencesAreFixedAndNeverTrained) {
  SamplerSpec spec;
  spec.sources = {{"a", {files_[0]}}, {"b", {files_[2]}}};
  spec.lengths = {{0, 8}};
  spec.vocab = kVocab;
  spec.valid_fraction = 0.2;
  const Sampler sampler(spec);
  spec.seed = 99;
  spec.window_tokens = 32;
  const Sampler other(spec);
  const index_t n = sampler.valid_sequences(8);
  EXPECT_EQ(n, sampler.sources()[0].tokens(Part::valid) / 8 +
                   sampler.sources()[1].tokens(Part::valid) / 8);
  std::vector<index_t> all;
  for (index_t i = 0; i < n; ++i) all.push_back(i);
  const Batch held = sampler.valid(all, 8);
  EXPECT_EQ(held.sequences, n);
  EXPECT_EQ(held.tokens, other.valid(all, 8).tokens);
  std::set<std::int32_t> ids(held.tokens.begin(), held.tokens.end());
  EXPECT_EQ(static_cast<index_t>(ids.size()), n * 8);
  for (index_t g = 0; g < 500; ++g) {
    for (const std::int32_t id : sampler.train(g, 1).tokens) ASSERT_EQ(ids.count(id), 0u);
  }
  EXPECT_EQ(sampler.valid_choice(n + 5, 8), all);
  const auto few = sampler.valid_choice(4, 8);
  EXPECT_EQ(std::set<index_t>(few.begin(), few.end()).size(), 4u);
  EXPECT_GE(few.back(), n / 2);  // not the first source alone
  EXPECT_EQ(sampler.valid({n - 1}, 8).tokens,
            std::vector<std::int32_t>(held.tokens.end() - 8, held.tokens.end()));
}

TEST_F(SourceTest, FingerprintNamesTheSourceThatDiffers) {
  SamplerSpec spec;
  spec.sources = {{"a", {files_[0]}}, {"b", {files_[2]}}};
  spec.lengths = {{0, 8}};
  spec.vocab = kVocab;
  const Sampler sampler(spec);
  const std::string kept = sampler.fingerprint();
  EXPECT_TRUE(sampler.fingerprint_differences(kept).empty());
  spec.seed = 5;
  EXPECT_TRUE(Sampler(spec).fingerprint_differences(kept).empty());
  // One token changed, sizes the same.
  std::string bin = read_bytes(files_[2] + ".bin");
  bin[100] = static_cast<char>(bin[100] + 1);
  write_bytes(files_[2] + ".bin", bin);
  auto differences = Sampler(spec).fingerprint_differences(kept);
  ASSERT_EQ(differences.size(), 1u);
  EXPECT_EQ(differences[0].find("data source b: was "), 0u) << differences[0];
  spec.sources = {{"c", {files_[1]}}, {"a", {files_[0]}}};
  differences = Sampler(spec).fingerprint_differences(kept);
  ASSERT_EQ(differences.size(), 2u);
  EXPECT_EQ(differences[0].find("data source b: gone"), 0u);
  EXPECT_EQ(differences[1], "data source c: new");
}

}  // namespace
}  // namespace capstan::test
