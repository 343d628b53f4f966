#pragma once
/// \file Files of token ids with documents, memory-mapped.
///
/// Two forms, told apart by the name:
///   Megatron  PREFIX.bin + PREFIX.idx, named by PREFIX or either file. The .idx holds
///   the 9
///             bytes "MMIDIDX\0\0", version (uint64, 1), element type (uint8: 1 uint8, 2
///             int8, 3 int16, 4 int32, 5 int64, 8 uint16), sequences n (uint64), length
///             of the document index m (uint64), sizes int32[n], byte pointers int64[n],
///             document index int64[m] (first sequence of each document, ends with n).
///             The .bin holds the ids. Format of
///             megatron/core/datasets/indexed_dataset.py of NVIDIA/Megatron-LM.
///   flat      NAME.u16 or NAME.u32: uint16 or uint32 ids and nothing else. A document
///   ends
///             after each `end_of_document` id; without one the file is one document.
/// Ids are checked against the vocabulary: every id of a file of up to 2^26 tokens when
/// it is opened, evenly spread samples of a longer one, and always the ids that are read.
#include <optional>
#include <vector>

#include "data/mapped_file.hpp"

namespace capstan {

enum class IdType : std::uint8_t {
  uint8 = 1,
  int8 = 2,
  int16 = 3,
  int32 = 4,
  int64 = 5,
  uint16 = 8,
  uint32 = 255  ///< flat files only: Megatron has no code for it
};
/// Bytes of one id.
index_t id_width(IdType type);
/// Byte offset of token `token`: 64 bits throughout.
constexpr index_t byte_offset(index_t token, index_t width) {
  return token * width;
}

class TokenFile {
 public:
  /// Opens and validates. `vocab` is the number of ids of the model, `end_of_document` <
  /// 0 means none. Error(Exit::file) lists every problem found, each with the file's
  /// name.
  static TokenFile open(const std::string& name, index_t vocab,
                        index_t end_of_document = -1);

  const std::string& name() const { return name_; }
  index_t tokens() const { return tokens_; }
  index_t documents() const { return documents_; }
  /// First token of document d in [0, documents]; documents() gives tokens().
  index_t document_begin(index_t d) const;
  /// Ids [first, first + n) as int32. Error(Exit::file) at an id outside the vocabulary.
  void read(index_t first, index_t n, std::int32_t* out) const;
  /// Hash of the sizes, the document table and the ids; of a long file, of even samples.
  std::uint64_t content_hash() const;

 private:
  void open_megatron(const std::string& prefix);
  void open_flat();
  void check_ids() const;
  /// Copies ids [first, first + n), unchecked; an int64 id outside int32 becomes -1.
  void copy(index_t first, index_t n, std::int32_t* out) const;

  std::string name_;
  MappedFile bin_, idx_;
  IdType type_ = IdType::uint16;
  index_t vocab_ = 0, end_of_document_ = -1;
  index_t tokens_ = 0, documents_ = 0;
  index_t pointers_at_ = 0, table_at_ = 0;  // bytes into idx_
  std::vector<index_t> begins_;             // flat files only
};

/// Writes PREFIX.bin and PREFIX.idx: under .part names, renamed by finish(), the .idx
/// last.
class TokenFileWriter {
 public:
  TokenFileWriter(const std::string& prefix, IdType type);
  ~TokenFileWriter();
  TokenFileWriter(const TokenFileWriter&) = delete;

  /// Appends one document. Error(Exit::file) when the disk refuses, Error(Exit::internal)
  /// at an id that the type cannot hold.
  void append(const std::vector<std::int32_t>& document);
  /// Syncs and renames. Without it (an error on the way) nothing but .part files was
  /// touched.
  void finish();

 private:
  void put(int file, const void* data, index_t bytes, const std::string& path);

  std::string prefix_;
  IdType type_;
  int bin_ = -1;
  bool finished_ = false;
  std::vector<std::int32_t> sizes_;
  std::vector<std::byte> buffer_;
};

}  // namespace capstan
