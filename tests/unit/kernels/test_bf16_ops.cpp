// Norms, convolution, SwiGLU, embedding, permutations, losses and updates in bf16.
#include <algorithm>

#include "kernels/adamw.hpp"
#include "kernels/cross_entropy.hpp"
#include "kernels/embedding.hpp"
#include "kernels/hyperball.hpp"
#include "kernels/linear.hpp"
#include "kernels/norm.hpp"
#include "kernels/routing.hpp"
#include "kernels/sconv.hpp"
#include "kernels/swiglu.hpp"
#include "unit/kernels/bf16_case.hpp"

namespace capstan {
namespace {

using namespace test;

constexpr index_t kRows = 37, kWidth = 83;
constexpr index_t kSize = kRows * kWidth;

template <class S>
View2<S> matrix(std::uint64_t seed, double std = 1) {
  return view2<S>(kRows, kWidth, bf16_values(kSize, seed, std));
}
template <class S>
View1<S> vector(std::uint64_t seed, index_t n = kWidth) {
  return view1<S>(bf16_values(n, seed));
}

struct Norm {
  Values y, inv, dx, added, d_gain;
};
template <class S>
Norm norm() {
  using A = Acc<S>;
  const auto x = matrix<S>(1), dy = matrix<S>(2), dx = matrix<S>(3), y = matrix<S>(4);
  const auto added = matrix<S>(5);
  const auto gain = vector<S>(6);
  View1<A> inv("inv", kRows), d_gain("d_gain", kWidth);
  rms_norm<S>(x, gain, A(1e-5), y, inv);
  // one inverse for both types, as bf16 saves a float
  const auto saved = view1<A>(as_float(values(inv)));
  rms_norm_backward<S>(x, gain, saved, dy, false, dx, d_gain);
  rms_norm_backward<S>(x, gain, saved, dy, true, added, d_gain);
  return {values(y), values(inv), values(dx), values(added), values(d_gain)};
}

TEST(Bf16, RmsNorm) {
  const Norm b = norm<bf16>(), d = norm<double>();
  expect_rounded(b.y, d.y, "y");
  expect_float(b.inv, d.inv, "inv");
  expect_rounded(b.dx, d.dx, "dx");
  expect_rounded(b.added, d.added, "dx +=");
  expect_float(b.d_gain, d.d_gain, "d_gain");
}

struct Gate {
  Values h, da, out, dy, dz;
};
template <class S>
Gate gate() {
  const auto a = matrix<S>(1, 3), b = matrix<S>(2), c = matrix<S>(3);
  const auto h = matrix<S>(4), da = matrix<S>(5), out = matrix<S>(6);
  const auto dy = matrix<S>(7), dz = matrix<S>(8);
  silu_forward<S>(a, h);
  silu_backward<S>(a, b, da);
  gate_forward<S>(b, a, out);
  gate_backward<S>(b, a, c, dy, dz);
  return {values(h), values(da), values(out), values(dy), values(dz)};
}

TEST(Bf16, GatedNorm) {
  const Gate b = gate<bf16>(), d = gate<double>();
  expect_rounded(b.h, d.h, "silu");
  expect_rounded(b.da, d.da, "silu'");
  expect_rounded(b.out, d.out, "gate");
  expect_rounded(b.dy, d.dy, "dy");
  expect_rounded(b.dz, d.dz, "dz");
}

struct Swiglu {
  Values y, d_gate, d_up, again, sum, added;
};
template <class S>
Swiglu swiglu_pass() {
  const auto made = [](std::uint64_t seed) {
    return view1<S>(bf16_values(kSize, seed, seed == 1 ? 3 : 1));
  };
  const auto g = made(1), u = made(2), dy = made(3), y = made(4), d_gate = made(5);
  const auto d_up = made(6), again = made(7), sum = made(8), added = made(9);
  swiglu<S>(g, u, y);
  swiglu_backward<S>(g, u, dy, d_gate, d_up, again);
  add<S>(g, u, sum);
  add_to<S>(g, added);
  return {values(y),     values(d_gate), values(d_up),
          values(again), values(sum),    values(added)};
}

TEST(Bf16, Swiglu) {
  const Swiglu b = swiglu_pass<bf16>(), d = swiglu_pass<double>();
  expect_rounded(b.y, d.y, "y");
  EXPECT_EQ(b.again, b.y);
  expect_rounded(b.d_gate, d.d_gate, "d_gate");
  expect_rounded(b.d_up, d.d_up, "d_up");
  EXPECT_EQ(b.sum, as_bf16(d.sum));  // the sum of two bf16 in float, rounded: to nearest
  EXPECT_EQ(b.added, as_bf16(d.added));
}

template <class S>
Norm convolution() {
  const index_t taps = 3, seq_len = kRows;
  std::vector<std::int32_t> segment(kRows);
  for (index_t i = 0; i < kRows; ++i) segment[i] = i > 33 ? -1 : i / 11;
  const auto x = matrix<S>(1), dy = matrix<S>(2), residual = matrix<S>(3);
  const auto y = matrix<S>(4), dx = matrix<S>(5);
  const auto w = view2<S>(taps, kWidth, bf16_values(taps * kWidth, 6));
  View2<Acc<S>> dw("dw", taps, kWidth);
  sconv<S>(x, w, view_ints(segment), seq_len, residual, y);
  sconv_backward<S>(x, w, view_ints(segment), seq_len, dy, dx, dw);
  return {values(y), {}, values(dx), {}, values(dw)};
}

TEST(Bf16, Convolution) {
  const Norm b = convolution<bf16>(), d = convolution<double>();
  expect_rounded(b.y, d.y, "y");
  expect_rounded(b.dx, d.dx, "dx");
  expect_float(b.d_gain, d.d_gain, "dw");
}

template <class S>
Norm embedded() {
  std::vector<std::int32_t> tokens(kRows);
  for (index_t i = 0; i < kRows; ++i) tokens[i] = i == 5 ? -1 : i * i % 7;
  const TokenGroups groups = group_tokens(tokens.data(), kRows);
  const auto table = view2<S>(7, kWidth, bf16_values(7 * kWidth, 1));
  const auto y = matrix<S>(2), dy = matrix<S>(3);
  View2<Acc<S>> d_table("d_table", 7, kWidth);
  embedding<S>(view_ints(tokens), table, y);
  embedding_backward<S>(view_ints(groups.order), view_ints(groups.starts),
                        view_ints(groups.tokens), dy, d_table);
  return {values(y), {}, {}, {}, values(d_table)};
}

TEST(Bf16, Embedding) {
  const Norm b = embedded<bf16>(), d = embedded<double>();
  EXPECT_EQ(b.y, d.y);
  expect_float(b.d_gain, d.d_gain, "d_table");
}

struct Permuted {
  Values sent, back, combined, dy, d_weights;
};
template <class S>
Permuted permuted() {
  using A = Acc<S>;
  const index_t k = 2, n = kRows * k;
  std::vector<std::int32_t> order(n), slot(n, -1);
  for (index_t r = 0; r < n; ++r) {  // 29 and 74 have no common divisor
    const index_t a = r * 29 % n;
    order[r] = r == 3 ? -1 : static_cast<std::int32_t>(a);
    if (r != 3) slot[a] = static_cast<std::int32_t>(r);
  }
  const auto x = matrix<S>(1), out = matrix<S>(2), back = matrix<S>(3);
  const auto d_out = matrix<S>(4);
  const auto sent = view2<S>(n, kWidth, Values(n * kWidth, 0.0));
  const auto y = view2<S>(n, kWidth, bf16_values(n * kWidth, 5));
  const auto dy = view2<S>(n, kWidth, Values(n * kWidth, 0.0));
  const auto weights = view2<A>(kRows, k, as_float(normal_values(n, 6)));
  View2<A> d_weights("d_weights", kRows, k);
  gather_rows<S>(x, view_ints(order), k, sent);
  gather_rows_backward<S>(y, view_ints(slot), k, back);
  combine<S>(y, view_ints(slot), weights, out);
  combine_backward<S>(y, view_ints(order), view_ints(slot), weights, d_out, dy,
                      d_weights);
  return {values(sent), values(back), values(out), values(dy), values(d_weights)};
}

TEST(Bf16, Permutation) {
  const Permuted b = permuted<bf16>(), d = permuted<double>();
  EXPECT_EQ(b.sent, d.sent);
  EXPECT_EQ(b.back, as_bf16(d.back));
  expect_rounded(b.combined, d.combined, "combined");
  expect_rounded(b.dy, d.dy, "dy");
  expect_float(b.d_weights, d.d_weights, "d_weights");
}

struct Entropy {
  Values ce, z, gradient;
};
template <class S>
Entropy entropy() {
  using A = Acc<S>;
  std::vector<std::int32_t> targets(kRows);
  for (index_t i = 0; i < kRows; ++i) targets[i] = i == 4 ? -1 : i * 17 % kWidth;
  const auto logits = view2<A>(kRows, kWidth, as_float(normal_values(kSize, 1, 3)));
  View2<S> d("d", kRows, kWidth);
  View1<A> ce("ce", kRows), z("z", kRows);
  cross_entropy<S>(logits, view_ints(targets), A(0.25), A(0.01), d, ce, z);
  return {values(ce), values(z), values(d)};
}

TEST(Bf16, CrossEntropyReadsFloatAndRoundsItsGradient) {
  const Entropy b = entropy<bf16>(), d = entropy<double>();
  expect_float(b.ce, d.ce, "cross-entropy");
  expect_float(b.z, d.z, "z");
  expect_rounded(b.gradient, d.gradient, "gradient");
}

TEST(Bf16, LinearLayersSumInFloat) {
  const auto x = matrix<bf16>(1), dy = matrix<bf16>(2);
  const auto w = view2<bf16>(kWidth, kWidth, bf16_values(kWidth * kWidth, 3));
  View2<float> sums("sums", kRows, kWidth), dw("dw", kWidth, kWidth);
  View2<bf16> rounded("rounded", kRows, kWidth);
  linear<bf16>(x, w, sums);
  linear<bf16>(x, w, rounded);
  EXPECT_EQ(values(rounded), as_bf16(values(sums)));
  for (int i = 0; i < 3; ++i) linear_weight<bf16>(x, dy, dw);
  View2<double> exact("exact", kWidth, kWidth);
  for (int i = 0; i < 3; ++i)
    linear_weight<double>(matrix<double>(1), matrix<double>(2), exact);
  expect_float(values(dw), values(exact), "three times dW");
}

/// Sets of experts (ascending) of all tokens.
template <class T>
std::vector<std::vector<double>> chosen(View2<T> logits, index_t k) {
  const index_t t = logits.extent(0), e = logits.extent(1);
  View2<std::int32_t> experts("experts", t, k);
  View2<T> weights("weights", t, k);
  View1<T> alpha("alpha", t), bias("bias", e);
  route<T>(logits, bias, View1<std::int32_t>("segments", t), Score::sigmoid, T(1),
           experts, weights, alpha);
  const Values all = values(experts);
  std::vector<std::vector<double>> sets;
  for (index_t i = 0; i < t; ++i) {
    sets.emplace_back(all.begin() + i * k, all.begin() + (i + 1) * k);
    std::sort(sets.back().begin(), sets.back().end());
  }
  return sets;
}

TEST(Bf16, RouterInFloatChoosesAsInDouble) {
  // marin-community/marin#8435: rounded logits choose other experts for some percent of
  // the tokens; kept in float the choice is that of exact arithmetic.
  const index_t t = 4000, d = 128, e = 64, k = 8;
  const Values x = bf16_values(t * d, 1), w = bf16_values(d * e, 2, 0.05);
  View2<float> logits("logits", t, e);
  View2<bf16> rounded("rounded", t, e);
  View2<double> exact("exact", t, e);
  linear<bf16>(view2<bf16>(t, d, x), view2<bf16>(d, e, w), logits);
  linear<bf16>(view2<bf16>(t, d, x), view2<bf16>(d, e, w), rounded);
  linear<double>(view2<double>(t, d, x), view2<double>(d, e, w), exact);
  const auto expected = chosen<double>(exact, k);
  const auto in_float = chosen<float>(logits, k);
  const auto in_bf16 = chosen<float>(view2<float>(t, e, values(rounded)), k);
  index_t wrong = 0, wrong_rounded = 0;
  for (index_t i = 0; i < t; ++i) {
    wrong += in_float[i] != expected[i];
    wrong_rounded += in_bf16[i] != expected[i];
  }
  EXPECT_LE(wrong, t / 1000);
  EXPECT_GE(wrong_rounded, t / 100);
}

TEST(Bf16, UpdatesMoveTheMasterAndRoundTheCopy) {
  // Steps far below the spacing of bf16 at 1 (2^-7): the master collects them.
  const index_t n = 5000;
  const auto gradient = view1<float>(Values(n, 1.0)),
             master = view1<float>(Values(n, 1.0));
  View1<float> m("m", n), v("v", n);
  View1<bf16> weights("weights", n);
  AdamStep step;
  step.lr = 1e-4;
  for (step.count = 1; step.count <= 100; ++step.count)
    adamw<bf16>(step, gradient, master, m, v, weights);
  for (const double x : values(master)) EXPECT_NEAR(x, 0.99, 1e-5);
  EXPECT_EQ(values(weights), as_bf16(values(master)));
  const auto direction = view1<float>(normal_values(n, 1));
  const auto factors = view1<double>({0.5, 2e-3});
  keep_and_move<bf16>(1, n, factors, direction, master, weights);
  EXPECT_EQ(values(weights), as_bf16(values(master)));
  EXPECT_NEAR(values(master)[0], 0.495 - 2e-3 * values(direction)[0], 1e-5);
}

}  // namespace
}  // namespace capstan
