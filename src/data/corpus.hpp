#pragma once
/// \file Text files -> one pair of token files: what capstan-prep does.
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace capstan {

using index_t = std::int64_t;

struct CorpusSpec {
  std::string prefix;                 ///< of the .bin and .idx to write
  std::vector<std::string> paths;     ///< files, and folders to walk
  std::vector<std::string> suffixes;  ///< kept in folders ("" for all); empty: all
  index_t min_bytes = 1;              ///< shorter files are skipped
};

struct CorpusReport {
  index_t documents = 0, tokens = 0, bytes = 0;
  index_t skipped_suffix = 0, skipped_short = 0, skipped_binary = 0, skipped_copies = 0;
  index_t skipped_links = 0, unreadable = 0;
  double unigram_entropy = 0;      ///< nats per token, end of document included
  std::vector<std::string> notes;  ///< files that could not be read, why
};

/// Every file is a document, tokenised to bytes and closed by the end-of-document id; the
/// order is that of the paths, inside a folder that of the names. Skipped: files of
/// folders without a wanted suffix, short ones, symbolic links inside folders, what is
/// not UTF-8 text or holds a NUL, and byte for byte copies of an earlier file (they would
/// stand on both sides of a held-out split). `progress(bytes done, bytes in all)` is
/// called after each file. Error(Exit::file): a path that is not there, nothing to write,
/// a write that fails.
CorpusReport make_corpus(const CorpusSpec& spec,
                         const std::function<void(index_t, index_t)>& progress);

}  // namespace capstan
