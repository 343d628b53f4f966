#include "data/source.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/rng.hpp"

namespace capstan {

Source::Source(const SourceSpec& spec, index_t vocab, index_t end_of_document,
               double valid_fraction)
    : name_(spec.name),
      key_(mix64(stream_of(spec.name))),
      valid_fraction_(valid_fraction),
      first_document_{0} {
  std::string problems;
  for (const auto& file : spec.files) {
    try {
      files_.push_back(TokenFile::open(file, vocab, end_of_document));
      first_document_.push_back(first_document_.back() + files_.back().documents());
    } catch (const Error& error) {
      problems += (problems.empty() ? "" : "\n") + std::string(error.what());
    }
  }
  if (spec.files.empty()) problems = "data source " + name_ + " names no file";
  if (!problems.empty()) throw Error(Exit::file, problems);
  index_t sum[2] = {0, 0};
  index_t document = 0;
  for (const TokenFile& file : files_) {
    index_t begin = 0;
    for (index_t d = 0; d < file.documents(); ++d, ++document) {
      if (document % kBlock == 0) {
        for (int part = 0; part < 2; ++part) before_[part].push_back(sum[part]);
      }
      const index_t end = file.document_begin(d + 1);
      sum[held_out(document)] += end - begin;
      begin = end;
    }
  }
  for (int part = 0; part < 2; ++part) before_[part].push_back(sum[part]);
}

bool Source::held_out(index_t document) const {
  const std::uint64_t h = mix64(key_ ^ mix64(static_cast<std::uint64_t>(document)));
  return static_cast<double>(h >> 11) * 0x1.0p-53 < valid_fraction_;
}

index_t Source::file_of(index_t document) const {
  const auto next =
      std::upper_bound(first_document_.begin(), first_document_.end(), document);
  return next - first_document_.begin() - 1;
}

index_t Source::document_tokens(index_t document) const {
  const index_t f = file_of(document), d = document - first_document_[f];
  return files_[f].document_begin(d + 1) - files_[f].document_begin(d);
}

template <class F>
void Source::each_piece(Part part, index_t first, index_t n, F f) const {
  const auto& before = before_[static_cast<int>(part)];
  require(first >= 0 && n >= 0 && first + n <= before.back(),
          "source: read outside the stream");
  // The last block that starts at or before `first`; before.back() is the end of the last
  // one.
  const auto next = std::upper_bound(before.begin(), before.end() - 1, first);
  const index_t block = next - before.begin() - 1;
  index_t at = before[block];  // stream position of the document's first token
  for (index_t document = block * kBlock; n > 0; ++document) {
    if (held_out(document) != (part == Part::valid)) continue;
    const index_t length = document_tokens(document);
    const index_t begin = first - at;
    if (begin < length) {
      const index_t take = std::min(length - begin, n);
      f(Piece{document, begin, take, begin + take == length});
      first += take;
      n -= take;
    }
    at += length;
  }
}

void Source::read(Part part, index_t first, index_t n, std::int32_t* tokens,
                  std::int32_t* segments, std::uint8_t* ends) const {
  index_t at = 0;
  std::int32_t segment = 0;
  std::fill(ends, ends + n, std::uint8_t{0});
  each_piece(part, first, n, [&](const Piece& piece) {
    const index_t f = file_of(piece.document);
    const TokenFile& file = files_[f];
    const index_t begin = file.document_begin(piece.document - first_document_[f]);
    file.read(begin + piece.begin, piece.n, tokens + at);
    std::fill(segments + at, segments + at + piece.n, segment++);
    at += piece.n;
    ends[at - 1] = piece.ends;
  });
}

std::vector<index_t> Source::documents_of(Part part, index_t first, index_t n) const {
  std::vector<index_t> documents;
  each_piece(part, first, n,
             [&](const Piece& piece) { documents.push_back(piece.document); });
  return documents;
}

std::uint64_t Source::content_hash() const {
  std::uint64_t h = 0;
  for (const TokenFile& file : files_) h = mix64(h ^ file.content_hash());
  return h;
}

}  // namespace capstan
