// Numbering of the grid and its groups; errors that name the nearest grids.
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "comm/grid.hpp"

using namespace capstan;

namespace {

/// World ranks of a group, in the group's order.
std::vector<int> members(const Comm& group, int world_rank) {
  std::vector<int> all(group.size());
  group.all_gather_host(&world_rank, all.data(), 1);
  return all;
}

std::string refusal(const Comm& world, int pipe, int data, int expert) {
  try {
    Grid::build(world, pipe, data, expert);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::deck);
    return e.what();
  }
  return "";
}

}  // namespace

TEST(Grid, numbering_of_every_grid) {
  const Comm world = Comm::world();
  const int ranks = world.size();
  for (int n_expert = 1; n_expert <= ranks; ++n_expert) {
    if (ranks % n_expert != 0) continue;
    const int n_data = ranks / n_expert;
    const Grid g = Grid::build(world, 1, n_data, n_expert);
    EXPECT_EQ((g.pipe * n_data + g.data) * n_expert + g.expert, world.rank());
    EXPECT_EQ(g.dense_rank(), world.rank());
    EXPECT_EQ(g.n_dense(), ranks);
    std::vector<int> dense, replicas, experts;
    for (int r = 0; r < ranks; ++r) dense.push_back(r);
    for (int d = 0; d < n_data; ++d) replicas.push_back(d * n_expert + g.expert);
    for (int e = 0; e < n_expert; ++e) experts.push_back(g.data * n_expert + e);
    EXPECT_EQ(members(g.dense, world.rank()), dense);
    EXPECT_EQ(members(g.replicas, world.rank()), replicas);
    EXPECT_EQ(members(g.expert_group, world.rank()), experts);
    EXPECT_EQ(g.dense.rank(), g.dense_rank());
    EXPECT_EQ(g.replicas.rank(), g.data);
    EXPECT_EQ(g.expert_group.rank(), g.expert);
  }
}

TEST(Grid, a_wrong_grid_is_refused_with_the_nearest) {
  const Comm world = Comm::world();
  const std::string text = refusal(world, 1, 3, 2);
  EXPECT_NE(text.find("6 ranks"), std::string::npos) << text;
  if (world.size() == 4) {
    EXPECT_NE(text.find("nearest: data = 2, expert = 2; data = 4, expert = 1"),
              std::string::npos)
        << text;
  }
  EXPECT_NE(refusal(world, 1, 0, world.size()).find("nearest"), std::string::npos);
  EXPECT_NE(refusal(world, 2, 1, 1).find("not supported"), std::string::npos);
}
