// The ops' own costs against the matrix products and attention tiles of a training step.
#include "model/cost.hpp"

#include <gtest/gtest.h>

#include "blas/gemm.hpp"
#include "model/flops.hpp"
#include "unit/model/small_model.hpp"

using namespace capstan;
using namespace capstan::test;

namespace {

/// Operations that a training step of this shape issues, and those that it should.
template <class S>
void compare(const ModelShape& shape, int micro_batches, const char* what) {
  const index_t sequences = 4;
  Rig<S> rig(shape, sequences);
  rig.ctx.timers.flops_counter = &blas::flops_issued;
  rig.ctx.timers.reset();
  blas::reset_flops_issued();
  rig.train(micro_batches);
  const double gemm = blas::flops_issued();
  double all = 0;
  for (const auto& [name, entry] : rig.ctx.timers.table()) all += entry.flops;
  const auto valid = std::count_if(rig.host.segments.begin(), rig.host.segments.end(),
                                   [](std::int32_t segment) { return segment >= 0; });
  const Work work{sequences, shape.seq_len, double(valid * shape.top_k)};
  const Cost cost = step_cost(shape, work);
  EXPECT_NEAR(gemm / cost.gemm(), 1, 1e-12) << what;
  EXPECT_NEAR(all / cost.total(), 1, 1e-12) << what;
}

}  // namespace

TEST(Cost, IsWhatATrainingStepIssues) {
  compare<double>(small_shape(), 1, "double");
  compare<float>(small_shape(), 1, "float");
  compare<double>(small_shape(), 2, "two micro-batches");
}

TEST(Cost, FollowsEveryFeature) {
  ModelShape plain = small_shape();
  plain.gate_rank = plain.shared_experts = plain.latent_width = 0;
  plain.head_gate = plain.xsa = false;
  plain.global_every = 0;
  compare<double>(plain, 1, "plain");
  for (const Recompute r : {Recompute::moe, Recompute::full}) {
    ModelShape again = small_shape();
    again.recompute = r;
    compare<double>(again, 1, r == Recompute::moe ? "moe again" : "all again");
  }
}

TEST(Cost, OfTheMatricesOfTokensIsThePublishedFigureWithoutItsRounding) {
  // One token, no gates: what both count is 2 x active elements and the head; the
  // published figure adds 12 a neuron where three products are 6.
  ModelShape s = small_shape();
  s.gate_rank = 0;
  s.head_gate = false;
  s.global_every = 0;
  const Work work{1, 1, double(s.top_k)};
  const Cost cost = step_cost(s, work);
  const PublishedFlops published = published_flops(s);
  const double attention =
      4.0 * double(s.q_width() * s.layers) * double(std::min(s.window, s.seq_len));
  const double neurons =
      12.0 * double(s.layers) *
      double(s.top_k * s.expert_width + s.shared_experts * s.shared_width);
  EXPECT_NEAR(cost.gemm_forward, published.forward() - attention - neurons, 1e-6);
}
