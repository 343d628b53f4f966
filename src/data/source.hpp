#pragma once
/// \file A source: token files read as one list of documents, split into training and
/// held-out documents, each part a stream of tokens.
#include <memory>
#include <string>
#include <vector>

#include "data/token_file.hpp"

namespace capstan {

struct SourceSpec {
  std::string name;                ///< in messages, and the key of the held-out split
  std::vector<std::string> files;  ///< one list of documents, in this order
};

enum class Part { train = 0, valid = 1 };

class Source {
 public:
  /// Opens every file and indexes the documents. A document is held out when hash(name,
  /// its number in the source) falls below valid_fraction: independent of the seed, and
  /// unmoved by files added at the end. Error(Exit::file) lists the problems of all
  /// files.
  Source(const SourceSpec& spec, index_t vocab, index_t end_of_document,
         double valid_fraction);

  const std::string& name() const { return name_; }
  index_t documents() const { return first_document_.back(); }
  /// Tokens of the stream: the part's documents one after another.
  index_t tokens(Part part) const { return before_[static_cast<int>(part)].back(); }
  bool held_out(index_t document) const;
  index_t document_tokens(index_t document) const;

  /// Tokens [first, first + n) of a stream. `segments` counts documents from 0 within the
  /// piece; `ends[i]` is 1 at the last token of a document. Arrays of n.
  void read(Part part, index_t first, index_t n, std::int32_t* tokens,
            std::int32_t* segments, std::uint8_t* ends) const;
  /// Documents that tokens [first, first + n) of a stream touch, in order.
  std::vector<index_t> documents_of(Part part, index_t first, index_t n) const;
  /// Hash of all files; a pure function of their content, not of their place.
  std::uint64_t content_hash() const;

 private:
  static constexpr index_t kBlock = 64;
  struct Piece {
    index_t document, begin, n;  // tokens [begin, begin + n) of the document
    bool ends;                   // the document's last token is in it
  };
  /// Calls f(Piece) for the documents of stream tokens [first, first + n).
  template <class F>
  void each_piece(Part part, index_t first, index_t n, F f) const;
  index_t file_of(index_t document) const;

  std::string name_;
  std::uint64_t key_;
  double valid_fraction_;
  std::vector<TokenFile> files_;
  std::vector<index_t> first_document_;  // [files + 1]
  // Stream tokens before each block of kBlock documents, and in all: 8 bytes per 64
  // documents.
  std::vector<index_t> before_[2];
};

}  // namespace capstan
