#pragma once
/// \file Checkpoints: sharded HDF5 that any grid reads from any grid. The layout is
/// described in postprocess/README.
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "comm/comm.hpp"
#include "io/file.hpp"

namespace capstan {

using Attributes = std::map<std::string, Attribute>;

/// Rows [row0, row0 + rows) of axis 0 of a tensor, and how they get from and to host
/// memory: `first` and `n` count rows of the piece; the buffer holds n rows.
struct TensorPiece {
  std::string name;  ///< path in the files: params/<tensor>, optimizer/<slot>/<tensor>
  Element element = Element::f32;
  Extents shape;  ///< of the whole tensor, one axis at least
  index_t row0 = 0, rows = 0;
  std::function<void(index_t first, index_t n, void* host)> fetch;
  std::function<void(index_t first, index_t n, const void* host)> store;
  index_t row_size() const;  ///< elements of one row
};

template <class T>
constexpr Element element_of() {
  if constexpr (std::is_same_v<T, double>) return Element::f64;
  if constexpr (std::is_same_v<T, float>) return Element::f32;
  if constexpr (std::is_same_v<T, bf16>) return Element::bf16;
  if constexpr (std::is_same_v<T, std::int64_t>) return Element::i64;
  if constexpr (std::is_same_v<T, std::int32_t>) return Element::i32;
}

/// A piece that lies in device memory, rows x row_size elements.
template <class T>
TensorPiece device_piece(const std::string& name, const Extents& shape, index_t row0,
                         index_t rows, const View1<T>& values) {
  TensorPiece piece{name, element_of<T>(), shape, row0, rows, {}, {}};
  const index_t size = piece.row_size();
  piece.fetch = [values, size](index_t first, index_t n, void* host) {
    copy_to_host<T>(values.data() + first * size, static_cast<T*>(host), n * size);
  };
  piece.store = [values, size](index_t first, index_t n, const void* host) {
    copy_to_device<T>(static_cast<const T*>(host), values.data() + first * size,
                      n * size);
  };
  return piece;
}

/// The part-th of `parts` shares of a piece's rows: what one of several replicas writes.
TensorPiece share_of(const TensorPiece& piece, int part, int parts);

struct SaveOptions {
  std::string folder;      ///< RUN/ckpt
  index_t keep_last = 2;   ///< newest checkpoints that are kept
  index_t keep_every = 0;  ///< and each so many-th for ever; 0 = none
};

struct SaveResult {
  bool ok = false;
  std::string path;     ///< of the complete checkpoint
  std::string problem;  ///< why there is none
  index_t bytes = 0;    ///< of all ranks' pieces
  std::uint64_t state_hash = 0;
};

/// Writes folder/step_NNNNNNNN. Collective. `pieces` of all ranks cover every tensor
/// once. The attributes (counters, deck, grid, versions) are rank 0's. A failure of any
/// rank (full disk) leaves nothing behind, is the same result on all ranks, and is no
/// Error: training goes on.
SaveResult save_checkpoint(const SaveOptions& options, index_t step,
                           const std::vector<TensorPiece>& pieces,
                           const Attributes& attributes, const Comm& world);

/// What a checkpoint says about itself.
struct CheckpointInfo {
  std::string path;
  Attributes attributes;
  index_t integer(const std::string& name) const;
  double real(const std::string& name) const;
  std::string text(const std::string& name) const;
  std::vector<std::int64_t> integers(const std::string& name) const;
};

/// Attributes only. Error(Exit::file).
CheckpointInfo read_checkpoint_info(const std::string& path);
/// Complete checkpoints of a folder (by name), newest first; empty when there is no such
/// folder.
std::vector<std::string> list_checkpoints(const std::string& folder);
/// The order in which "latest" tries them: the one that folder/latest names, then the
/// newest first.
std::vector<std::string> latest_checkpoints(const std::string& folder);
/// Attributes of checkpoint `which`, or for "latest" of the first in that order that has
/// readable ones. Error(Exit::file) when there is none.
CheckpointInfo readable_checkpoint(const std::string& which, const std::string& folder);

struct LoadOptions {
  bool only_wanted =
      false;              ///< tensors of the checkpoint that nobody wants are no problem
  bool check_all = true;  ///< also check the hashes of pieces that no rank reads whole
};

/// Fills every wanted piece (any split, replicas allowed) and checks hashes. Collective.
/// Error(Exit::file) on all ranks, listing all problems; the pieces' values are undefined
/// then.
CheckpointInfo load_checkpoint(const std::string& path,
                               const std::vector<TensorPiece>& wanted, const Comm& world,
                               const LoadOptions& options = {});
/// The one that folder/latest names; when that is missing or damaged, the newest that is
/// not, with warnings. Error(Exit::file) when there is none.
CheckpointInfo load_latest(const std::string& folder,
                           const std::vector<TensorPiece>& wanted, const Comm& world,
                           Log& log, const LoadOptions& options = {});

/// Problems of a checkpoint, all hashes and checksums included; none when it is intact.
/// Collective.
std::vector<std::string> verify_checkpoint(const std::string& path, const Comm& world);

/// One number for the values of all tensors, whatever the grid. Pieces as in
/// save_checkpoint.
std::uint64_t state_hash(const std::vector<TensorPiece>& pieces, const Comm& world);

}  // namespace capstan
