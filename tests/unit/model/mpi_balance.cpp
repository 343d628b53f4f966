// Balance terms and biases on every grid of the ranks: the same numbers as on one rank.
#include <gtest/gtest.h>

#include "base/parallel.hpp"
#include "unit/model/small_model.hpp"

namespace capstan::test {
namespace {

std::vector<Grid> grids() {
  const Comm world = Comm::world();
  std::vector<Grid> out;
  for (int expert = 1; expert <= world.size(); expert *= 2)
    out.push_back(Grid::build(world, 1, world.size() / expert, expert));
  return out;
}

/// Half of the first sequence and all of the last two are padding: a rank has no token.
void mask_unevenly(HostBatch& host, index_t seq_len) {
  const index_t n = static_cast<index_t>(host.tokens.size());
  for (index_t i = 0; i < n; ++i) {
    if ((i >= seq_len / 2 && i < seq_len) || i >= n - 2 * seq_len) {
      host.segments[i] = host.targets[i] = -1;
    }
  }
}

/// Largest difference of a gradient from that of the whole model, over the largest.
double gradient_error(Rig<double>& part, Rig<double>& whole) {
  double worst = 0, largest = 0;
  for (const ParamSlot& slot : part.model.params().slots()) {
    const auto& params = whole.model.params();
    const Values all =
        values(params.part(params.gradients(), params.slot(slot.spec.name)));
    const Values mine =
        values(part.model.params().part(part.model.params().gradients(), slot));
    for (std::size_t i = 0; i < mine.size(); ++i) {
      const double want = all[slot.row0 * slot.row_size + i];
      worst = std::max(worst, std::fabs(mine[i] - want));
      largest = std::max(largest, std::fabs(want));
    }
  }
  return worst / largest;
}

/// True when all ranks have these same bits.
bool same_everywhere(const Values& v, const Comm& world) {
  const index_t n = static_cast<index_t>(v.size());
  Values all(n * world.size());
  world.all_gather_host(v.data(), all.data(), n);
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all[i] != v[i % v.size()]) return false;
  return true;
}

void compare_with_one_rank(const ModelShape& shape, int micro_batches) {
  Rig<double> whole(shape, 8);
  mask_unevenly(whole.host, shape.seq_len);
  const double loss = whole.train(micro_batches);
  const RouterTerms terms = whole.model.routers().terms(whole.grid);
  const RouterReport report = whole.model.routers().end_step(whole.grid, whole.ctx);
  for (const Grid& grid : grids()) {
    Rig<double> part(shape, 8, 3, grid);
    mask_unevenly(part.host, shape.seq_len);
    EXPECT_NEAR(part.train(micro_batches), loss, 1e-13);
    const RouterTerms got = part.model.routers().terms(grid);
    EXPECT_NEAR(got.balance, terms.balance, 1e-14);
    EXPECT_NEAR(got.z, terms.z, 1e-14);
    EXPECT_LT(gradient_error(part, whole), 1e-12);
    const RouterReport other = part.model.routers().end_step(grid, part.ctx);
    EXPECT_EQ(other.load, report.load);
    EXPECT_LT(relative_error(other.balance_loss, report.balance_loss), 1e-13);
    EXPECT_LT(relative_error(other.z_loss, report.z_loss), 1e-13);
  }
}

TEST(Balance, TermsAndGradientsDoNotDependOnTheGrid) {
  for (const AuxScope scope :
       {AuxScope::global, AuxScope::sequence, AuxScope::micro_batch}) {
    ModelShape s = small_shape();
    s.balance = Balance::aux;
    s.aux_scope = scope;
    s.aux_loss = 0.3;
    s.router_z_loss = 0.02;
    for (const int micro_batches : {1, 2}) compare_with_one_rank(s, micro_batches);
  }
}

TEST(Balance, RouterZAloneDoesNotDependOnTheGrid) {
  ModelShape s = small_shape();
  s.router_z_loss = 0.05;
  compare_with_one_rank(s, 2);
}

/// One step of plain descent on the masters.
void descend(Rig<float>& rig) {
  const auto w = rig.model.params().masters();
  const auto d = rig.model.params().gradients();
  par_for(
      "descend", w.extent(0), KOKKOS_LAMBDA(index_t i) { w(i) -= 0.05f * d(i); });
  rig.model.params().refresh_weights();
}

TEST(Balance, BiasesAreTheSameBitsOnAllRanks) {
  for (const Balance balance : {Balance::sign, Balance::qb}) {
    ModelShape s = small_shape();
    s.balance = balance;
    s.sign_rate = 1e-3;
    for (const Grid& grid : grids()) {
      Rig<float> rig(s, 8, 3, grid);
      for (int step = 0; step < 20; ++step) {
        rig.train(step % 2 + 1);
        descend(rig);
        rig.model.routers().end_step(grid, rig.ctx);
      }
      const Values bias = values(rig.model.routers().biases());
      EXPECT_GT(dot(bias, bias), 0);
      EXPECT_TRUE(same_everywhere(bias, grid.world));
    }
  }
}

TEST(Balance, SignBiasDoesNotDependOnTheGrid) {
  ModelShape s = small_shape();
  s.balance = Balance::sign;
  s.sign_rate = 0.02;
  Rig<double> whole(s, 8);
  for (int step = 0; step < 10; ++step) {
    whole.train();
    whole.model.routers().end_step(whole.grid, whole.ctx);
  }
  for (const Grid& grid : grids()) {
    Rig<double> part(s, 8, 3, grid);
    for (int step = 0; step < 10; ++step) {
      part.train(2);
      part.model.routers().end_step(grid, part.ctx);
    }
    EXPECT_EQ(values(part.model.routers().biases()),
              values(whole.model.routers().biases()));
  }
}

}  // namespace
}  // namespace capstan::test
