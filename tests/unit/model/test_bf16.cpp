// The whole model in bf16 against double at the same weights.
#include <gtest/gtest.h>

#include "unit/model/small_model.hpp"

namespace capstan::test {
namespace {

/// Masters that bf16 holds exactly, so that every type computes with the same weights.
template <class S>
void round_masters(Rig<S>& rig) {
  const auto masters = rig.model.params().masters();
  std::vector<Acc<S>> typed;
  for (const double x : values(masters)) typed.push_back(float(bf16(float(x))));
  copy_to_device<Acc<S>>(typed.data(), masters.data(), masters.extent(0));
  rig.model.params().refresh_weights();
}

/// ||a - b|| / ||b||.
double distance(const Values& a, const Values& b) {
  double error = 0, size = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    error += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  return std::sqrt(error / size);
}

/// Router logits of all tokens of the step, layer after layer.
template <class S>
Values logits_of(Rig<S>& rig) {
  Values all;
  for (index_t l = 0; l < rig.model.shape().layers; ++l) {
    const auto logits = rig.model.routers().logits(l, 0, rig.host.tokens.size());
    const Values v = values(logits);
    all.insert(all.end(), v.begin(), v.end());
  }
  return all;
}

/// Tokens whose experts (top_k logits; the bias of the first step is 0) differ.
int rerouted(const ModelShape& s, const Values& a, const Values& b) {
  int count = 0;
  for (std::size_t at = 0; at < a.size(); at += s.experts) {
    const auto chosen = [&](const Values& v) {
      std::vector<index_t> order(s.experts);
      for (index_t e = 0; e < s.experts; ++e) order[e] = e;
      std::sort(order.begin(), order.end(),
                [&](index_t i, index_t j) { return v[at + i] > v[at + j]; });
      std::sort(order.begin(), order.begin() + s.top_k);
      order.resize(s.top_k);
      return order;
    };
    count += chosen(a) != chosen(b);
  }
  return count;
}

/// Root mean square of the relative error of one rounding to bf16: a uniform error of
/// half a unit, 2^-8 / sqrt(3), over a mantissa that is log-uniform in [1, 2), 0.735.
constexpr double kRounding = 0x1p-8 / 1.732 * 0.735;

/// Tensors that are stored, and so rounded, on the way from the table to the loss: in a
/// norm with its gate y, a, h, z and the result; in a block two of them, q (or k, v), its
/// convolution and rotation, o, gated, the branch and the sum; latent_raw, latent, gate,
/// up, h, y, combined, and the branch (three times: shared experts add to it) and the
/// sum. The way back stores as many.
constexpr int roundings(index_t layers) {
  return static_cast<int>(2 * (2 * 5 + layers * (2 * 5 + 7 + 11)));
}

/// Two bounds. As a whole: independent roundings add up like a random walk, three times
/// its size allowed. Each tensor: float rounds the same quantities 2^16 times finer, so
/// its distance to double shows how much the model amplifies the roundings that reach
/// this tensor; three times that, scaled, since both are draws from few elements.
void check_gradients(std::uint64_t seed) {
  const ModelShape shape = small_shape();
  Rig<bf16> b(shape, 4, seed);
  Rig<float> f(shape, 4, seed);
  Rig<double> d(shape, 4, seed);
  round_masters(b), round_masters(f), round_masters(d);
  const double loss_b = b.train(), loss_d = d.train();
  f.train();
  ASSERT_EQ(rerouted(shape, logits_of(b), logits_of(d)), 0) << "choose another seed";
  const double walk = kRounding * std::sqrt(double(roundings(shape.layers)));
  EXPECT_NEAR(loss_b, loss_d, walk * loss_d / 10);  // a mean of 36 tokens
  EXPECT_LT(distance(logits_of(b), logits_of(d)), walk);
  EXPECT_LT(distance(values(b.model.params().gradients()),
                     values(d.model.params().gradients())),
            3 * walk);
  for (const ParamSlot& slot : d.model.params().slots()) {
    const auto of = [&](auto& rig) {
      return values(rig.model.params().part(rig.model.params().gradients(), slot));
    };
    EXPECT_LT(distance(of(b), of(d)), 3 * 0x1p16 * distance(of(f), of(d)))
        << slot.spec.name;
  }
}

TEST(Bf16Model, GradientsAreThoseOfDoubleToTheirRoundings) {
  for (const std::uint64_t seed : {1, 2, 5}) check_gradients(seed);
}

/// Elements with more bits than bf16 has.
double finer_than_bf16(const Values& v) {
  int count = 0;
  for (const double x : v) count += x != double(float(bf16(float(x))));
  return count / double(v.size());
}

TEST(Bf16Model, WhatStaysInFloat) {
  ModelShape s = small_shape();
  Rig<bf16> rig(s);
  rig.train();
  const auto& params = rig.model.params();
  EXPECT_GT(finer_than_bf16(logits_of(rig)), 0.9);
  for (const char* name : {"head/table", "layer_000/moe/w_up", "layer_001/attn/w_q"}) {
    const ParamSlot& slot = params.slot(name);
    // not all: experts without a token have a gradient of zeros
    EXPECT_GT(finer_than_bf16(values(params.part(params.gradients(), slot))), 0.5);
    EXPECT_GT(finer_than_bf16(values(params.part(params.masters(), slot))), 0.9);
    EXPECT_EQ(finer_than_bf16(values(params.part(params.weights(), slot))), 0.0);
  }
  s.router_bf16_out = true;
  Rig<bf16> rounded(s);
  rounded.train();
  EXPECT_EQ(finer_than_bf16(logits_of(rounded)), 0.0);
}

TEST(Bf16Model, RecomputeChangesNoBit) {
  ModelShape s = small_shape();
  Rig<bf16> none(s);
  const double loss = none.train();
  for (const Recompute mode : {Recompute::moe, Recompute::full}) {
    s.recompute = mode;
    Rig<bf16> other(s);
    EXPECT_EQ(loss, other.train());
    EXPECT_EQ(values(none.model.params().gradients()),
              values(other.model.params().gradients()));
  }
}

TEST(Bf16Model, MicroBatchesAccumulateInFloat) {
  Rig<bf16> one(small_shape(), 4), four(small_shape(), 4);
  EXPECT_NEAR(one.train(1), four.train(4), 1e-5);
  EXPECT_LT(distance(values(four.model.params().gradients()),
                     values(one.model.params().gradients())),
            1e-5);
}

}  // namespace
}  // namespace capstan::test
