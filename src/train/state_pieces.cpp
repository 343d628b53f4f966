// Which pieces of the state a rank holds, and which of them it writes.
#include <algorithm>

#include "train/run.hpp"

namespace capstan {

namespace {

/// The owned rows of a tensor, under `prefix`.
template <class T>
TensorPiece slot_piece(const std::string& prefix, const ParamSlot& slot,
                       const OwnedRows& owned, const View1<T>& values) {
  const Extents shape(slot.spec.shape.begin(), slot.spec.shape.end());
  return device_piece<T>(prefix + slot.spec.name, shape, slot.row0 + owned.first,
                         owned.rows, values);
}

/// The kept norms of a tensor's owned rows: [1], or [N] for a stack of N matrices.
template <class S>
TensorPiece radius_piece(const ParamSlot& slot, const OwnedRows& owned,
                         OptimizerSlot<S>& state) {
  const bool stack = slot.spec.shape.size() > 2 && !state.shared_radius;
  const Extents shape = {stack ? slot.spec.shape[0] : 1};
  TensorPiece piece{"optimizer/radius/" + slot.spec.name,
                    Element::f64,
                    shape,
                    stack ? slot.row0 + owned.first : 0,
                    index_t(state.radius.size()),
                    {},
                    {}};
  double* radius = state.radius.data();
  piece.fetch = [radius](index_t first, index_t n, void* host) {
    std::copy_n(radius + first, n, static_cast<double*>(host));
  };
  piece.store = [radius](index_t first, index_t n, const void* host) {
    std::copy_n(static_cast<const double*>(host), n, radius + first);
  };
  return piece;
}

}  // namespace

std::string router_bias_name(index_t layer) {
  return format("params/layer_%03d/moe/router_bias", int(layer));
}

template <class S>
std::vector<TensorPiece> state_pieces(TrainState<S>& state, const Grid& grid, bool share,
                                      bool with_optimizer) {
  std::vector<TensorPiece> pieces;
  ParamStore<S>& params = state.model.params();
  // What an owner alone has it also writes alone.
  const auto add_owned = [&](const TensorPiece& piece) {
    if (piece.rows > 0) pieces.push_back(piece);
  };
  const auto add = [&](const TensorPiece& piece, bool expert, bool owned = true) {
    if (!share || (owned && params.sharded())) return add_owned(piece);
    const int part = expert ? grid.data : grid.dense_rank();
    const int parts = expert ? grid.n_data : grid.n_dense();
    const TensorPiece mine = share_of(piece, part, parts);
    if (mine.rows > 0) pieces.push_back(mine);
  };
  for (std::size_t i = 0; i < params.slots().size(); ++i) {
    const ParamSlot& slot = params.slots()[i];
    const bool expert = slot.spec.expert;
    const OwnedRows& owned = params.owned()[i];
    add(slot_piece("params/", slot, owned, params.owned_masters(i)), expert);
    if (!with_optimizer) continue;
    OptimizerSlot<S>& kept = state.optimizer.slots()[i];
    add(slot_piece("optimizer/first/", slot, owned, kept.first), expert);
    if (kept.second.extent(0) > 0)
      add(slot_piece("optimizer/second/", slot, owned, kept.second), expert);
    if (!kept.radius.empty())
      add(radius_piece(slot, owned, kept), expert && !kept.shared_radius,
          !kept.shared_radius);
  }
  const index_t experts = state.model.shape().experts;
  const LayerRange layers = state.model.stage().layers;
  for (index_t l = layers.first; l < layers.last; ++l) {
    add(device_piece<Acc<S>>(router_bias_name(l), {experts}, 0, experts,
                             state.model.routers().bias(l - layers.first)),
        false, false);
  }
  return pieces;
}

#define CAPSTAN_STATE_PIECES(S)                                                        \
  template std::vector<TensorPiece> state_pieces<S>(TrainState<S>&, const Grid&, bool, \
                                                    bool);
CAPSTAN_INSTANTIATE(CAPSTAN_STATE_PIECES)

}  // namespace capstan
