// Transports on one rank: against the oracle, finite differences, accounting, recompute.
#include <gtest/gtest.h>

#include "unit/model/small_model.hpp"
#include "unit/model/transport_case.hpp"

namespace capstan::test {
namespace {

TransportSpec tight(Transport kind, index_t waves = 1,
                    DropPolicy policy = DropPolicy::position, double factor = 1.0) {
  return {kind, factor, factor, waves, policy};
}

TEST(Transport, OneRankEqualsTheOracle) {
  Context ctx(0, true);
  const Grid grid;
  for (const Transport kind : kAllTransports) {
    for (const index_t k : {1, 2, 8}) {
      for (const index_t waves : {1, 2, 8}) {
        for (const auto policy :
             {DropPolicy::position, DropPolicy::weight, DropPolicy::rotate}) {
          SCOPED_TRACE(testing::Message()
                       << "transport " << int(kind) << " k " << k << " waves " << waves
                       << " policy " << int(policy));
          check_exchange(random_routing(1, 8, k, 29, 5), tight(kind, waves, policy), grid,
                         ctx);
        }
      }
    }
  }
}

TEST(Transport, ManyTokensAndFewColumns) {
  Context ctx(0, true);
  // More slots than columns: several header rows.
  for (const double factor : {0.5, 1.0, 1.25, 100.0}) {
    check_exchange(random_routing(1, 8, 2, 700, 9),
                   tight(Transport::pooled_wave, 2, DropPolicy::position, factor), Grid(),
                   ctx, 2);
  }
}

TEST(Transport, UnusedRowsMayHoldNaN) {
  Context ctx(0, true);
  for (const Transport kind : kAllTransports) {
    check_exchange(random_routing(1, 8, 2, 40, 3), tight(kind, 2), Grid(), ctx);
    poison<double>(ctx.arena);
    check_exchange(random_routing(1, 8, 2, 40, 3), tight(kind, 2), Grid(), ctx);
  }
}

/// The routing with padding tokens put between the others.
Routing with_padding(const Routing& r) {
  Routing out = r;
  for (index_t rank = 0; rank < r.ranks; ++rank) {
    out.experts[rank].clear(), out.next[rank].clear(), out.weights[rank].clear();
    for (index_t t = 0; t < r.tokens(rank); ++t) {
      for (int copy = 0; copy < 1 + (t % 3 == 0 ? 2 : 0); ++copy) {
        for (index_t i = 0; i < r.k; ++i) {
          out.experts[rank].push_back(copy > 0 ? -1 : r.experts[rank][t * r.k + i]);
          out.weights[rank].push_back(copy > 0 ? 0 : r.weights[rank][t * r.k + i]);
        }
        for (index_t i = 0; i < kSpillChoices; ++i)
          out.next[rank].push_back(copy > 0 ? -1 : r.next[rank][t * kSpillChoices + i]);
      }
    }
  }
  return out;
}

TEST(Transport, PaddingTakesNoCapacity) {
  Context ctx(0, true);
  const Routing packed = random_routing(1, 8, 2, 40, 3, 0);
  const Routing padded = with_padding(packed);
  for (const Transport kind : kAllTransports) {
    const Outcome a = Oracle(packed, tight(kind)).run();
    const Outcome b = Oracle(padded, tight(kind)).run();
    EXPECT_EQ(a.sender, b.sender);
    EXPECT_EQ(a.receiver, b.receiver);
    check_exchange(packed, tight(kind), Grid(), ctx);
    check_exchange(padded, tight(kind), Grid(), ctx);
  }
}

TEST(Transport, HugeCapacityDropsNothing) {
  for (const Transport kind : kAllTransports) {
    ModelShape s = small_shape();
    s.transport = tight(kind, 2, DropPolicy::position, 1000);
    Rig<double> rig(s), plain(small_shape());
    EXPECT_NEAR(rig.train(), plain.train(), 1e-13);
    EXPECT_LT(relative_error(values(rig.model.params().gradients()),
                             values(plain.model.params().gradients())),
              1e-13);
    EXPECT_EQ(rig.model.routers().end_step(rig.grid, rig.ctx).drops.total(), 0);
  }
}

/// The gradient against central differences of the training loss, where drops are fixed
/// by the routing, which the small steps leave alone.
void check_gradients(const ModelShape& shape, bool drops) {
  Rig<double> rig(shape);
  rig.train();
  const RouterReport report = rig.model.routers().end_step(rig.grid, rig.ctx);
  EXPECT_EQ(report.drops.total() > 0, drops);
  fill(rig.model.routers().biases(), 0.0);
  rig.train();
  auto& params = rig.model.params();
  const Values gradients = values(params.gradients());
  double* masters = params.masters().data();
  double scale = 0;
  for (const double g : gradients) scale = std::max(scale, std::fabs(g));
  for (const ParamSlot& slot : params.slots()) {
    if (slot.spec.name.find("/moe/") == std::string::npos) continue;
    for (index_t i = 0; i < slot.size(); i += 1 + slot.size() / 2) {
      const double numeric =
          difference(masters + slot.offset + i, [&] { return rig.train(); });
      EXPECT_NEAR(gradients[slot.offset + i], numeric,
                  1e-8 * scale + 1e-7 * std::fabs(numeric))
          << slot.spec.name << " element " << i;
    }
  }
}

TEST(Transport, GradientsEqualFiniteDifferences) {
  for (const Transport kind : kAllTransports) {
    for (const index_t k : {1, 2, 8}) {
      SCOPED_TRACE(testing::Message() << "transport " << int(kind) << " k " << k);
      ModelShape s = small_shape();
      s.layers = 1;
      s.top_k = k;
      s.softmax = k == 2;
      s.transport = tight(kind, 2, DropPolicy::position, 0.5);
      check_gradients(s, kind != Transport::dropless);
    }
  }
}

TEST(Transport, RecomputeChangesNoBit) {
  for (const Transport kind : kAllTransports) {
    ModelShape s = small_shape();
    s.transport = tight(kind, 2, DropPolicy::weight, 0.9);
    Rig<float> none(s);
    const double loss = none.train();
    const RouterReport report = none.model.routers().end_step(none.grid, none.ctx);
    for (const Recompute mode : {Recompute::moe, Recompute::full}) {
      s.recompute = mode;
      Rig<float> other(s);
      EXPECT_EQ(loss, other.train());
      EXPECT_EQ(values(none.model.params().gradients()),
                values(other.model.params().gradients()));
      const RouterReport again = other.model.routers().end_step(other.grid, other.ctx);
      EXPECT_EQ(report.load, again.load);
      EXPECT_EQ(report.drops.sender, again.drops.sender);
      EXPECT_EQ(report.drops.receiver, again.drops.receiver);
      EXPECT_EQ(report.drops.spilled, again.drops.spilled);
    }
  }
}

TEST(Transport, StatisticsAndBiasAreThoseBeforeDrops) {
  ModelShape s = small_shape();
  s.layers = 1;
  Rig<double> plain(s);
  plain.train();
  const RouterReport want = plain.model.routers().end_step(plain.grid, plain.ctx);
  for (const Transport kind : kAllTransports) {
    s.transport = tight(kind, 1, DropPolicy::position, 0.2);
    Rig<double> rig(s);
    rig.train();
    const RouterReport got = rig.model.routers().end_step(rig.grid, rig.ctx);
    EXPECT_EQ(got.load, want.load);
    EXPECT_EQ(got.entropy, want.entropy);
    EXPECT_EQ(got.load_balance, want.load_balance);
    EXPECT_EQ(values(rig.model.routers().biases()),
              values(plain.model.routers().biases()));
    EXPECT_EQ(got.drops.total() > 0, kind != Transport::dropless);
  }
}

TEST(Transport, EveryExpertThatComputedHasAGradientAndNoOther) {
  // A product over groups that runs forward only, or skips a group, leaves experts at
  // their initial values.
  for (const Transport kind : kAllTransports) {
    ModelShape s = small_shape();
    s.layers = 1;
    s.transport = tight(kind, 2, DropPolicy::position, 1000);
    Rig<double> rig(s, 8);  // so many that every chosen expert has a token with a target
    // No token chooses the last two experts.
    Values bias(s.experts, 0.0);
    bias[s.experts - 1] = bias[s.experts - 2] = -1e6;
    copy_to_device(bias.data(), rig.model.routers().biases().data(), s.experts);
    rig.train();
    const auto& params = rig.model.params();
    const auto load = rig.model.routers().end_step(rig.grid, rig.ctx).load;
    EXPECT_EQ(std::count(load.begin(), load.end(), 0) >= 2, true);
    for (const char* name : {"w_gate", "w_up", "w_down"}) {
      const ParamSlot& slot = params.slot(std::string("layer_000/moe/") + name);
      const Values g = values(params.part(params.gradients(), slot));
      const index_t each = slot.size() / s.experts;
      for (index_t e = 0; e < s.experts; ++e) {
        double sum = 0;
        for (index_t i = e * each; i < (e + 1) * each; ++i) sum += std::fabs(g[i]);
        EXPECT_EQ(sum > 0, load[e] > 0) << name << " expert " << e;
      }
    }
  }
}

TEST(Transport, EvaluationIsDropless) {
  Rig<double> plain(small_shape());
  const double want = plain.evaluate();
  for (const Transport kind : kAllTransports) {
    ModelShape s = small_shape();
    s.transport = tight(kind, 1, DropPolicy::position, 0.2);
    Rig<double> rig(s);
    EXPECT_NEAR(rig.evaluate(), want, 1e-13);
    EXPECT_EQ(rig.model.routers().end_step(rig.grid, rig.ctx).drops.total(), 0);
  }
}

TEST(Transport, CapacitiesAndEffectiveFactorsAreReported) {
  ModelShape s = small_shape();  // 18 valid tokens, 2 of 8 experts
  s.transport = tight(Transport::pooled_wave, 2, DropPolicy::position, 1.1);
  Rig<double> rig(s);
  rig.train();
  const DropReport d = rig.model.routers().end_step(rig.grid, rig.ctx).drops;
  EXPECT_EQ(d.pool_rows.at(1), 20);  // 1.1 x 36 / 2 = 19.8
  EXPECT_DOUBLE_EQ(d.pool_factor.at(1), 20.0 * 2 / 36);
  EXPECT_EQ(d.bank_rows.at(1), 3);  // 1.1 x 36 / 16 = 2.475
  EXPECT_DOUBLE_EQ(d.bank_factor.at(1), 3.0 * 16 / 36);
}

TEST(Transport, NoAllocationAfterTheFirstStep) {
  for (const Transport kind : kAllTransports) {
    ModelShape s = small_shape();
    s.transport = tight(kind, 2);
    Rig<float> rig(s);
    rig.train();
    const index_t slabs = rig.ctx.arena.capacity(), now = rig.ctx.ledger.now();
    for (int i = 0; i < 3; ++i) rig.train();
    EXPECT_EQ(slabs, rig.ctx.arena.capacity());
    EXPECT_EQ(now, rig.ctx.ledger.now());
  }
}

}  // namespace
}  // namespace capstan::test
