#include "train/checkpoint.hpp"

#include <algorithm>
#include <filesystem>
#include <set>
#include <sstream>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "io/publish.hpp"
#include "train/checkpoint_index.hpp"

namespace capstan {

namespace fs = std::filesystem;

namespace ckpt {

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
  if (const auto* x = ckpt::value_of<std::int64_t>(attributes, name)) return *x;
  throw Error(Exit::file, path + " has no integer " + name);
}

double CheckpointInfo::real(const std::string& name) const {
  if (const auto* x = ckpt::value_of<double>(attributes, name)) return *x;
  throw Error(Exit::file, path + " has no number " + name);
}

std::string CheckpointInfo::text(const std::string& name) const {
  if (const auto* x = ckpt::value_of<std::string>(attributes, name)) return *x;
  throw Error(Exit::file, path + " has no text " + name);
}

std::vector<std::int64_t> CheckpointInfo::integers(const std::string& name) const {
  if (const auto* x = ckpt::value_of<std::vector<std::int64_t>>(attributes, name))
    return *x;
  throw Error(Exit::file, path + " has no integers " + name);
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

std::vector<std::string> latest_checkpoints(const std::string& folder) {
  std::vector<std::string> choices = list_checkpoints(folder);
  if (!fs::exists(folder + "/latest")) return choices;
  std::string name = read_text(folder + "/latest");
  name.resize(name.find_last_not_of(" \n") + 1);
  const std::string named = folder + "/" + name;
  choices.erase(std::remove(choices.begin(), choices.end(), named), choices.end());
  choices.insert(choices.begin(), named);
  return choices;
}

CheckpointInfo readable_checkpoint(const std::string& which, const std::string& folder) {
  if (which != "latest") return read_checkpoint_info(which);
  std::string problems;
  for (const std::string& path : latest_checkpoints(folder)) {
    try {
      return read_checkpoint_info(path);
    } catch (const Error& error) {
      problems += std::string("\n  ") + error.what();
    }
  }
  throw Error(Exit::file, problems.empty()
                              ? "no complete checkpoint in " + folder
                              : "no usable checkpoint in " + folder + ":" + problems);
}

}  // namespace capstan
