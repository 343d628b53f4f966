// Which pieces of the state a rank holds, and which of them it writes.
#include "train/run.hpp"

namespace capstan {

namespace {

/// A tensor of the parameters' layout in one flat buffer, under `prefix`.
template <class T>
TensorPiece slot_piece(const std::string& prefix, const ParamSlot& slot,
                       const View1<T>& values) {
  const Extents shape(slot.spec.shape.begin(), slot.spec.shape.end());
  return device_piece<T>(prefix + slot.spec.name, shape, slot.row0, slot.rows, values);
}

}  // namespace

template <class S>
std::vector<TensorPiece> state_pieces(TrainState<S>& state, const Grid& grid, bool share,
                                      bool with_optimizer) {
  std::vector<TensorPiece> pieces;
  ParamStore<S>& params = state.model.params();
  const auto add = [&](const TensorPiece& piece, bool expert) {
    if (!share) {
      pieces.push_back(piece);
      return;
    }
    const int part = expert ? grid.data : grid.dense_rank();
    const int parts = expert ? grid.n_data : grid.n_dense();
    const TensorPiece mine = share_of(piece, part, parts);
    if (mine.rows > 0) pieces.push_back(mine);
  };
  for (const ParamSlot& slot : params.slots()) {
    const bool expert = slot.spec.expert;
    add(slot_piece("params/", slot, params.part(params.masters(), slot)), expert);
    if (!with_optimizer) continue;
    add(slot_piece("optimizer/first/", slot, params.part(state.optimizer.first(), slot)),
        expert);
    add(slot_piece("optimizer/second/", slot,
                   params.part(state.optimizer.second(), slot)),
        expert);
  }
  const ModelShape& shape = state.model.shape();
  for (index_t l = 0; l < shape.layers; ++l) {
    add(device_piece<Acc<S>>(format("params/layer_%03d/moe/router_bias", int(l)),
                             {shape.experts}, 0, shape.experts,
                             state.model.routers().bias(l)),
        false);
  }
  return pieces;
}

#define CAPSTAN_STATE_PIECES(S)                                                        \
  template std::vector<TensorPiece> state_pieces<S>(TrainState<S>&, const Grid&, bool, \
                                                    bool);
CAPSTAN_INSTANTIATE(CAPSTAN_STATE_PIECES)

}  // namespace capstan
