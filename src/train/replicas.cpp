#include "train/replicas.hpp"

#include "base/hash.hpp"
#include "train/checkpoint_index.hpp"

namespace capstan {

namespace {

std::uint64_t hash_of(const TensorPiece& piece, std::vector<char>& buffer) {
  const index_t row_bytes = piece.row_size() * index_t(bytes_of(piece.element));
  const index_t most = ckpt::block_rows(row_bytes);
  std::uint64_t hash = 0;
  for (index_t first = 0; first < piece.rows; first += most) {
    const index_t n = std::min(most, piece.rows - first);
    buffer.resize(static_cast<std::size_t>(n * row_bytes));
    piece.fetch(first, n, buffer.data());
    hash = hash_bytes(buffer.data(), buffer.size(), hash);
  }
  return hash;
}

/// Adds the names of pieces whose hashes are not the same on all ranks of `group`.
void compare(const std::vector<const TensorPiece*>& pieces, const Comm& group,
             std::vector<std::string>& names) {
  if (group.size() == 1 || pieces.empty()) return;
  std::vector<char> buffer;
  std::vector<std::uint64_t> least;
  for (const TensorPiece* piece : pieces) least.push_back(hash_of(*piece, buffer));
  std::vector<std::uint64_t> most = least;
  const auto n = static_cast<index_t>(least.size());
  group.all_reduce_host(least.data(), n, Reduce::min);
  group.all_reduce_host(most.data(), n, Reduce::max);
  for (std::size_t i = 0; i < least.size(); ++i)
    if (least[i] != most[i]) names.push_back(pieces[i]->name);
}

}  // namespace

template <class S>
std::vector<std::string> differing_replicas(TrainState<S>& state, const Grid& grid) {
  const std::vector<TensorPiece> pieces = state_pieces(state, grid, false, true);
  // A rank that holds a part of a tensor's rows shares them with the ranks of its expert
  // index; what it holds whole, everyone has.
  std::vector<const TensorPiece*> whole, parts;
  for (const TensorPiece& piece : pieces)
    (piece.rows == piece.shape.at(0) ? whole : parts).push_back(&piece);
  std::vector<std::string> names;
  compare(whole, grid.dense, names);
  compare(parts, grid.replicas, names);
  return ckpt::agree(names, grid.world);
}

#define CAPSTAN_REPLICAS(S) \
  template std::vector<std::string> differing_replicas<S>(TrainState<S>&, const Grid&);
CAPSTAN_INSTANTIATE(CAPSTAN_REPLICAS)

}  // namespace capstan
