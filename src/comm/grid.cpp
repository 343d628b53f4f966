#include "comm/grid.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/log.hpp"

namespace capstan {

namespace {

/// Up to three grids that use `ranks` ranks, nearest to the wanted one first. More than
/// one stage is proposed only to who wanted that.
std::string nearest_grids(int ranks, int n_pipe, int n_data, int n_expert) {
  struct Choice {
    double distance;
    int pipe, data, expert;
  };
  const auto away = [](int have, int wanted) {
    return std::abs(std::log(double(have) / std::max(1, wanted)));
  };
  std::vector<Choice> all;
  for (int pipe = 1; pipe <= (n_pipe > 1 ? ranks : 1); ++pipe) {
    for (int data = 1; ranks % pipe == 0 && data <= ranks / pipe; ++data) {
      const int expert = ranks / pipe / data;
      if (pipe * data * expert != ranks) continue;
      const double d = away(pipe, n_pipe) + away(data, n_data) + away(expert, n_expert);
      all.push_back({d, pipe, data, expert});
    }
  }
  std::stable_sort(all.begin(), all.end(), [](const Choice& a, const Choice& b) {
    return a.distance < b.distance;
  });
  std::string text;
  for (std::size_t i = 0; i < all.size() && i < 3; ++i) {
    text += i == 0 ? "" : "; ";
    if (n_pipe > 1) text += format("pipe = %d, ", all[i].pipe);
    text += format("data = %d, expert = %d", all[i].data, all[i].expert);
  }
  return text;
}

void check_axes(int ranks, int n_pipe, int n_data, int n_expert) {
  const auto product = static_cast<long long>(n_pipe) * n_data * n_expert;
  if (n_pipe >= 1 && n_data >= 1 && n_expert >= 1 && product == ranks) return;
  throw Error(
      Exit::deck,
      format(
          "<grid> pipe = %d, data = %d, expert = %d is a grid of %lld ranks, but there "
          "%s %d; nearest: ",
          n_pipe, n_data, n_expert, product, ranks == 1 ? "is" : "are", ranks) +
          nearest_grids(ranks, n_pipe, n_data, n_expert));
}

/// The edges of stages 0-1, 2-3, ... are split off at once, then those of 1-2, 3-4, ...
void split_edges(const Comm& pipeline, Grid& grid) {
  for (const int odd : {0, 1}) {
    StageEdge edge;
    for (Comm* way : {&edge.activations, &edge.gradients})
      *way = pipeline.split((grid.pipe + odd) / 2, grid.pipe);
    if (edge.activations.size() == 1) continue;
    (edge.activations.rank() == 0 ? grid.to_next : grid.to_previous) = edge;
  }
}

}  // namespace

Grid Grid::build(const Comm& world, int n_pipe, int n_data, int n_expert) {
  check_axes(world.size(), n_pipe, n_data, n_expert);
  Grid grid;
  grid.n_pipe = n_pipe;
  grid.n_data = n_data;
  grid.n_expert = n_expert;
  grid.expert = world.rank() % n_expert;
  grid.data = world.rank() / n_expert % n_data;
  grid.pipe = world.rank() / n_expert / n_data;
  grid.world = world;
  grid.dense = world.split(grid.pipe, grid.dense_rank());
  grid.replicas = world.split(grid.pipe * n_expert + grid.expert, grid.data);
  grid.expert_group = world.split(grid.pipe * n_data + grid.data, grid.expert);
  if (n_pipe == 1) return grid;
  grid.pipeline = world.split(grid.dense_rank(), grid.pipe);
  split_edges(grid.pipeline, grid);
  return grid;
}

}  // namespace capstan
