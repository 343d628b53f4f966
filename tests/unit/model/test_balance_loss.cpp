// The router's terms of the objective and the sign-updated bias in the whole model, on
// one rank: size, gradient, and independence of split, recompute, padding, drops,
// evaluation.
#include <gtest/gtest.h>

#include "unit/model/small_model.hpp"

namespace capstan::test {
namespace {

constexpr AuxScope kScopes[] = {AuxScope::micro_batch, AuxScope::sequence,
                                AuxScope::global};

ModelShape aux_shape(AuxScope scope, double weight = 0.3, double router_z = 0.02) {
  ModelShape s = small_shape();
  s.balance = Balance::aux;
  s.aux_scope = scope;
  s.aux_loss = weight;
  s.router_z_loss = router_z;
  return s;
}

/// The second half of the first sequence and all of the last are padding.
void mask_unevenly(HostBatch& host, index_t seq_len) {
  const index_t n = static_cast<index_t>(host.tokens.size());
  for (index_t i = 0; i < n; ++i) {
    if ((i >= seq_len / 2 && i < seq_len) || i >= n - seq_len) {
      host.segments[i] = host.targets[i] = -1;
    }
    if (i == seq_len / 2 - 1) host.targets[i] = -1;
  }
}

struct Result {
  double loss = 0;
  Values gradients, biases;
  RouterTerms terms;
  RouterReport report;
};

template <class S>
Result run(Rig<S>& rig, int micro_batches = 1) {
  Result r;
  r.loss = rig.train(micro_batches);
  r.gradients = values(rig.model.params().gradients());
  r.terms = rig.model.routers().terms(rig.grid);
  r.report = rig.model.routers().end_step(rig.grid, rig.ctx);
  r.biases = values(rig.model.routers().biases());
  return r;
}

Result run(const ModelShape& shape, int micro_batches = 1, index_t sequences = 4) {
  Rig<double> rig(shape, sequences);
  return run(rig, micro_batches);
}

Values minus(Values a, const Values& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] -= b[i];
  return a;
}

TEST(BalanceLoss, GradientEqualsDifferencesOfTheTerms) {
  const Values without = run(aux_shape(AuxScope::global, 0, 0)).gradients;
  for (const AuxScope scope : kScopes) {
    for (const auto& [weight, z] : {std::pair{0.3, 0.0}, {0.0, 0.02}}) {
      Rig<double> rig(aux_shape(scope, weight, z), 4);
      // Two micro-batches: the shares of the step are those of both.
      rig.train(2);
      auto& params = rig.model.params();
      const Values got = minus(values(params.gradients()), without);
      double largest = 0;
      for (const double g : got) largest = std::max(largest, std::fabs(g));
      ASSERT_GT(largest, 1e-4);
      for (const char* name :
           {"layer_000/moe/router", "layer_001/moe/router", "layer_000/moe/w_up",
            "layer_000/attn/w_v", "embed/table"}) {
        const ParamSlot& slot = params.slot(name);
        for (index_t i = 0; i < slot.size(); i += 1 + slot.size() / 3) {
          const auto terms = [&] {
            rig.train(2);
            return rig.model.routers().terms(rig.grid).total();
          };
          const double numeric =
              difference(params.masters().data() + slot.offset + i, terms);
          EXPECT_NEAR(got[slot.offset + i], numeric, 1e-6 * largest) << name << " " << i;
        }
      }
    }
  }
}

TEST(BalanceLoss, TermsAddToTheLossAndLeaveTheCrossEntropy) {
  const Result none = run(aux_shape(AuxScope::global, 0, 0));
  EXPECT_EQ(none.terms.total(), 0);
  for (const AuxScope scope : kScopes) {
    const Result both = run(aux_shape(scope));
    EXPECT_GT(both.terms.balance, 0.29);
    EXPECT_GT(both.terms.z, 0);
    EXPECT_NEAR(both.loss, none.loss + both.terms.total(), 1e-14);
    double mean = 0, z = 0;
    for (const double x : both.report.balance_loss) mean += x / 2;
    for (const double x : both.report.z_loss) z += x / 2;
    EXPECT_NEAR(both.terms.balance, 0.3 * mean, 1e-14);
    EXPECT_NEAR(both.terms.z, 0.02 * z, 1e-14);
  }
}

TEST(BalanceLoss, DoubleTheWeightIsDoubleTheContribution) {
  const Result none = run(aux_shape(AuxScope::global, 0, 0));
  const Result once = run(aux_shape(AuxScope::global, 0.3, 0.02));
  const Result twice = run(aux_shape(AuxScope::global, 0.6, 0.04));
  EXPECT_NEAR(twice.terms.balance, 2 * once.terms.balance, 1e-15);
  EXPECT_NEAR(twice.terms.z, 2 * once.terms.z, 1e-15);
  Values doubled = minus(once.gradients, none.gradients);
  for (double& x : doubled) x *= 2;
  EXPECT_LT(relative_error(minus(twice.gradients, none.gradients), doubled), 1e-11);
}

/// The unweighted term of one layer whose tokens are assigned `k` experts each by
/// expert(token, choice), all experts being as likely.
template <class F>
double term_of(index_t experts, index_t k, index_t tokens, const F& expert) {
  ModelShape s = aux_shape(AuxScope::global);
  s.layers = 1;
  s.experts = experts;
  s.top_k = k;
  s.seq_len = tokens;
  Context ctx(0, true);
  const Grid grid;
  RouterState<double> state(s, {0, s.layers}, tokens, ctx);
  std::vector<std::int32_t> list, zeros(tokens, 0);
  for (index_t a = 0; a < tokens * k; ++a)
    list.push_back(static_cast<std::int32_t>(expert(a / k, a % k)));
  const View1<std::int32_t> chosen = view_ints(list);
  const auto batch = upload_batch(zeros, zeros, zeros, tokens, 0, false, ctx);
  // Logits that favour the chosen experts of a token by a lot.
  Values logits(tokens * experts, 0.0);
  for (index_t a = 0; a < tokens * k; ++a) logits[a / k * experts + list[a]] = 60;
  state.begin_step(tokens);
  state.record(0, batch, View2<const std::int32_t>(chosen.data(), tokens, k),
               view2<double>(tokens, experts, logits), grid, ctx);
  return state.end_step(grid, ctx).balance_loss.at(0);
}

TEST(BalanceLoss, IsOneWhenBalancedAndExpertsOverKWhenCollapsed) {
  for (const auto& [k, e] : {std::pair{1, 8}, {2, 8}, {3, 12}, {8, 384}, {5, 5}}) {
    const auto round_robin = [k = k, e = e](index_t t, index_t i) {
      return (t * k + i) % e;
    };
    EXPECT_NEAR(term_of(e, k, e, round_robin), 1, 1e-12) << k << " of " << e;
    const auto collapsed = [](index_t, index_t i) { return i; };
    EXPECT_NEAR(term_of(e, k, 7, collapsed), double(e) / k, 1e-10 * e)
        << k << " of " << e;
  }
}

TEST(BalanceLoss, ScopesAgreeOnEqualSequences) {
  const auto result = [](AuxScope scope, int micro_batches) {
    Rig<double> rig(aux_shape(scope), 4);
    const index_t s = rig.model.shape().seq_len;
    for (index_t i = s; i < 4 * s; ++i) {
      rig.host.tokens[i] = rig.host.tokens[i % s];
      rig.host.targets[i] = rig.host.targets[i % s];
      rig.host.segments[i] = rig.host.segments[i % s];
    }
    return run(rig, micro_batches);
  };
  const Result want = result(AuxScope::global, 1);
  for (const AuxScope scope : kScopes) {
    for (const int micro_batches : {1, 2, 4}) {
      const Result got = result(scope, micro_batches);
      EXPECT_NEAR(got.terms.balance, want.terms.balance, 1e-14);
      EXPECT_LT(relative_error(got.gradients, want.gradients), 1e-12);
    }
  }
}

TEST(BalanceLoss, MicroBatchesChangeNothing) {
  for (const AuxScope scope : {AuxScope::global, AuxScope::sequence}) {
    const auto result = [&](int micro_batches) {
      Rig<double> rig(aux_shape(scope), 4);
      mask_unevenly(rig.host, rig.model.shape().seq_len);
      return run(rig, micro_batches);
    };
    const Result want = result(1);
    for (const int micro_batches : {2, 4}) {
      const Result got = result(micro_batches);
      EXPECT_NEAR(got.loss, want.loss, 1e-13);
      EXPECT_NEAR(got.terms.balance, want.terms.balance, 1e-14);
      EXPECT_NEAR(got.terms.z, want.terms.z, 1e-14);
      EXPECT_EQ(got.report.load, want.report.load);
      EXPECT_LT(relative_error(got.gradients, want.gradients), 1e-12);
    }
  }
  // The scope of a micro-batch is what its name says: another split, another term.
  EXPECT_GT(std::fabs(run(aux_shape(AuxScope::micro_batch), 4).terms.balance -
                      run(aux_shape(AuxScope::micro_batch), 1).terms.balance),
            1e-6);
}

TEST(BalanceLoss, OfTheStepNeedsItsCountsFirst) {
  Rig<double> rig(aux_shape(AuxScope::global), 4);
  LossSums sums;
  rig.model.begin_step(38);
  EXPECT_THROW(
      rig.each_part(2,
                    [&](const DeviceBatch& b) { rig.model.train(b, 1, sums, rig.ctx); }),
      Error);
}

TEST(BalanceLoss, RecomputeChangesNoBit) {
  std::vector<ModelShape> shapes;
  for (const AuxScope scope : kScopes) shapes.push_back(aux_shape(scope));
  shapes.push_back(small_shape());
  shapes.back().balance = Balance::sign;
  shapes.back().sign_rate = 0.01;
  for (ModelShape s : shapes) {
    const Result want = run(s, 2);
    std::int64_t total = 0;
    for (const std::int64_t n : want.report.load) total += n;
    EXPECT_EQ(total, 38 * s.top_k * s.layers);
    for (const Recompute mode : {Recompute::moe, Recompute::full}) {
      s.recompute = mode;
      const Result got = run(s, 2);
      EXPECT_EQ(got.loss, want.loss);
      EXPECT_EQ(got.terms.balance, want.terms.balance);
      EXPECT_EQ(got.terms.z, want.terms.z);
      EXPECT_EQ(got.report.load, want.report.load);
      EXPECT_EQ(got.report.balance_loss, want.report.balance_loss);
      EXPECT_EQ(got.report.load_balance, want.report.load_balance);
      EXPECT_EQ(got.report.z_loss, want.report.z_loss);
      EXPECT_EQ(got.gradients, want.gradients);
      EXPECT_EQ(got.biases, want.biases);
    }
  }
}

TEST(BalanceLoss, PaddedSequencesChangeNothing) {
  for (const AuxScope scope : kScopes) {
    ModelShape s = aux_shape(scope);
    Rig<double> packed(s, 2), padded(s, 4);
    const std::size_t n = packed.host.tokens.size();
    std::copy_n(packed.host.tokens.begin(), n, padded.host.tokens.begin());
    std::copy_n(packed.host.targets.begin(), n, padded.host.targets.begin());
    std::copy_n(packed.host.segments.begin(), n, padded.host.segments.begin());
    for (std::size_t i = n; i < 2 * n; ++i)
      padded.host.targets[i] = padded.host.segments[i] = -1;
    const Result want = run(packed), got = run(padded);
    EXPECT_NEAR(got.loss, want.loss, 1e-14);
    EXPECT_NEAR(got.terms.balance, want.terms.balance, 1e-15);
    EXPECT_NEAR(got.terms.z, want.terms.z, 1e-15);
    EXPECT_EQ(got.report.load, want.report.load);
    EXPECT_LT(relative_error(got.gradients, want.gradients), 1e-13);
  }
}

TEST(BalanceLoss, CountsAreThoseBeforeDrops) {
  ModelShape s = aux_shape(AuxScope::global);
  s.layers = 1;  // a later layer reads what drops left
  const Result want = run(s);
  s.transport.kind = Transport::cells;
  s.transport.capacity_send = 0.4;
  const Result got = run(s);
  EXPECT_GT(got.report.drops.total(), 0);
  EXPECT_EQ(got.report.load, want.report.load);
  EXPECT_EQ(got.report.balance_loss, want.report.balance_loss);
  EXPECT_EQ(got.terms.balance, want.terms.balance);
  s.balance = Balance::sign;
  s.aux_loss = 0;
  s.sign_rate = 0.01;
  const Result dropped = run(s);
  s.transport.kind = Transport::dropless;
  EXPECT_GT(dot(dropped.biases, dropped.biases), 0);
  EXPECT_EQ(dropped.biases, run(s).biases);
}

TEST(BalanceLoss, CountingAheadSeesWhatTrainingDrops) {
  // The shares of the step come from a pass of their own: with drops in the first layer
  // its second must choose as the second of the training pass does.
  ModelShape s = aux_shape(AuxScope::global);
  s.layers = 4;
  for (const Transport kind : {Transport::cells, Transport::spill, Transport::ragged}) {
    s.transport.kind = kind;
    s.transport.capacity_send = s.transport.capacity_receive = 0.1;
    const Result r = run(s, 2, 8);
    EXPECT_GT(r.report.drops.total(), 0);
    // With shares of the step, the term is E sum f P of the sums over the step.
    for (index_t l = 0; l < s.layers; ++l)
      EXPECT_NEAR(r.report.balance_loss[l], r.report.load_balance[l] / s.top_k, 1e-14);
  }
}

ModelShape sign_shape(double rate) {
  ModelShape s = small_shape();
  s.balance = Balance::sign;
  s.sign_rate = rate;
  return s;
}

TEST(SignBias, FollowsTheLoadOfTheStepOnce) {
  const ModelShape s = sign_shape(0.01);
  for (const int micro_batches : {1, 2, 4}) {
    const Result r = run(s, micro_batches);
    for (index_t i = 0; i < s.layers * s.experts; ++i) {
      const double mean = 38.0 * s.top_k / s.experts;
      const double excess = static_cast<double>(r.report.load[i]) - mean;
      EXPECT_EQ(r.biases[i], excess == 0 ? 0 : excess < 0 ? 0.01 : -0.01);
    }
  }
}

TEST(SignBias, BalancesAFixedBatch) {
  const ModelShape s = sign_shape(0.02);
  Rig<double> rig(s, 8);
  const Result first = run(rig);
  Result last;
  for (int i = 0; i < 60; ++i) last = run(rig);
  for (index_t l = 0; l < s.layers; ++l) {
    EXPECT_GT(first.report.max_over_mean[l], 1.5);
    EXPECT_LT(last.report.max_over_mean[l], 1.25);
  }
}

TEST(SignBias, EvaluationLeavesCountsAndBias) {
  for (const Balance balance : {Balance::sign, Balance::aux, Balance::qb}) {
    ModelShape s = aux_shape(AuxScope::global);
    s.balance = balance;
    s.sign_rate = 0.01;
    Rig<float> plain(s, 4), evaluated(s, 4);
    for (int step = 0; step < 3; ++step) {
      const Result want = run(plain, 2);
      evaluated.evaluate();
      evaluated.train(2);
      evaluated.evaluate();
      EXPECT_EQ(values(evaluated.model.params().gradients()), want.gradients);
      const RouterReport report =
          evaluated.model.routers().end_step(evaluated.grid, evaluated.ctx);
      evaluated.evaluate();
      EXPECT_EQ(report.load, want.report.load);
      EXPECT_EQ(values(evaluated.model.routers().biases()), want.biases);
    }
  }
}

}  // namespace
}  // namespace capstan::test
