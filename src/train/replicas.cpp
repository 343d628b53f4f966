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

/// Everything that several ranks hold: with sharded state the weights, which the owners'
/// masters became, and else all of the state.
template <class S>
std::vector<TensorPiece> replicated_pieces(TrainState<S>& state, const Grid& grid) {
  if (!state.model.params().sharded()) return state_pieces(state, grid, false, true);
  const ParamStore<S>& params = state.model.params();
  std::vector<TensorPiece> pieces;
  for (const ParamSlot& slot : params.slots()) {
    const Extents shape(slot.spec.shape.begin(), slot.spec.shape.end());
    pieces.push_back(device_piece<S>("params/" + slot.spec.name, shape, slot.row0,
                                     slot.rows, params.part(params.weights(), slot)));
  }
  const index_t experts = state.model.shape().experts;
  const LayerRange layers = state.model.stage().layers;
  for (index_t l = layers.first; l < layers.last; ++l)
    pieces.push_back(device_piece<Acc<S>>(router_bias_name(l), {experts}, 0, experts,
                                          state.model.routers().bias(l - layers.first)));
  return pieces;
}

}  // namespace

template <class S>
std::vector<std::string> differing_replicas(TrainState<S>& state, const Grid& grid) {
  const std::vector<TensorPiece> pieces = replicated_pieces(state, grid);
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
