#pragma once
/// \file Which part of the model a pipeline stage has: a contiguous part of the layers,
/// the embedding in front of the first and the head behind the last.
#include <vector>

#include "comm/grid.hpp"
#include "model/param_list.hpp"

namespace capstan {

struct Stage {
  LayerRange layers;
  bool first = true, last = true;  ///< has the embedding; has final norm and head
  bool holds(const ParamSpec& spec) const;
};

/// Relative cost of training on a token: of each layer [L], with what recomputing adds,
/// of the embedding and of the head.
struct StageCosts {
  std::vector<double> layer;
  double embedding = 0, head = 0;
};
StageCosts stage_costs(const ModelShape& shape);

/// The layers of every stage: grid/layers_per_stage, else the split whose dearest stage
/// costs least, and of those the one with the least sum of squares. Each stage has one
/// layer at least. Error(Exit::deck) where there are fewer layers than stages, or the
/// list does not fit.
std::vector<LayerRange> split_layers(const ModelShape& shape, index_t stages);
/// The same from costs alone.
std::vector<LayerRange> balanced_split(const StageCosts& costs, index_t stages);

Stage stage_of(const ModelShape& shape, index_t stages, index_t stage);
inline Stage stage_of(const ModelShape& shape, const Grid& grid) {
  return stage_of(shape, grid.n_pipe, grid.pipe);
}

}  // namespace capstan
