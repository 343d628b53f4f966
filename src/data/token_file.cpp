#include "data/token_file.hpp"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <limits>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/log.hpp"

namespace capstan {

namespace {
constexpr char kMagic[9] = {'M', 'M', 'I', 'D', 'I', 'D', 'X', '\0', '\0'};
constexpr index_t kHeader = 34;
constexpr index_t kFullScan = index_t{1} << 26;  // tokens
constexpr index_t kPieces = 4096, kPiece = 4096;
constexpr std::int64_t kLargest = std::numeric_limits<std::int32_t>::max();

/// Fields of an .idx are not aligned.
template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

/// Calls f(first, n) over all of [0, tokens), or over evenly spread pieces of a long
/// range.
template <class F>
void each_piece(index_t tokens, F f) {
  if (tokens <= kFullScan) {
    for (index_t at = 0; at < tokens; at += kPiece) f(at, std::min(kPiece, tokens - at));
    return;
  }
  const index_t stride = (tokens - kPiece) / (kPieces - 1);
  for (index_t i = 0; i < kPieces - 1; ++i) f(i * stride, kPiece);
  f(tokens - kPiece, kPiece);
}

template <class T>
void widen(const std::byte* from, index_t n, std::int32_t* out) {
  for (index_t i = 0; i < n; ++i) {
    const auto id =
        static_cast<std::int64_t>(load<T>(from + i * static_cast<index_t>(sizeof(T))));
    out[i] = id >= 0 && id <= kLargest ? static_cast<std::int32_t>(id) : -1;
  }
}

bool is_suffix(const std::string& text, const char* suffix) {
  const std::size_t n = std::strlen(suffix);
  return text.size() > n && text.compare(text.size() - n, n, suffix) == 0;
}

std::string megatron_prefix(const std::string& name) {
  const bool file = is_suffix(name, ".bin") || is_suffix(name, ".idx");
  return file ? name.substr(0, name.size() - 4) : name;
}

void throw_all(const std::vector<std::string>& problems) {
  if (problems.empty()) return;
  std::string text;
  for (const auto& line : problems) text += (text.empty() ? "" : "\n") + line;
  throw Error(Exit::file, text);
}
}  // namespace

index_t id_width(IdType type) {
  switch (type) {
    case IdType::uint8:
    case IdType::int8:
      return 1;
    case IdType::int16:
    case IdType::uint16:
      return 2;
    case IdType::int32:
    case IdType::uint32:
      return 4;
    case IdType::int64:
      return 8;
  }
  return 0;
}

TokenFile TokenFile::open(const std::string& name, index_t vocab,
                          index_t end_of_document) {
  TokenFile file;
  file.name_ = name;
  file.vocab_ = vocab;
  file.end_of_document_ = end_of_document;
  if (is_suffix(name, ".u16") || is_suffix(name, ".u32")) {
    file.type_ = is_suffix(name, ".u16") ? IdType::uint16 : IdType::uint32;
    file.open_flat();
  } else {
    file.open_megatron(megatron_prefix(name));
  }
  if (file.tokens_ > kFullScan) file.bin_.expect_random();
  file.check_ids();
  return file;
}

namespace {
/// Numbers of an .idx header, checked against the size of the file.
struct IdxHeader {
  IdType type = IdType::uint16;
  index_t sequences = 0, table = 0;
};

IdxHeader read_header(const MappedFile& idx) {
  const std::string& path = idx.path();
  if (idx.size() < kHeader) {
    throw Error(
        Exit::file,
        format("%s: %lld bytes, an index has at least %lld: truncated?", path.c_str(),
               static_cast<long long>(idx.size()), static_cast<long long>(kHeader)));
  }
  if (std::memcmp(idx.data(), kMagic, sizeof kMagic) != 0) {
    throw Error(Exit::file, path + ": not a token index (wrong magic)");
  }
  const auto version = load<std::uint64_t>(idx.data() + 9);
  if (version != 1) {
    throw Error(Exit::file,
                path + ": version " + std::to_string(version) + ", can read 1");
  }
  IdxHeader header;
  header.type = static_cast<IdType>(load<std::uint8_t>(idx.data() + 17));
  if (header.type == IdType::uint32 || id_width(header.type) == 0) {
    const int code = static_cast<int>(header.type);
    throw Error(Exit::file,
                path + ": element type " + std::to_string(code) + " is no integer");
  }
  header.sequences = load<index_t>(idx.data() + 18);
  header.table = load<index_t>(idx.data() + 26);
  constexpr index_t kMany = index_t{1} << 56;
  const bool sane = header.sequences >= 0 && header.sequences < kMany &&
                    header.table >= 1 && header.table < kMany;
  const index_t need = sane ? kHeader + 12 * header.sequences + 8 * header.table : -1;
  // One byte per sequence may follow (modes of multimodal sets); it is not read.
  if (!sane || (idx.size() != need && idx.size() != need + header.sequences)) {
    throw Error(Exit::file,
                format("%s: %lld bytes do not hold %lld sequences and %lld table "
                       "entries: truncated?",
                       path.c_str(), static_cast<long long>(idx.size()),
                       static_cast<long long>(header.sequences),
                       static_cast<long long>(header.table)));
  }
  return header;
}

/// The total of the sizes; problems of the tables go to the list, one of each kind.
index_t check_tables(const MappedFile& idx, const IdxHeader& h,
                     std::vector<std::string>& problems) {
  const index_t width = id_width(h.type);
  const std::byte* sizes = idx.data() + kHeader;
  const std::byte* pointers = sizes + 4 * h.sequences;
  const std::byte* table = pointers + 8 * h.sequences;
  bool bad_size = false, bad_pointer = false, bad_table = false;
  index_t total = 0;
  for (index_t i = 0; i < h.sequences; ++i) {
    const index_t size = load<std::int32_t>(sizes + 4 * i);
    bad_size |= size < 0;
    bad_pointer |= load<index_t>(pointers + 8 * i) != byte_offset(total, width);
    total += size;
  }
  index_t before = 0;
  for (index_t d = 0; d < h.table; ++d) {
    const index_t first = load<index_t>(table + 8 * d);
    bad_table |= first < before || first > h.sequences || (d == 0 && first != 0);
    before = first;
  }
  bad_table |= before != h.sequences;
  if (bad_size) problems.push_back(idx.path() + ": a sequence has a negative size");
  if (bad_pointer)
    problems.push_back(idx.path() + ": sequences do not follow one another");
  if (bad_table) {
    problems.push_back(idx.path() +
                       ": the document table does not cover the sequences in order");
  }
  return total;
}
}  // namespace

void TokenFile::open_megatron(const std::string& prefix) {
  std::vector<std::string> problems;
  for (const char* suffix : {".idx", ".bin"}) {
    if (!std::filesystem::exists(prefix + suffix)) {
      problems.push_back(prefix + suffix + ": no such file");
    }
  }
  throw_all(problems);
  idx_ = MappedFile(prefix + ".idx");
  bin_ = MappedFile(prefix + ".bin");
  const IdxHeader header = read_header(idx_);
  type_ = header.type;
  tokens_ = check_tables(idx_, header, problems);
  const index_t bytes = byte_offset(tokens_, id_width(type_));
  if (bin_.size() != bytes) {
    problems.push_back(format("%s: %lld bytes, its index says %lld%s",
                              bin_.path().c_str(), static_cast<long long>(bin_.size()),
                              static_cast<long long>(bytes),
                              bin_.size() < bytes ? ": truncated?" : ""));
  }
  if (tokens_ == 0) problems.push_back(bin_.path() + ": holds no tokens");
  throw_all(problems);
  documents_ = header.table - 1;
  pointers_at_ = kHeader + 4 * header.sequences;
  table_at_ = pointers_at_ + 8 * header.sequences;
}

void TokenFile::open_flat() {
  bin_ = MappedFile(name_);
  const index_t width = id_width(type_);
  tokens_ = bin_.size() / width;
  std::vector<std::string> problems;
  if (bin_.size() % width != 0) {
    problems.push_back(format(
        "%s: %lld bytes are no whole number of %lld-byte ids: truncated?", name_.c_str(),
        static_cast<long long>(bin_.size()), static_cast<long long>(width)));
  }
  if (tokens_ == 0) problems.push_back(name_ + ": holds no tokens");
  throw_all(problems);
  begins_.push_back(0);
  std::vector<std::int32_t> ids(kPiece);
  for (index_t at = 0; end_of_document_ >= 0 && at < tokens_; at += kPiece) {
    const index_t n = std::min(kPiece, tokens_ - at);
    copy(at, n, ids.data());
    for (index_t i = 0; i < n; ++i) {
      if (ids[i] == end_of_document_) begins_.push_back(at + i + 1);
    }
  }
  if (begins_.back() != tokens_) begins_.push_back(tokens_);
  documents_ = static_cast<index_t>(begins_.size()) - 1;
}

index_t TokenFile::document_begin(index_t d) const {
  if (!begins_.empty()) return begins_[d];
  const index_t sequence = load<index_t>(idx_.data() + table_at_ + 8 * d);
  if (pointers_at_ + 8 * sequence == table_at_) return tokens_;
  return load<index_t>(idx_.data() + pointers_at_ + 8 * sequence) / id_width(type_);
}

void TokenFile::copy(index_t first, index_t n, std::int32_t* out) const {
  const std::byte* from = bin_.data() + byte_offset(first, id_width(type_));
  switch (type_) {
    case IdType::uint8:
      return widen<std::uint8_t>(from, n, out);
    case IdType::int8:
      return widen<std::int8_t>(from, n, out);
    case IdType::int16:
      return widen<std::int16_t>(from, n, out);
    case IdType::uint16:
      return widen<std::uint16_t>(from, n, out);
    case IdType::int32:
      return widen<std::int32_t>(from, n, out);
    case IdType::uint32:
      return widen<std::uint32_t>(from, n, out);
    case IdType::int64:
      return widen<std::int64_t>(from, n, out);
  }
}

void TokenFile::read(index_t first, index_t n, std::int32_t* out) const {
  require(first >= 0 && n >= 0 && first + n <= tokens_,
          "token file: read outside the file");
  copy(first, n, out);
  for (index_t i = 0; i < n; ++i) {
    if (out[i] < 0 || out[i] >= vocab_) {
      throw Error(Exit::file,
                  format("%s: token %lld is id %d, outside the vocabulary of %lld",
                         bin_.path().c_str(), static_cast<long long>(first + i), out[i],
                         static_cast<long long>(vocab_)));
    }
  }
}

void TokenFile::check_ids() const {
  std::vector<std::int32_t> ids(kPiece);
  index_t bad = 0, where = 0;
  std::int32_t first_bad = 0;
  each_piece(tokens_, [&](index_t first, index_t n) {
    copy(first, n, ids.data());
    for (index_t i = 0; i < n; ++i) {
      if (ids[i] >= 0 && ids[i] < vocab_) continue;
      if (bad++ == 0) {
        where = first + i;
        first_bad = ids[i];
      }
    }
  });
  if (bad == 0) return;
  throw Error(
      Exit::file,
      format("%s: %lld of the ids looked at are outside the vocabulary of %lld; the "
             "first is %d at token %lld",
             bin_.path().c_str(), static_cast<long long>(bad),
             static_cast<long long>(vocab_), first_bad, static_cast<long long>(where)));
}

std::uint64_t TokenFile::content_hash() const {
  std::uint64_t h =
      hash_bytes(&tokens_, sizeof tokens_, static_cast<std::uint64_t>(documents_));
  const index_t width = id_width(type_);
  each_piece(tokens_, [&](index_t first, index_t n) {
    h = hash_bytes(bin_.data() + byte_offset(first, width), byte_offset(n, width), h);
  });
  each_piece(documents_ + 1, [&](index_t first, index_t n) {
    for (index_t d = first; d < first + n; ++d) {
      h = mix64(h ^ static_cast<std::uint64_t>(document_begin(d)));
    }
  });
  return h;
}

}  // namespace capstan
