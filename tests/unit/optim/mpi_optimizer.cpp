// The same updates on 1, 2 and 4 ranks, however they are laid out: each rank's rows
// against loops over whole tensors.
#include <gtest/gtest.h>

#include "unit/optim/optimizer_case.hpp"

using namespace capstan;
using namespace capstan::test;

namespace {

/// Grids of all the ranks there are.
std::vector<Grid> grids() {
  const Comm world = Comm::world();
  std::vector<Grid> out;
  for (int expert = 1; expert <= world.size(); expert *= 2)
    out.push_back(Grid::build(world, 1, world.size() / expert, expert));
  return out;
}

std::string over(const Grid& g) {
  return "grid/expert=" + std::to_string(g.n_expert);
}

TEST(OptimizerOnRanks, EqualsTheLoops) {
  for (const Grid& grid : grids()) {
    for (const char* scope : {"matrix", "layer"}) {
      const Deck deck =
          optimizer_deck({std::string("optimizer/norm_scope=") + scope, over(grid),
                          "grid/data=" + std::to_string(grid.n_data)});
      OptimizerCase<double> c(deck, grid);
      double moved = 0;
      EXPECT_LE(error_against_loops(c, 3, &moved), 1e-11) << scope;
      EXPECT_NEAR(c.optimizer.update_norm(c.grid) / moved, 1, 1e-6) << scope;
    }
  }
}

TEST(OptimizerOnRanks, WhatIsNotFiniteOnOneRankIsNamedOnAll) {
  const Grid grid = grids().back();
  OptimizerCase<float> c(optimizer_deck({over(grid)}), grid);
  const ParamSlot& slot = c.params.slot("layer_001/moe/w_gate");
  const float bad = INFINITY;
  if (grid.expert == grid.n_expert - 1)
    copy_to_device<float>(&bad, c.params.part(c.params.gradients(), slot).data(), 1);
  EXPECT_EQ(non_finite_tensors<float>(c.params, c.params.gradients(), c.grid),
            std::vector<std::string>{slot.spec.name});
}

}  // namespace
