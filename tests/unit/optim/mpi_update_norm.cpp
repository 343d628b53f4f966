// The norm of a step's update: what the masters really lost, the same on every grid.
#include <gtest/gtest.h>

#include "base/parallel.hpp"
#include "optim/optimizer.hpp"
#include "unit/check.hpp"
#include "unit/deck/decks.hpp"

namespace capstan::test {
namespace {

/// {norm that the optimizer gives, norm of masters before - after} of the second update.
template <class S>
std::pair<double, double> norms(const Grid& grid) {
  Context ctx(0, true);
  const Deck deck = Deck::parse(kLeast, "x", {"optimizer/weight_decay=0.1"});
  ParamStore<S> params(ModelShape::from_deck(deck), grid, ctx);
  params.initialise(1);
  Optimizer<S> optimizer(deck, params, grid, ctx);
  optimizer.start(ctx);
  Values before;
  for (int step = 0; step < 2; ++step) {
    const auto g = params.gradients(), w = params.masters();
    par_for(
        "gradient", g.extent(0),
        KOKKOS_LAMBDA(index_t i) { g(i) = S(step + 1) * w(i) * w(i) * w(i); });
    before = values(params.masters());
    optimizer.step(1.0, 0.5, ctx);
  }
  const Values after = values(params.masters());
  double dense = 0, expert = 0;
  for (const ParamSlot& slot : params.slots()) {
    for (index_t i = slot.offset; i < slot.offset + slot.size(); ++i)
      (slot.spec.expert ? expert : dense) += std::pow(before[i] - after[i], 2);
  }
  expert = grid.expert_group.all_reduce_value(expert, Reduce::sum);
  return {optimizer.update_norm(grid), std::sqrt(dense + expert)};
}

TEST(UpdateNorm, IsWhatTheMastersLostOnEveryGrid) {
  const Comm world = Comm::world();
  const auto [whole, lost] = norms<double>(Grid());
  EXPECT_GT(whole, 0);
  EXPECT_NEAR(whole, lost, 1e-11 * lost);
  for (int expert = 1; expert <= world.size(); expert *= 2) {
    const Grid grid = Grid::build(world, 1, world.size() / expert, expert);
    const auto [given, measured] = norms<double>(grid);
    EXPECT_NEAR(given, measured, 1e-11 * measured);
    EXPECT_NEAR(given, whole, 1e-12 * whole);
    const auto [of_float, float_lost] = norms<float>(grid);
    EXPECT_NEAR(of_float, float_lost, 1e-4 * float_lost);
  }
}

}  // namespace
}  // namespace capstan::test
