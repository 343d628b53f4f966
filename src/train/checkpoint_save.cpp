#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <sstream>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "io/publish.hpp"
#include "train/checkpoint_index.hpp"

namespace capstan {

namespace fs = std::filesystem;
using namespace ckpt;

namespace {

/// What one rank wrote, as rank 0 hears of it.
struct Written {
  TensorPiece piece;  ///< name, element, shape, rows
  std::uint64_t hash = 0, checksum = 0;
};

std::string line_of(const Written& w) {
  std::ostringstream out;
  out << w.piece.name << ' ' << static_cast<int>(w.piece.element) << ' ' << w.piece.row0
      << ' ' << w.piece.rows << ' ' << w.hash << ' ' << w.checksum;
  for (const index_t extent : w.piece.shape) out << ' ' << extent;
  return out.str();
}

Written written_of(const std::string& line) {
  Written w;
  int element = 0;
  std::istringstream in(line);
  in >> w.piece.name >> element >> w.piece.row0 >> w.piece.rows >> w.hash >> w.checksum;
  w.piece.element = static_cast<Element>(element);
  for (index_t extent; in >> extent;) w.piece.shape.push_back(extent);
  return w;
}

/// Gives the piece's blocks to `visit(first_row, rows, data)`.
void fetch_blocks(const TensorPiece& piece, std::vector<char>& buffer,
                  const Visit& visit) {
  const index_t row_bytes =
      piece.row_size() * static_cast<index_t>(bytes_of(piece.element));
  const index_t most = block_rows(row_bytes);
  for (index_t first = 0; first < piece.rows; first += most) {
    const index_t n = std::min(most, piece.rows - first);
    if (static_cast<index_t>(buffer.size()) < n * row_bytes) buffer.resize(n * row_bytes);
    piece.fetch(first, n, buffer.data());
    visit(first, n, buffer.data());
  }
}

/// hash_indexed of rows of the piece that lie at `data`.
std::uint64_t checksum_of(const TensorPiece& piece, index_t first, index_t n,
                          const char* data) {
  const index_t size = piece.row_size();
  return hash_indexed(data, n * size, static_cast<int>(bytes_of(piece.element)),
                      (piece.row0 + first) * size);
}

Written write_piece(H5File& file, index_t rank, const TensorPiece& piece,
                    std::vector<char>& buffer) {
  const std::string path = piece_path(rank, piece.name);
  Extents shape = piece.shape, offset(shape.size(), 0);
  shape.at(0) = piece.rows;
  offset[0] = piece.row0;
  file.create(path, piece.element, shape);
  Written w{piece, 0, 0};
  PieceHash hash;
  fetch_blocks(piece, buffer, [&](index_t first, index_t n, const char* data) {
    Extents start(shape.size(), 0), count = shape;
    start[0] = first;
    count[0] = n;
    file.write(path, piece.element, data, start, count);
    hash.add(data, n * piece.row_size() * static_cast<index_t>(bytes_of(piece.element)));
    w.checksum += checksum_of(piece, first, n, data);
  });
  w.hash = hash.value();
  file.set(path, "offset", offset);
  file.set(path, "shape", piece.shape);
  file.set(path, "hash", w.hash);
  return w;
}

/// This rank's shard, on the disk when it returns. Error(Exit::file) leaves an empty
/// file.
std::vector<Written> write_shard(const std::string& folder, index_t rank, index_t step,
                                 std::uint64_t save_id,
                                 const std::vector<TensorPiece>& pieces) {
  index_t bytes = index_t(64) << 10;
  for (const TensorPiece& p : pieces)
    bytes += p.rows * p.row_size() * static_cast<index_t>(bytes_of(p.element)) + 4096;
  H5File file(folder + "/" + shard_name(rank), H5File::Mode::create, bytes);
  try {
    file.set("/", "step", step);
    file.set("/", "rank", rank);
    file.set("/", "save_id", save_id);
    std::vector<Written> all;
    std::vector<char> buffer;
    for (const TensorPiece& piece : pieces)
      if (piece.rows > 0) all.push_back(write_piece(file, rank, piece, buffer));
    file.close();
    sync_path(file.path());
    return all;
  } catch (const std::exception&) {
    file.discard();
    throw;
  }
}

/// Adds what a rank wrote to the index.
void enter(const Written& w, index_t rank, Index& index,
           std::map<std::string, index_t>& known) {
  const auto [at, fresh] =
      known.emplace(w.piece.name, static_cast<index_t>(index.tensors.size()));
  if (fresh) index.tensors.push_back({w.piece.name, w.piece.element, w.piece.shape, 0});
  StoredTensor& tensor = index.tensors[at->second];
  if (tensor.shape != w.piece.shape || tensor.element != w.piece.element)
    throw Error(Exit::internal, "ranks disagree about the shape of " + w.piece.name);
  tensor.checksum += w.checksum;
  index.pieces.push_back({at->second, rank, w.piece.row0, w.piece.rows, w.hash});
}

/// The number of a new save: one more than the newest checkpoint has.
index_t next_number(const std::string& folder) {
  for (const std::string& path : list_checkpoints(folder)) try {
      return read_checkpoint_info(path).integer("save_number") + 1;
    } catch (const Error&) {  // damaged: look at the one before
    }
  return 1;
}

/// Puts the complete folder in its place. One of the same step that was there is
/// exchanged in one move and then removed.
void put_in_place(const std::string& path) {
  const std::string part = path + kPart;
  if (fs::exists(path)) {
    if (::renameat2(AT_FDCWD, part.c_str(), AT_FDCWD, path.c_str(), RENAME_EXCHANGE) ==
        0) {
      sync_path(parent_of(path));
      fs::remove_all(part);
      return;
    }
    fs::remove_all(path);
  }
  publish(path);
}

void remove_old(const SaveOptions& options) {
  const auto all = list_checkpoints(options.folder);
  for (std::size_t i = static_cast<std::size_t>(options.keep_last); i < all.size(); ++i) {
    index_t number = 0;
    try {
      number = read_checkpoint_info(all[i]).integer("save_number");
    } catch (const Error&) {  // damaged: not worth keeping
    }
    if (options.keep_every > 0 && number > 0 && number % options.keep_every == 0)
      continue;
    // The name goes first, so that a half-removed folder is never taken for a checkpoint.
    fs::rename(all[i], all[i] + kPart);
    fs::remove_all(all[i] + kPart);
  }
}

void remove_parts(const std::string& folder) {
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.is_directory() && entry.path().extension() == kPart)
      fs::remove_all(entry.path());
}

/// Rank 0's last part: index, sync, publish, latest, old ones.
void complete(const SaveOptions& options, const std::string& path, Index& index,
              const std::vector<std::string>& reports, SaveResult& result) {
  std::map<std::string, index_t> known;
  for (std::size_t r = 0; r < reports.size(); ++r)
    for (const std::string& line : split_lines(reports[r]))
      enter(written_of(line), static_cast<index_t>(r), index, known);
  std::map<std::string, std::uint64_t> checksums;
  for (const StoredTensor& t : index.tensors) checksums[t.name] = t.checksum;
  for (const StoredPiece& p : index.pieces)
    result.bytes += p.rows * index.tensors[p.tensor].row_bytes();
  result.state_hash = combine(checksums);
  index.attributes["state_hash"] = hex(result.state_hash);
  index.attributes["save_number"] = next_number(options.folder);
  write_index(path + kPart, index);
  sync_path(path + kPart + "/meta.h5");
  const auto problems = structure_problems(path + kPart, index);
  if (!problems.empty()) throw Error(Exit::file, join(problems, "; "));
  sync_path(path + kPart);
  put_in_place(path);
  publish_text(options.folder + "/latest", fs::path(path).filename().string() + "\n");
  remove_old(options);
}

/// f(), or the text of what it threw.
template <class F>
std::vector<std::string> problem_of(const F& f) {
  try {
    f();
    return {};
  } catch (const std::exception& e) {
    return {e.what()};
  }
}

std::uint64_t new_save_id(index_t step) {
  const auto now = std::chrono::system_clock::now().time_since_epoch().count();
  return mix64(mix64(static_cast<std::uint64_t>(now)) ^
               static_cast<std::uint64_t>(::getpid()) ^ static_cast<std::uint64_t>(step));
}

}  // namespace

