#include "train/checkpoint_index.hpp"

#include <algorithm>
#include <filesystem>
#include <set>
#include <sstream>

#include "base/error.hpp"
#include "base/hash.hpp"

namespace capstan {

namespace fs = std::filesystem;

namespace ckpt {

namespace {

constexpr std::int64_t kFormat = 1;

template <class T>
const T* attribute(const Attributes& all, const std::string& name) {
  const auto found = all.find(name);
  return found == all.end() ? nullptr : std::get_if<T>(&found->second);
}

template <class T, class F>
void put_column(H5File& file, const std::string& name, Element element,
                const std::vector<StoredPiece>& pieces, F&& value) {
  std::vector<T> column;
  for (const StoredPiece& p : pieces) column.push_back(static_cast<T>(value(p)));
  file.put(name, element, {static_cast<std::int64_t>(column.size())}, column.data());
}

template <class T>
std::vector<T> read_column(const H5File& file, const std::string& name, Element element) {
  const Extents shape = file.info(name).shape;
  std::vector<T> column(count_of(shape));
  file.read(name, element, column.data(), Extents(shape.size(), 0), shape);
  return column;
}

/// Every tensor whole, as a virtual dataset over its pieces.
void put_tensors(H5File& file, const Index& index) {
  std::vector<std::vector<H5File::Source>> sources(index.tensors.size());
  for (const StoredPiece& p : index.pieces)
    sources.at(p.tensor).push_back({shard_name(p.shard),
                                    piece_path(p.shard, index.tensors[p.tensor].name),
                                    p.row0, p.rows});
  std::vector<std::string> names;
  for (std::size_t t = 0; t < index.tensors.size(); ++t) {
    const StoredTensor& tensor = index.tensors[t];
    file.create_virtual(tensor.name, tensor.element, tensor.shape, sources[t]);
    file.set(tensor.name, "checksum", tensor.checksum);
    names.push_back(tensor.name);
  }
  file.put_texts("pieces/names", names);
}

/// Tensors whose pieces do not cover their rows once.
void coverage_problems(const Index& index, std::vector<std::string>& problems) {
  std::vector<std::vector<std::pair<index_t, index_t>>> rows(index.tensors.size());
  for (const StoredPiece& p : index.pieces)
    if (p.rows > 0) rows.at(p.tensor).push_back({p.row0, p.rows});
  for (std::size_t t = 0; t < rows.size(); ++t) {
    std::sort(rows[t].begin(), rows[t].end());
    index_t next = 0;
    for (const auto& [row0, n] : rows[t]) {
      if (row0 != next) break;
      next += n;
    }
    if (next != index.tensors[t].shape.at(0))
      problems.push_back(index.tensors[t].name + ": its pieces do not cover " +
                         text_of(index.tensors[t].shape) + " once");
  }
}

}  // namespace

index_t StoredTensor::row_bytes() const {
  index_t n = static_cast<index_t>(bytes_of(element));
  for (std::size_t a = 1; a < shape.size(); ++a) n *= shape[a];
  return n;
}

index_t Index::shards() const {
  const auto* n = attribute<std::int64_t>(attributes, "shards");
  return n == nullptr ? 0 : *n;
}

std::uint64_t Index::save_id() const {
  const auto* id = attribute<std::uint64_t>(attributes, "save_id");
  return id == nullptr ? 0 : *id;
}

std::string shard_name(index_t shard) {
  return format("shard_%05lld.h5", static_cast<long long>(shard));
}

std::string piece_path(index_t shard, const std::string& tensor) {
  return format("rank_%05lld/", static_cast<long long>(shard)) + tensor;
}

void write_index(const std::string& folder, const Index& index) {
  index_t bytes = (index_t(256) << 10) +
                  4096 * static_cast<index_t>(index.tensors.size()) +
                  512 * static_cast<index_t>(index.pieces.size());
  for (const auto& [name, value] : index.attributes)
    if (const auto* text = std::get_if<std::string>(&value))
      bytes += 2 * static_cast<index_t>(text->size());
  H5File file(folder + "/meta.h5", H5File::Mode::create, bytes);
  try {
    put_tensors(file, index);
    const auto& all = index.pieces;
    put_column<std::int32_t>(file, "pieces/tensor", Element::i32, all,
                             [](const auto& p) { return p.tensor; });
    put_column<std::int32_t>(file, "pieces/shard", Element::i32, all,
                             [](const auto& p) { return p.shard; });
    put_column<std::int64_t>(file, "pieces/row0", Element::i64, all,
                             [](const auto& p) { return p.row0; });
    put_column<std::int64_t>(file, "pieces/rows", Element::i64, all,
                             [](const auto& p) { return p.rows; });
    put_column<std::uint64_t>(file, "pieces/hash", Element::u64, all,
                              [](const auto& p) { return p.hash; });
    for (const auto& [name, value] : index.attributes) file.set("/", name, value);
    file.set("/", "format", kFormat);
    file.close();
  } catch (const Error&) {
    file.discard();
    throw;
  }
}

Index read_index(const std::string& folder) {
  if (!fs::is_directory(folder)) throw Error(Exit::file, "no such checkpoint: " + folder);
  const H5File file(folder + "/meta.h5", H5File::Mode::read);
  Index index;
  for (const std::string& name : file.attributes("/"))
    if (auto value = file.get("/", name))
      index.attributes.emplace(name, std::move(*value));
  const auto* version = attribute<std::int64_t>(index.attributes, "format");
  if (version == nullptr || !file.has("pieces/names"))
    throw Error(Exit::file, file.path() + " is not of a checkpoint of Capstan");
  if (*version != kFormat)
    throw Error(Exit::file, format("%s has format %lld; this program reads format %lld",
                                   file.path().c_str(), static_cast<long long>(*version),
                                   static_cast<long long>(kFormat)));
  for (const std::string& name : file.read_texts("pieces/names")) {
    const H5File::Info info = file.info(name);
    const auto checksum = file.get(name, "checksum");
    const auto* sum = checksum ? std::get_if<std::uint64_t>(&*checksum) : nullptr;
    if (sum == nullptr || info.shape.empty())
      throw Error(Exit::file, file.path() + ": tensor " + name + " is damaged");
    index.tensors.push_back({name, info.element, info.shape, *sum});
  }
  const auto tensor = read_column<std::int32_t>(file, "pieces/tensor", Element::i32);
  const auto shard = read_column<std::int32_t>(file, "pieces/shard", Element::i32);
  const auto row0 = read_column<std::int64_t>(file, "pieces/row0", Element::i64);
  const auto rows = read_column<std::int64_t>(file, "pieces/rows", Element::i64);
  const auto hash = read_column<std::uint64_t>(file, "pieces/hash", Element::u64);
  if (std::set<std::size_t>{tensor.size(), shard.size(), row0.size(), rows.size(),
                            hash.size()}
          .size() != 1)
    throw Error(Exit::file, file.path() + ": the table of pieces is damaged");
  for (std::size_t i = 0; i < tensor.size(); ++i) {
    if (tensor[i] < 0 || tensor[i] >= static_cast<std::int32_t>(index.tensors.size()) ||
        shard[i] < 0 || shard[i] >= index.shards())
      throw Error(Exit::file, file.path() + ": the table of pieces is damaged");
    index.pieces.push_back({tensor[i], shard[i], row0[i], rows[i], hash[i]});
  }
  return index;
}

std::vector<std::string> structure_problems(const std::string& folder,
                                            const Index& index) {
  std::vector<std::string> problems;
  coverage_problems(index, problems);
  std::set<std::string> expected = {"meta.h5"};
  for (index_t s = 0; s < index.shards(); ++s) {
    expected.insert(shard_name(s));
    try {
      open_shard(folder, index, s);
    } catch (const Error& e) {
      problems.push_back(e.what());
    }
  }
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (entry.path().extension() == ".h5" && expected.count(name) == 0)
      problems.push_back("extra file: " + entry.path().string());
  }
  return problems;
}

H5File open_shard(const std::string& folder, const Index& index, index_t shard) {
  H5File file(folder + "/" + shard_name(shard), H5File::Mode::read);
  const auto id = file.get("/", "save_id");
  const auto* mark = id ? std::get_if<std::uint64_t>(&*id) : nullptr;
  if (mark == nullptr || *mark != index.save_id())
    throw Error(Exit::file, "foreign file, from another save: " + file.path());
  return file;
}

index_t block_rows(index_t row_bytes) {
  return std::max<index_t>(1, kBlockBytes / std::max<index_t>(1, row_bytes));
}

void PieceHash::add(const void* block, index_t bytes) {
  hash_ = hash_bytes(block, static_cast<std::size_t>(bytes), hash_);
}

void stream_piece(const H5File& shard, const Index& index, const StoredPiece& piece,
                  std::vector<char>& buffer, const Visit& visit) {
  const StoredTensor& tensor = index.tensors[piece.tensor];
  const std::string path = piece_path(piece.shard, tensor.name);
  Extents shape = tensor.shape;
  shape[0] = piece.rows;
  if (!shard.has(path))
    throw Error(Exit::file, "missing: " + tensor.name + " in " + shard.path());
  const H5File::Info info = shard.info(path);
  if (info.shape != shape || info.element != tensor.element)
    throw Error(Exit::file, "mis-shaped: " + tensor.name + " in " + shard.path() +
                                " is " + name_of(info.element) + " " +
                                text_of(info.shape) + ", expected " +
                                name_of(tensor.element) + " " + text_of(shape));
  PieceHash hash;
  const index_t most = block_rows(tensor.row_bytes());
  for (index_t first = 0; first < piece.rows; first += most) {
    Extents start(shape.size(), 0), count = shape;
    start[0] = first;
    count[0] = std::min(most, piece.rows - first);
    const index_t bytes = count[0] * tensor.row_bytes();
    if (static_cast<index_t>(buffer.size()) < bytes) buffer.resize(bytes);
    shard.read(path, tensor.element, buffer.data(), start, count);
    hash.add(buffer.data(), bytes);
    visit(first, count[0], buffer.data());
  }
  if (piece.rows > 0 && hash.value() != piece.hash)
    throw Error(Exit::file,
                "corrupt (hash differs): " + tensor.name + " in " + shard.path());
}

std::string join(const std::vector<std::string>& lines, const char* between) {
  std::string text;
  for (std::size_t i = 0; i < lines.size(); ++i)
    text += (i == 0 ? "" : between) + lines[i];
  return text;
}

std::vector<std::string> split_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::vector<std::string> agree(const std::vector<std::string>& lines, const Comm& world) {
  std::vector<std::string> all;
  std::set<std::string> seen;
  for (const std::string& text : world.gather_texts(join(lines, "\n")))
    for (const std::string& line : split_lines(text))
      if (seen.insert(line).second) all.push_back(line);
  return split_lines(world.broadcast_text(join(all, "\n"), 0));
}

std::uint64_t combine(const std::map<std::string, std::uint64_t>& checksums) {
  std::uint64_t hash = 0;
  for (const auto& [name, sum] : checksums)
    hash = mix64(hash ^ mix64(sum ^ hash_bytes(name.data(), name.size())));
  return hash;
}

}  // namespace ckpt

