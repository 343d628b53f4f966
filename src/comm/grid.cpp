#include "comm/grid.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/log.hpp"

namespace capstan {

namespace {

/// Up to three grids data x expert that use `ranks` ranks, nearest to the wanted one
/// first.
std::string nearest_grids(int ranks, int n_data, int n_expert) {
  struct Choice {
    double distance;
    int data, expert;
  };
  std::vector<Choice> all;
  for (int data = 1; data <= ranks; ++data) {
    if (ranks % data != 0) continue;
    const int expert = ranks / data;
    const double d = std::abs(std::log(double(data) / std::max(1, n_data))) +
                     std::abs(std::log(double(expert) / std::max(1, n_expert)));
    all.push_back({d, data, expert});
  }
  std::stable_sort(all.begin(), all.end(), [](const Choice& a, const Choice& b) {
    return a.distance < b.distance;
  });
  std::string text;
  for (std::size_t i = 0; i < all.size() && i < 3; ++i)
    text += format("%sdata = %d, expert = %d", i == 0 ? "" : "; ", all[i].data,
                   all[i].expert);
  return text;
}

void check_axes(int ranks, int n_pipe, int n_data, int n_expert) {
  const std::string wanted =
      format("<grid> pipe = %d, data = %d, expert = %d", n_pipe, n_data, n_expert);
  if (n_pipe > 1) throw Error(Exit::deck, wanted + ": pipe > 1 is not supported yet");
  const auto product = static_cast<long long>(n_pipe) * n_data * n_expert;
  if (n_pipe == 1 && n_data >= 1 && n_expert >= 1 && product == ranks) return;
  throw Error(Exit::deck,
              wanted +
                  format(" is a grid of %lld ranks, but there %s %d; nearest: ", product,
                         ranks == 1 ? "is" : "are", ranks) +
                  nearest_grids(ranks, n_data, n_expert));
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
  return grid;
}

}  // namespace capstan