SaveResult save_checkpoint(const SaveOptions& options, index_t step,
                           const std::vector<TensorPiece>& pieces,
                           const Attributes& attributes, const Comm& world) {
  const bool first = world.rank() == 0;
  const std::string path =
      options.folder + format("/step_%08lld", static_cast<long long>(step));
  std::uint64_t save_id = new_save_id(step);
  world.broadcast_host(&save_id, 1, 0);
  auto problems = agree(problem_of([&] {
                          if (!first) return;
                          make_folders(options.folder);
                          remove_parts(options.folder);
                          make_folders(path + kPart);
                        }),
                        world);
  std::vector<std::string> lines;
  if (problems.empty()) {
    problems = agree(problem_of([&] {
                       for (const Written& w : write_shard(path + kPart, world.rank(),
                                                           step, save_id, pieces))
                         lines.push_back(line_of(w));
                     }),
                     world);
  }
  SaveResult result;
  if (problems.empty()) {
    const auto reports = world.gather_texts(join(lines, "\n"));
    Index index{attributes, {}, {}};
    index.attributes["step"] = step;
    index.attributes["shards"] = std::int64_t(world.size());
    index.attributes["save_id"] = save_id;
    problems = agree(problem_of([&] {
                       if (first) complete(options, path, index, reports, result);
                     }),
                     world);
  }
  if (first && !problems.empty()) {
    std::error_code ignored;
    fs::remove_all(path + kPart, ignored);
  }
  world.broadcast_host(&result.bytes, 1, 0);
  world.broadcast_host(&result.state_hash, 1, 0);
  result.ok = problems.empty();
  result.path = path;
  result.problem = join(problems, "; ");
  return result;
}

std::uint64_t state_hash(const std::vector<TensorPiece>& pieces, const Comm& world) {
  std::vector<std::string> lines;
  std::vector<char> buffer;
  for (const TensorPiece& piece : pieces) {
    Written w{piece, 0, 0};
    fetch_blocks(piece, buffer, [&](index_t first, index_t n, const char* data) {
      w.checksum += checksum_of(piece, first, n, data);
    });
    lines.push_back(line_of(w));
  }
  std::map<std::string, std::uint64_t> checksums;
  for (const std::string& text : world.gather_texts(join(lines, "\n")))
    for (const std::string& line : split_lines(text)) {
      const Written w = written_of(line);
      checksums[w.piece.name] += w.checksum;
    }
  std::uint64_t hash = combine(checksums);
  world.broadcast_host(&hash, 1, 0);
  return hash;
}

}  // namespace capstan
