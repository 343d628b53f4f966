/// \file Token files: both forms, large offsets, every kind of damage.
#include <gtest/gtest.h>

#include <cstring>

#include "unit/data/files.hpp"

namespace capstan::test {
namespace {

TEST(TokenFile, RoundTripInBothWidths) {
  const Folder folder;
  for (const std::int32_t vocab : {300, 70000}) {
    const std::string prefix = folder.at(std::to_string(vocab));
    const auto ids = write_documents(prefix, {5, 0, 1, 100000}, vocab);
    for (const char* ending : {"", ".bin", ".idx"}) {
      const TokenFile file = TokenFile::open(prefix + ending, vocab);
      ASSERT_EQ(file.tokens(), 100006);
      ASSERT_EQ(file.documents(), 4);
      const std::vector<index_t> begins = {0, 5, 5, 6, 100006};
      for (index_t d = 0; d <= 4; ++d) EXPECT_EQ(file.document_begin(d), begins[d]);
      std::vector<std::int32_t> read(ids.size());
      file.read(0, file.tokens(), read.data());
      EXPECT_EQ(read, ids);
    }
    EXPECT_FALSE(std::filesystem::exists(prefix + ".bin.part"));
    EXPECT_FALSE(std::filesystem::exists(prefix + ".idx.part"));
  }
}

// Byte for byte what Megatron's IndexedDatasetBuilder writes for documents [7 8] and [9].
TEST(TokenFile, IndexBytesAreMegatrons) {
  const Folder folder;
  TokenFileWriter writer(folder.at("m"), IdType::uint16);
  writer.append({7, 8});
  writer.append({9});
  writer.finish();
  const auto number = [](auto value) {
    return std::string(reinterpret_cast<const char*>(&value), sizeof value);
  };
  const std::string expected =
      std::string("MMIDIDX\0\0", 9) + number(std::uint64_t{1}) + number(std::uint8_t{8}) +
      number(std::uint64_t{2}) + number(std::uint64_t{3}) + number(std::int32_t{2}) +
      number(std::int32_t{1}) + number(std::int64_t{0}) + number(std::int64_t{4}) +
      number(std::int64_t{0}) + number(std::int64_t{1}) + number(std::int64_t{2});
  EXPECT_EQ(read_bytes(folder.at("m.idx")), expected);
  EXPECT_EQ(read_bytes(folder.at("m.bin")), std::string("\7\0\10\0\11\0", 6));
}

// Documents of several sequences, and the modes of a multimodal set at the end.
TEST(TokenFile, DocumentsOfSeveralSequences) {
  const Folder folder;
  write_documents(folder.at("s"), {2, 3, 4}, 100);
  std::string idx = read_bytes(folder.at("s.idx"));
  const std::int64_t table[] = {0, 2, 3};
  const std::uint64_t entries = 3;
  std::memcpy(idx.data() + 26, &entries, 8);
  idx.resize(34 + 3 * 12);
  idx.append(reinterpret_cast<const char*>(table), sizeof table);
  for (const char* modes : {"", "\1\1\1"}) {
    write_bytes(folder.at("s.idx"), idx + modes);
    const TokenFile file = TokenFile::open(folder.at("s"), 100);
    ASSERT_EQ(file.documents(), 2);
    EXPECT_EQ(file.document_begin(1), 5);
    EXPECT_EQ(file.document_begin(2), 9);
  }
}

TEST(TokenFile, FlatFilesEndDocumentsAtTheId) {
  const Folder folder;
  const std::uint16_t small[] = {4, 5, 9, 9, 6};
  const std::uint32_t wide[] = {70000, 9, 3};
  write_bytes(folder.at("a.u16"), std::string(reinterpret_cast<const char*>(small), 10));
  write_bytes(folder.at("b.u32"), std::string(reinterpret_cast<const char*>(wide), 12));
  const TokenFile a = TokenFile::open(folder.at("a.u16"), 10, 9);
  ASSERT_EQ(a.documents(), 3);
  const std::vector<index_t> begins = {0, 3, 4, 5};
  for (index_t d = 0; d <= 3; ++d) EXPECT_EQ(a.document_begin(d), begins[d]);
  EXPECT_EQ(TokenFile::open(folder.at("a.u16"), 10).documents(), 1);
  const TokenFile b = TokenFile::open(folder.at("b.u32"), 70001, 9);
  ASSERT_EQ(b.documents(), 2);
  std::vector<std::int32_t> ids(3);
  b.read(0, 3, ids.data());
  EXPECT_EQ(ids, (std::vector<std::int32_t>{70000, 9, 3}));
}

TEST(TokenFile, OffsetsBeyond2To32) {
  EXPECT_EQ(byte_offset((index_t{1} << 31) + 3, 2), 4294967302);
  EXPECT_EQ(byte_offset((index_t{1} << 32) + 3, 4), 17179869196);
  // A file of 2^32 + 2^30 tokens whose holes take no room on the disk.
  const Folder folder;
  const index_t sequences = 10, size = index_t{1} << 29, tokens = sequences * size;
  std::string idx("MMIDIDX\0\0", 9);
  const auto put = [&](auto value) {
    idx.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  put(std::uint64_t{1});
  put(std::uint8_t{8});
  put(sequences);
  put(sequences + 1);
  for (index_t i = 0; i < sequences; ++i) put(static_cast<std::int32_t>(size));
  for (index_t i = 0; i < sequences; ++i) put(i * size * 2);
  for (index_t i = 0; i <= sequences; ++i) put(i);
  write_bytes(folder.at("big.idx"), idx);
  {
    std::ofstream bin(folder.at("big.bin"), std::ios::binary);
    for (const index_t at :
         {(index_t{1} << 31) + 700007, (index_t{1} << 32) + 700007, tokens - 2}) {
      bin.seekp(at * 2);
      bin.write(at == tokens - 2 ? "\5\0\5\0" : "\5\0\6\0", 4);
    }
  }
  const TokenFile file = TokenFile::open(folder.at("big"), 10);
  EXPECT_EQ(file.tokens(), tokens);
  EXPECT_EQ(file.document_begin(9), 9 * size);
  for (const index_t at :
       {(index_t{1} << 31) + 700007, (index_t{1} << 32) + 700007, tokens - 2}) {
    std::vector<std::int32_t> ids(2);
    file.read(at, 2, ids.data());
    EXPECT_EQ(ids, (std::vector<std::int32_t>{5, at == tokens - 2 ? 5 : 6})) << at;
  }
  // What the samples do not see, reading does.
  EXPECT_NE(error_of(
                [&] {
                  const TokenFile narrow = TokenFile::open(folder.at("big"), 6);
                  std::int32_t id;
                  narrow.read((index_t{1} << 32) + 700008, 1, &id);
                },
                Exit::file)
                .find("token 4295667304 is id 6"),
            std::string::npos);
}

class Damaged : public testing::Test {
 protected:
  void SetUp() override {
    write_documents(prefix_, {3, 4}, 100);
    idx_ = read_bytes(prefix_ + ".idx");
    bin_ = read_bytes(prefix_ + ".bin");
  }
  /// The message must name the file and hold `words`.
  void expect(const std::string& idx, const std::string& bin, const char* file,
              const char* words) {
    write_bytes(prefix_ + ".idx", idx);
    write_bytes(prefix_ + ".bin", bin);
    const std::string text = error_of([&] { TokenFile::open(prefix_, 100); }, Exit::file);
    EXPECT_NE(text.find(prefix_ + file), std::string::npos) << text;
    EXPECT_NE(text.find(words), std::string::npos) << text;
  }
  std::string with(std::size_t at, std::int64_t value, std::size_t bytes) const {
    std::string changed = idx_;
    std::memcpy(changed.data() + at, &value, bytes);
    return changed;
  }
  Folder folder_;
  std::string prefix_ = folder_.at("d"), idx_, bin_;
};

TEST_F(Damaged, IsNamed) {
  expect(idx_, bin_.substr(0, bin_.size() - 1), ".bin", "13 bytes, its index says 14");
  expect(idx_, bin_ + "x", ".bin", "15 bytes, its index says 14");
  expect(idx_, "", ".bin", "0 bytes");
  expect("", bin_, ".idx", "truncated?");
  expect(idx_.substr(0, 20), bin_, ".idx", "truncated?");
  expect(idx_.substr(0, idx_.size() - 1), bin_, ".idx", "truncated?");
  expect(with(0, 'X', 1), bin_, ".idx", "wrong magic");
  expect(with(9, 2, 8), bin_, ".idx", "version 2");
  expect(with(17, 7, 1), bin_, ".idx", "element type 7 is no integer");
  expect(with(17, 99, 1), bin_, ".idx", "element type 99");
  expect(with(18, -1, 8), bin_, ".idx", "truncated?");
  expect(with(18, std::int64_t{1} << 62, 8), bin_, ".idx", "truncated?");
  expect(with(34, -3, 4), bin_, ".idx", "negative size");
  expect(with(34 + 8 + 8, 5, 8), bin_, ".idx", "do not follow one another");
  expect(with(34 + 24 + 8, 3, 8), bin_, ".idx", "document table");
  expect(with(34 + 24 + 16, 1, 8), bin_, ".idx", "document table");
  write_documents(prefix_, {0, 0}, 100);
  expect(read_bytes(prefix_ + ".idx"), "", ".bin", "holds no tokens");
}

TEST_F(Damaged, IdsBeyondTheVocabulary) {
  std::string bin = bin_;
  bin[8] = 100;
  bin[10] = 120;
  expect(idx_, bin, ".bin",
         "2 of the ids looked at are outside the vocabulary of 100; the first is 100 at "
         "token 4");
}

TEST_F(Damaged, BothFilesMissing) {
  const std::string gone = folder_.at("gone");
  const std::string text = error_of([&] { TokenFile::open(gone, 9); }, Exit::file);
  EXPECT_EQ(text, gone + ".idx: no such file\n" + gone + ".bin: no such file");
  write_bytes(folder_.at("odd.u32"), "12345");
  EXPECT_NE(error_of([&] { TokenFile::open(folder_.at("odd.u32"), 9); }, Exit::file)
                .find("odd.u32: 5 bytes are no whole number of 4-byte ids"),
            std::string::npos);
}

TEST(TokenFileWriter, AnUnfinishedFileLeavesNothing) {
  const Folder folder;
  write_documents(folder.at("w"), {4}, 10);
  const std::string before = read_bytes(folder.at("w.bin"));
  {
    TokenFileWriter writer(folder.at("w"), IdType::uint16);
    writer.append({1, 2, 3});
  }
  EXPECT_EQ(read_bytes(folder.at("w.bin")), before);
  EXPECT_FALSE(std::filesystem::exists(folder.at("w.bin.part")));
  EXPECT_NE(
      error_of([] { TokenFileWriter writer("/dev/null/x", IdType::uint16); }, Exit::file),
      "");
}

TEST(TokenFile, ContentHashSeesIdsAndDocuments) {
  const Folder folder;
  write_documents(folder.at("a"), {5, 5}, 100);
  write_documents(folder.at("b"), {5, 5}, 100);
  write_documents(folder.at("c"), {4, 6}, 100);
  write_documents(folder.at("d"), {5, 5}, 100, -1, 1);
  const auto hash = [&](const char* name) {
    return TokenFile::open(folder.at(name), 200).content_hash();
  };
  EXPECT_EQ(hash("a"), hash("b"));
  EXPECT_NE(hash("a"), hash("c"));
  EXPECT_NE(hash("a"), hash("d"));
}

}  // namespace
}  // namespace capstan::test
