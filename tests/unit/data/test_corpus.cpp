/// \file Text files -> token files.
#include <gtest/gtest.h>

#include <cmath>

#include "data/byte_tokenizer.hpp"
#include "data/corpus.hpp"
#include "unit/data/files.hpp"

namespace capstan::test {
namespace {

class CorpusTest : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(folder_.at("in/sub"));
    write_bytes(folder_.at("in/b.txt"), "bb");
    write_bytes(folder_.at("in/a.txt"), "a\n");
    write_bytes(folder_.at("in/sub/c.py"), "ccc");
    write_bytes(folder_.at("in/copy.txt"), "bb");
    write_bytes(folder_.at("in/empty.txt"), "");
    write_bytes(folder_.at("in/binary.txt"), std::string("x\0y", 3));
    std::filesystem::create_symlink(folder_.at("in/a.txt"), folder_.at("in/link.txt"));
    std::filesystem::create_directory_symlink(folder_.at("in"),
                                              folder_.at("in/sub/loop"));
    spec_.prefix = folder_.at("out");
    spec_.paths = {folder_.at("in")};
  }
  CorpusReport make() {
    return make_corpus(spec_, [&](index_t done, index_t all) {
      EXPECT_LE(done, all);
      ++calls_;
    });
  }
  std::string text() const {
    const TokenFile file = TokenFile::open(spec_.prefix, byte_tokenizer::kVocab);
    std::vector<std::int32_t> ids(file.tokens());
    file.read(0, file.tokens(), ids.data());
    return byte_tokenizer::decode(ids);
  }
  Folder folder_;
  CorpusSpec spec_;
  int calls_ = 0;
};

TEST_F(CorpusTest, EveryFileIsADocumentInNameOrder) {
  const CorpusReport report = make();
  EXPECT_EQ(text(), "a\n\nbb\nccc\n");
  EXPECT_EQ(report.documents, 3);
  EXPECT_EQ(report.tokens, 10);
  EXPECT_EQ(report.bytes, 7);
  EXPECT_EQ(report.skipped_short, 1);
  EXPECT_EQ(report.skipped_binary, 1);
  EXPECT_EQ(report.skipped_copies, 1);
  EXPECT_EQ(report.skipped_links, 2);
  EXPECT_EQ(calls_, 6);
  const TokenFile file = TokenFile::open(spec_.prefix, byte_tokenizer::kVocab);
  EXPECT_EQ(file.documents(), 3);
  const std::string first = read_bytes(spec_.prefix + ".bin");
  make();
  EXPECT_EQ(read_bytes(spec_.prefix + ".bin"), first);
}

TEST_F(CorpusTest, EntropyIsThatOfTheTokens) {
  const double n = 10;
  double expected = 0;
  for (const double count :
       {1.0, 1.0, 2.0, 3.0, 3.0}) {  // a, line feed, b, c, end of document
    expected -= count / n * std::log(count / n);
  }
  EXPECT_NEAR(make().unigram_entropy, expected, 1e-12);
}

TEST_F(CorpusTest, SuffixesFilterFoldersNotNamedFiles) {
  spec_.suffixes = {".py"};
  spec_.paths = {folder_.at("in"), folder_.at("in/b.txt")};
  const CorpusReport report = make();
  EXPECT_EQ(text(), "ccc\nbb\n");
  EXPECT_EQ(report.skipped_suffix, 5);
  spec_.min_bytes = 3;
  EXPECT_EQ(make().documents, 1);
}

TEST_F(CorpusTest, BadInput) {
  spec_.paths = {folder_.at("gone"), folder_.at("in"), folder_.at("lost")};
  EXPECT_EQ(error_of([&] { make(); }, Exit::file),
            folder_.at("gone") + ": no such file or folder\n" + folder_.at("lost") +
                ": no such file or folder");
  spec_.paths = {folder_.at("in/binary.txt")};
  EXPECT_NE(error_of([&] { make(); }, Exit::file).find("no text found in 1"),
            std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(spec_.prefix + ".bin.part"));
  EXPECT_FALSE(std::filesystem::exists(spec_.prefix + ".bin"));
}

}  // namespace
}  // namespace capstan::test
