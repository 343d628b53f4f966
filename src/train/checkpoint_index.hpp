#pragma once
/// \file Inside of checkpoints: the index in meta.h5, shards, hashes of pieces, agreement
/// of ranks.
#include "train/checkpoint.hpp"

namespace capstan::ckpt {

/// The attribute of that name and type, or null.
template <class T>
const T* value_of(const Attributes& all, const std::string& name) {
  const auto found = all.find(name);
  return found == all.end() ? nullptr : std::get_if<T>(&found->second);
}

struct StoredTensor {
  std::string name;
  Element element = Element::f32;
  Extents shape;
  std::uint64_t checksum = 0;  ///< hash_indexed over all elements
  index_t row_bytes() const;
};

struct StoredPiece {
  index_t tensor = 0;  ///< index of its tensor
  index_t shard = 0;
  index_t row0 = 0, rows = 0;
  std::uint64_t hash = 0;  ///< PieceHash of its bytes
};

/// What meta.h5 says.
struct Index {
  Attributes attributes;
  std::vector<StoredTensor> tensors;
  std::vector<StoredPiece> pieces;
  index_t shards() const;
  /// Marks the files of one save, so that files of another are told apart.
  std::uint64_t save_id() const;
};

std::string shard_name(index_t shard);
/// Path of a tensor's piece in a shard.
std::string piece_path(index_t shard, const std::string& tensor);

/// Writes folder/meta.h5 with virtual datasets over the shards. Error(Exit::file).
void write_index(const std::string& folder, const Index& index);
/// Error(Exit::file) when meta.h5 is missing, damaged or foreign.
Index read_index(const std::string& folder);
/// Tensors whose pieces overlap or leave gaps; shards that are missing or foreign; extra
/// files.
std::vector<std::string> structure_problems(const std::string& folder,
                                            const Index& index);

/// Pieces are read, written and hashed in blocks of as many rows as fit into this.
inline constexpr index_t kBlockBytes = index_t(64) << 20;
index_t block_rows(index_t row_bytes);

/// Hash of a piece: hash_bytes of its blocks, each with the hash before as seed. (A piece
/// of one block has the plain hash_bytes.)
class PieceHash {
 public:
  void add(const void* block, index_t bytes);
  std::uint64_t value() const { return hash_; }

 private:
  std::uint64_t hash_ = 0;
};

/// Opens a shard of this checkpoint. Error(Exit::file) when it is missing, damaged or
/// foreign.
H5File open_shard(const std::string& folder, const Index& index, index_t shard);
/// Gives the piece's blocks in order to `visit(first_row, rows, data)`, first_row within
/// the piece. Error(Exit::file) when the dataset is missing, of another shape, or its
/// hash differs.
using Visit = std::function<void(index_t first, index_t rows, const char* data)>;
void stream_piece(const H5File& shard, const Index& index, const StoredPiece& piece,
                  std::vector<char>& buffer, const Visit& visit);

/// Lines of all ranks, each once, the same on all ranks. Collective.
std::vector<std::string> agree(const std::vector<std::string>& lines, const Comm& world);
std::string join(const std::vector<std::string>& lines, const char* between);
std::vector<std::string> split_lines(const std::string& text);

/// From the names and checksums of all tensors, in any order.
std::uint64_t combine(const std::map<std::string, std::uint64_t>& checksums);

}  // namespace capstan::ckpt
