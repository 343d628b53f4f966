// Sharded state on 1, 2 and 4 ranks: sums and weights end where they belong, and the
// updates are those of replicated state and of the loops.
#include <gtest/gtest.h>

#include "unit/optim/optimizer_case.hpp"

using namespace capstan;
using namespace capstan::test;

namespace {

std::vector<Grid> grids() {
  const Comm world = Comm::world();
  std::vector<Grid> out;
  for (int expert = 1; expert <= world.size(); expert *= 2)
    out.push_back(Grid::build(world, 1, world.size() / expert, expert));
  return out;
}

Deck deck_of(const Grid& g, const std::string& place,
             const std::vector<std::string>& more = {}) {
  std::vector<std::string> keys = {"memory/optimizer=" + place,
                                   "grid/data=" + std::to_string(g.n_data),
                                   "grid/expert=" + std::to_string(g.n_expert)};
  keys.insert(keys.end(), more.begin(), more.end());
  return optimizer_deck(keys);
}

/// Gradients of a rank of its own.
template <class S>
Tensors own_gradients(const OptimizerCase<S>& c, int step) {
  return whole_gradients(c.slots(), 100 * c.grid.dense_rank() + step);
}

template <class S>
void reduce(OptimizerCase<S>& c) {
  if (c.params.sharded()) return c.optimizer.reduce_gradients(c.ctx);
  c.grid.dense.all_reduce(c.params.dense_gradients(), Reduce::sum).wait();
  c.grid.replicas.all_reduce(c.params.expert_gradients(), Reduce::sum).wait();
}

TEST(Shards, UpdatesEqualTheLoops) {
  for (const Grid& grid : grids()) {
    for (const char* scope : {"matrix", "layer"}) {
      OptimizerCase<double> c(
          deck_of(grid, "sharded", {std::string("optimizer/norm_scope=") + scope}), grid);
      double moved = 0;
      EXPECT_LE(error_against_loops(c, 3, &moved), 1e-11) << scope;
      EXPECT_NEAR(c.optimizer.update_norm(c.grid) / moved, 1, 1e-6) << scope;
    }
  }
}

/// Bit for bit: gradients that differ from rank to rank, reduced either way, then steps.
TEST(Shards, SameBitsAsReplicatedState) {
  using S = float;
  for (const Grid& grid : grids()) {
    const std::vector<std::string> more = {"optimizer/norm_scope=layer"};
    OptimizerCase<S> whole(deck_of(grid, "replicated", more), grid);
    OptimizerCase<S> parts(deck_of(grid, "sharded", more), grid);
    ASSERT_EQ(parts.params.sharded(), grid.dense.size() > 1);
    for (int k = 1; k <= 3; ++k) {
      for (OptimizerCase<S>* c : {&whole, &parts}) {
        c->put(own_gradients(*c, k), c->params.gradients());
        reduce(*c);
      }
      const double norm = gradient_norms<S>(whole.params, grid).total;
      EXPECT_NEAR(gradient_norms<S>(parts.params, grid).total, norm, 1e-12 * norm);
      for (OptimizerCase<S>* c : {&whole, &parts}) c->optimizer.step(1, 0.5, c->ctx);
      EXPECT_EQ(values(parts.params.weights()), values(whole.params.weights()));
      const double moved = whole.optimizer.update_norm(grid);
      EXPECT_NEAR(parts.optimizer.update_norm(grid), moved, 1e-6 * moved);
    }
    const double norm = master_norms<S>(whole.params, grid).total;
    EXPECT_NEAR(master_norms<S>(parts.params, grid).total, norm, 1e-12 * norm);
  }
}

TEST(Shards, BucketsOfAnySizeMoveTheSame) {
  for (const Grid& grid : grids()) {
    OptimizerCase<double> c(deck_of(grid, "replicated"), grid);
    std::vector<ParamSpec> specs;
    for (const ParamSlot& slot : c.slots()) specs.push_back(slot.spec);
    const auto cuts =
        share_state(specs, c.optimizer.groups(), grid.n_data, grid.n_expert);
    c.put(own_gradients(c, 1), c.params.gradients());
    const auto before = to_host(c.params.gradients());
    reduce(c);
    const auto sums = to_host(c.params.gradients());
    for (const index_t bucket : {index_t(1) << 22, index_t(50000), index_t(7001)}) {
      const Shards<double> shards(c.params, cuts, grid, bucket, c.ctx.ledger);
      const index_t was = c.ctx.ledger.now();
      copy_to_device<double>(before.data(), c.params.gradients().data(), c.params.size());
      shards.reduce(c.params.gradients(), c.ctx);
      shards.gather(c.params.gradients(), c.ctx);
      EXPECT_EQ(to_host(c.params.gradients()), sums) << bucket;
      EXPECT_EQ(c.ctx.ledger.now(), was);
    }
  }
}

TEST(Shards, MomentsAreKeptOnce) {
  for (const Grid& grid : grids()) {
    OptimizerCase<double> c(deck_of(grid, "sharded"), grid);
    double mine = 0, all = 0;
    for (std::size_t i = 0; i < c.slots().size(); ++i) {
      const auto& kept = c.optimizer.slots()[i];
      mine += double(kept.first.extent(0) + kept.second.extent(0));
      all += double(c.slots()[i].global_size()) *
             moments_of(c.optimizer.groups()[kept.group].kind);
    }
    EXPECT_EQ(grid.dense.all_reduce_value(mine, Reduce::sum), all);
    // No rank has much more than its share: matrices are whole, so not exactly.
    EXPECT_LE(mine, 1.4 * all / grid.dense.size());
  }
}

}  // namespace