index_t TensorPiece::row_size() const {
  index_t n = 1;
  for (std::size_t a = 1; a < shape.size(); ++a) n *= shape[a];
  return n;
}

TensorPiece share_of(const TensorPiece& piece, int part, int parts) {
  TensorPiece share = piece;
  const index_t first = piece.rows * part / parts;
  share.row0 = piece.row0 + first;
  share.rows = piece.rows * (part + 1) / parts - first;
  share.fetch = [fetch = piece.fetch, first](index_t at, index_t n, void* host) {
    fetch(first + at, n, host);
  };
  share.store = [store = piece.store, first](index_t at, index_t n, const void* host) {
    store(first + at, n, host);
  };
  return share;
}

index_t CheckpointInfo::integer(const std::string& name) const {
  if (const auto* x = ckpt::attribute<std::int64_t>(attributes, name)) return *x;
  throw Error(Exit::file, path + " has no integer " + name);
}

double CheckpointInfo::real(const std::string& name) const {
  if (const auto* x = ckpt::attribute<double>(attributes, name)) return *x;
  throw Error(Exit::file, path + " has no number " + name);
}

std::string CheckpointInfo::text(const std::string& name) const {
  if (const auto* x = ckpt::attribute<std::string>(attributes, name)) return *x;
  throw Error(Exit::file, path + " has no text " + name);
}

CheckpointInfo read_checkpoint_info(const std::string& path) {
  return {path, ckpt::read_index(path).attributes};
}

std::vector<std::string> list_checkpoints(const std::string& folder) {
  std::vector<std::string> found;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none)) {
    const std::string name = entry.path().filename().string();
    const bool digits = name.find_first_not_of("0123456789", 5) == std::string::npos;
    if (name.rfind("step_", 0) == 0 && name.size() >= 13 && digits) found.push_back(name);
  }
  // Longer numbers are greater: steps beyond 99999999 have more digits.
  std::sort(found.begin(), found.end(), [](const std::string& a, const std::string& b) {
    return a.size() != b.size() ? a.size() > b.size() : a > b;
  });
  for (std::string& name : found) name = folder + "/" + name;
  return found;
}

}  // namespace capstan
