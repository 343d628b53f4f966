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

void check_groups(const Comm& world, int n_pipe, int n_data, int n_expert) {
  const Grid g = Grid::build(world, n_pipe, n_data, n_expert);
  const auto rank = [&](int pipe, int data, int expert) {
    return (pipe * n_data + data) * n_expert + expert;
  };
  EXPECT_EQ(rank(g.pipe, g.data, g.expert), world.rank());
  EXPECT_EQ(g.n_dense(), n_data * n_expert);
  std::vector<int> dense, replicas, experts, stages;
  for (int r = 0; r < g.n_dense(); ++r) dense.push_back(rank(g.pipe, 0, 0) + r);
  for (int d = 0; d < n_data; ++d) replicas.push_back(rank(g.pipe, d, g.expert));
  for (int e = 0; e < n_expert; ++e) experts.push_back(rank(g.pipe, g.data, e));
  for (int p = 0; p < n_pipe; ++p) stages.push_back(rank(p, g.data, g.expert));
  EXPECT_EQ(members(g.dense, world.rank()), dense);
  EXPECT_EQ(members(g.replicas, world.rank()), replicas);
  EXPECT_EQ(members(g.expert_group, world.rank()), experts);
  EXPECT_EQ(members(g.pipeline, world.rank()), stages);
  EXPECT_EQ(g.dense.rank(), g.dense_rank());
  EXPECT_EQ(g.replicas.rank(), g.data);
  EXPECT_EQ(g.expert_group.rank(), g.expert);
  EXPECT_EQ(g.pipeline.rank(), g.pipe);
  const auto pair = [&](int earlier) {
    return std::vector<int>{stages[earlier], stages[earlier + 1]};
  };
  const std::vector<int> alone = {world.rank()};
  for (const auto way : {&StageEdge::activations, &StageEdge::gradients}) {
    EXPECT_EQ(members(g.to_previous.*way, world.rank()),
              g.first_stage() ? alone : pair(g.pipe - 1));
    EXPECT_EQ(members(g.to_next.*way, world.rank()),
              g.last_stage() ? alone : pair(g.pipe));
  }
}

}  // namespace

TEST(Grid, numbering_of_every_grid) {
  const Comm world = Comm::world();
  const int ranks = world.size();
  for (int n_pipe = 1; n_pipe <= ranks; ++n_pipe)
    for (int n_expert = 1; n_expert <= ranks; ++n_expert)
      if (ranks % (n_pipe * n_expert) == 0)
        check_groups(world, n_pipe, ranks / n_pipe / n_expert, n_expert);
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
  const std::string stages = refusal(world, 3, 1, 1);
  EXPECT_NE(stages.find("3 ranks"), std::string::npos) << stages;
  if (world.size() == 4) {
    EXPECT_NE(stages.find("nearest: pipe = 4, data = 1, expert = 1; pipe = 2, data = "),
              std::string::npos)
        << stages;
  }
}
