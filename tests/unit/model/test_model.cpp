// The whole model against finite differences of its own loss, and properties that must
// hold bit for bit: recompute, micro-batches (up to rounding), padding.
#include <gtest/gtest.h>

#include "unit/model/small_model.hpp"

namespace capstan::test {
namespace {

/// Largest relative error over tensors between the gradient and central differences of
/// the loss, on a few elements of each tensor.
void check_gradients(const ModelShape& shape) {
  Rig<double> rig(shape);
  rig.train();
  auto& params = rig.model.params();
  const Values gradients = values(params.gradients());
  double* masters = params.masters().data();
  double scale = 0;
  for (const double g : gradients) scale = std::max(scale, std::fabs(g));
  for (const ParamSlot& slot : params.slots()) {
    for (index_t i = 0; i < slot.size(); i += 1 + slot.size() / 7) {
      const double numeric =
          difference(masters + slot.offset + i, [&] { return rig.evaluate(); });
      EXPECT_NEAR(gradients[slot.offset + i], numeric,
                  1e-8 * scale + 1e-7 * std::fabs(numeric))
          << slot.spec.name << " element " << i;
    }
  }
}

TEST(Model, GradientsEqualFiniteDifferences) {
  check_gradients(small_shape());
}

TEST(Model, GradientsWithFeaturesOff) {
  ModelShape s = small_shape();
  s.latent_width = s.shared_experts = s.gate_rank = 0;
  s.xsa = s.head_gate = s.qk_norm = s.sconv_k = s.sconv_attn = s.sconv_moe = false;
  s.softmax = true;
  check_gradients(s);
}

TEST(Model, RecomputeChangesNoBit) {
  ModelShape s = small_shape();
  Rig<float> none(s);
  const double loss = none.train();
  const RouterReport report = none.model.routers().end_step(none.grid, none.ctx);
  for (const Recompute mode : {Recompute::moe, Recompute::full}) {
    s.recompute = mode;
    Rig<float> other(s);
    EXPECT_EQ(loss, other.train());
    EXPECT_EQ(values(none.model.params().gradients()),
              values(other.model.params().gradients()));
    // Counts are those of one pass: recording must not happen again when a block is
    // recomputed.
    EXPECT_EQ(report.load, other.model.routers().end_step(other.grid, other.ctx).load);
    EXPECT_EQ(values(none.model.routers().biases()),
              values(other.model.routers().biases()));
  }
}

TEST(Model, RecomputeNeedsLessMemory) {
  ModelShape s = small_shape();
  s.seq_len = 64;
  s.layers = 4;
  index_t last = 0;
  for (const Recompute mode : {Recompute::full, Recompute::moe, Recompute::none}) {
    s.recompute = mode;
    Rig<float> rig(s, 4);
    rig.train();
    EXPECT_GT(rig.ctx.ledger.peak(), last);
    last = rig.ctx.ledger.peak();
  }
}

TEST(Model, MicroBatchesGiveTheSameGradientAndTheSameBias) {
  const ModelShape s = small_shape();
  Rig<double> one(s, 4), four(s, 4);
  EXPECT_NEAR(one.train(1), four.train(4), 1e-12);
  EXPECT_LT(relative_error(values(four.model.params().gradients()),
                           values(one.model.params().gradients())),
            1e-12);
  one.model.routers().end_step(one.grid, one.ctx);
  four.model.routers().end_step(four.grid, four.ctx);
  EXPECT_LT(relative_error(values(four.model.routers().biases()),
                           values(one.model.routers().biases())),
            1e-12);
}

TEST(Model, EvaluationEqualsTrainingLossAndLeavesNoTrace) {
  Rig<double> rig(small_shape());
  const double trained = rig.train();
  const Values gradients = values(rig.model.params().gradients());
  const Values biases = values(rig.model.routers().biases());
  EXPECT_NEAR(rig.evaluate(), trained, 1e-13);
  EXPECT_EQ(gradients, values(rig.model.params().gradients()));
  EXPECT_EQ(biases, values(rig.model.routers().biases()));
  const RouterReport report = rig.model.routers().end_step(rig.grid, rig.ctx);
  std::int64_t total = 0;
  for (const std::int64_t n : report.load) total += n;
  EXPECT_EQ(total,
            18 * 2 * 2);  // valid tokens x top_k x layers: evaluation added nothing
}

TEST(Model, PaddingChangesNothing) {
  const ModelShape s = small_shape();
  Rig<double> rig(s);
  const double loss = rig.train();
  const Values gradients = values(rig.model.params().gradients());
  for (std::size_t i = 0; i < rig.host.tokens.size(); ++i) {
    if (rig.host.segments[i] < 0) rig.host.tokens[i] = 11;
  }
  EXPECT_EQ(loss, rig.train());
  EXPECT_EQ(gradients, values(rig.model.params().gradients()));
}

TEST(Model, NoAllocationAfterTheFirstStep) {
  Rig<float> rig(small_shape());
  rig.train();
  const index_t slabs = rig.ctx.arena.capacity();
  const index_t now = rig.ctx.ledger.now();
  for (int i = 0; i < 3; ++i) rig.train();
  EXPECT_EQ(slabs, rig.ctx.arena.capacity());
  EXPECT_EQ(now, rig.ctx.ledger.now());
}

}  // namespace
}  // namespace capstan::test
