// Attention against plain double-precision loops, finite differences, and the promise
// that documents do not touch each other.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "kernels/attention.hpp"
#include "kernels/tile_product.hpp"
#include "unit/check.hpp"

namespace capstan {
namespace {

using namespace test;

struct Inputs {
  AttentionShape shape;
  index_t stored_kv;  // kv heads in memory, at least shape.kv_heads
  Values q, k, v, d_o;
  std::vector<std::int32_t> segments;

  index_t tokens() const { return shape.sequences * shape.seq_len; }
  index_t width() const { return shape.heads * shape.head_dim; }
  index_t kv_width() const { return stored_kv * shape.head_dim; }
};

struct Outputs {
  Values o, lse, dq, dk, dv;
};

Inputs make(AttentionShape shape, index_t stored_kv, std::uint64_t seed = 1) {
  Inputs in{shape, stored_kv, {}, {}, {}, {}, {}};
  const index_t n = in.tokens();
  in.q = as_float(normal_values(n * in.width(), seed));
  in.k = as_float(normal_values(n * in.kv_width(), seed + 1));
  in.v = as_float(normal_values(n * in.kv_width(), seed + 2));
  in.d_o = as_float(normal_values(n * in.width(), seed + 3));
  in.segments.assign(n, 0);
  return in;
}

// Fills every sequence with the given runs of (segment, length); the rest is padding.
void lay_out(Inputs& in, const std::vector<std::pair<std::int32_t, index_t>>& runs) {
  in.segments.assign(in.tokens(), -1);
  for (index_t s = 0; s < in.shape.sequences; ++s) {
    index_t at = s * in.shape.seq_len;
    for (const auto& [segment, length] : runs)
      for (index_t i = 0; i < length; ++i) in.segments[at++] = segment;
  }
}

bool sees(const Inputs& in, index_t i, index_t j) {
  const index_t l = in.shape.seq_len, w = in.shape.window;
  return i / l == j / l && j <= i && (w == 0 || i - j < w) && in.segments[i] >= 0 &&
         in.segments[i] == in.segments[j];
}

// Plain loops, one softmax row at a time; gradients by the chain rule through P.
Outputs reference(const Inputs& in) {
  const index_t n = in.tokens(), heads = in.shape.heads, h = in.shape.head_dim;
  const index_t w = in.width(), kw = in.kv_width(), group = heads / in.shape.kv_heads;
  const double scale = 1 / std::sqrt(static_cast<double>(h));
  Outputs out{Values(n * w), Values(n * heads), Values(n * w), Values(n * kw),
              Values(n * kw)};
  for (index_t i = 0; i < n; ++i) {
    for (index_t a = 0; a < heads; ++a) {
      const index_t qi = i * w + a * h, kv = a / group * h;
      std::vector<index_t> keys;
      Values p;
      for (index_t j = i / in.shape.seq_len * in.shape.seq_len; j <= i; ++j) {
        if (!sees(in, i, j)) continue;
        double s = 0;
        for (index_t d = 0; d < h; ++d) s += in.q[qi + d] * in.k[j * kw + kv + d];
        keys.push_back(j);
        p.push_back(s * scale);
      }
      if (keys.empty()) continue;
      const double top = *std::max_element(p.begin(), p.end());
      double sum = 0;
      for (double& x : p) sum += x = std::exp(x - top);
      out.lse[i * heads + a] = top + std::log(sum);
      double delta = 0;
      Values dp(p.size());
      for (std::size_t m = 0; m < p.size(); ++m) {
        p[m] /= sum;
        for (index_t d = 0; d < h; ++d) {
          const double value = in.v[keys[m] * kw + kv + d];
          out.o[qi + d] += p[m] * value;
          dp[m] += in.d_o[qi + d] * value;
          out.dv[keys[m] * kw + kv + d] += p[m] * in.d_o[qi + d];
        }
        delta += p[m] * dp[m];
      }
      for (std::size_t m = 0; m < p.size(); ++m) {
        const double ds = p[m] * (dp[m] - delta) * scale;
        for (index_t d = 0; d < h; ++d) {
          out.dq[qi + d] += ds * in.k[keys[m] * kw + kv + d];
          out.dk[keys[m] * kw + kv + d] += ds * in.q[qi + d];
        }
      }
    }
  }
  return out;
}

template <class S>
Outputs compute(const Inputs& in) {
  const index_t n = in.tokens();
  const View2<S> q = view2<S>(n, in.width(), in.q), k = view2<S>(n, in.kv_width(), in.k);
  const View2<S> v = view2<S>(n, in.kv_width(), in.v),
                 d_o = view2<S>(n, in.width(), in.d_o);
  const View1<std::int32_t> segments = view_ints(in.segments);
  View2<S> o("o", n, in.width()), dq("dq", n, in.width());
  View2<S> dk("dk", n, in.kv_width()), dv("dv", n, in.kv_width());
  View2<Acc<S>> lse("lse", n, in.shape.heads), delta("delta", n, in.shape.heads);
  // Every output must be written, not added to.
  for (const View2<S>& view : {o, dq, dk, dv}) fill(view, S(7));
  attention<S>(in.shape, q, k, v, segments, o, lse);
  attention_backward<S>(in.shape, q, k, v, segments, o, lse, d_o, delta, dq, dk, dv);
  return {values(o), values(lse), values(dq), values(dk), values(dv)};
}

void expect_close(const Outputs& got, const Outputs& want, double limit) {
  EXPECT_LT(relative_error(got.o, want.o), limit);
  EXPECT_LT(relative_error(got.lse, want.lse), limit);
  EXPECT_LT(relative_error(got.dq, want.dq), limit);
  EXPECT_LT(relative_error(got.dk, want.dk), limit);
  EXPECT_LT(relative_error(got.dv, want.dv), limit);
}

void check(const Inputs& in) {
  const Outputs want = reference(in);
  expect_close(compute<double>(in), want, 1e-13);
  expect_close(compute<float>(in), want, 5e-6);
}

TEST(Attention, LengthsAroundTheTiles) {
  for (const index_t length : {1, 2, 31, 32, 33, 63, 64, 65, 127, 200})
    check(make({2, length, 2, 1, 8, 0}, 1));
}

TEST(Attention, WindowsOfAnySize) {
  for (const index_t window : {1, 2, 17, 63, 64, 65, 129, 149, 150, 1000})
    check(make({1, 150, 2, 2, 16, window}, 2));
}

TEST(Attention, HeadSizesOfBothTiles) {
  // 128 in float and 64 in double no longer fit the large tile in the backward.
  for (const index_t h : {1, 3, 16, 40, 64, 128}) check(make({1, 70, 2, 1, h, 50}, 1));
}

TEST(Attention, FewerKvHeadsThanStored) {
  for (const index_t kv : {1, 2, 3, 6}) check(make({2, 75, 6, kv, 8, 40}, 6));
}

TEST(Attention, UnusedKvHeadsGetZeroGradient) {
  const Inputs in = make({1, 40, 4, 1, 8, 0}, 3);
  const Outputs got = compute<float>(in);
  for (index_t t = 0; t < 40; ++t)
    for (index_t c = 8; c < 24; ++c) {
      ASSERT_EQ(got.dk[t * 24 + c], 0);
      ASSERT_EQ(got.dv[t * 24 + c], 0);
    }
}

TEST(Attention, SegmentsInAnyLayout) {
  Inputs in = make({2, 210, 2, 1, 8, 0}, 1);
  // Padding at both ends, a document across tiles, one inside a tile, single tokens,
  // padding in between, and a segment number that comes back.
  lay_out(in, {{-1, 5}, {3, 100}, {9, 1}, {4, 20}, {-2, 7}, {3, 40}, {0, 1}, {5, 30}});
  check(in);
  in.shape.window = 33;
  check(in);
  for (std::size_t i = 0; i < in.segments.size(); ++i)
    in.segments[i] = static_cast<std::int32_t>(i % 3) - 1;
  check(in);
}

TEST(Attention, OneDocumentWithPaddingInEveryTile) {
  Inputs in = make({1, 210, 2, 1, 8, 0}, 1);
  lay_out(in, {{-1, 5}, {2, 70}, {-1, 20}, {2, 75}, {-3, 2}, {2, 30}});
  check(in);
}

TEST(Attention, PaddingOnlyGivesZeros) {
  Inputs in = make({1, 70, 2, 1, 8, 0}, 1);
  lay_out(in, {});
  const Outputs got = compute<float>(in);
  for (const Values* v : {&got.o, &got.dq, &got.dk, &got.dv})
    for (const double x : *v) ASSERT_EQ(x, 0);
}

TEST(Attention, LargeScoresStayFinite) {
  Inputs in = make({1, 100, 1, 1, 16, 0}, 1);
  for (double& x : in.q) x *= 300;
  expect_close(compute<double>(in), reference(in), 1e-11);
  const Outputs got = compute<float>(in);
  EXPECT_LT(relative_error(got.o, reference(in).o), 1e-3);
  for (const Values* v : {&got.lse, &got.dq, &got.dk, &got.dv})
    for (const double x : *v) ASSERT_TRUE(std::isfinite(x));
}

TEST(Attention, FiniteDifferences) {
  Inputs in = make({1, 9, 2, 1, 4, 5}, 1);
  lay_out(in, {{1, 6}, {2, 2}});
  const Outputs got = compute<double>(in);
  const auto loss_of = [&](Values Inputs::*part) {
    return [&in, part](const Values& x) {
      Inputs moved = in;
      moved.*part = x;
      return dot(compute<double>(moved).o, in.d_o);
    };
  };
  EXPECT_LT(relative_error(got.dq, finite_difference(loss_of(&Inputs::q), in.q)), 1e-9);
  EXPECT_LT(relative_error(got.dk, finite_difference(loss_of(&Inputs::k), in.k)), 1e-9);
  EXPECT_LT(relative_error(got.dv, finite_difference(loss_of(&Inputs::v), in.v)), 1e-9);
}

// Rows [first, first + count) of a [T, width] array, bit for bit.
bool same_rows(const Values& a, const Values& b, index_t width, index_t first,
               index_t count) {
  return std::memcmp(&a[first * width], &b[first * width],
                     count * width * sizeof(double)) == 0;
}

TEST(Attention, DocumentsDoNotTouchEachOther) {
  for (const index_t split : {1, 40, 64, 90}) {
    const index_t length = 150;
    Inputs in = make({1, length, 2, 1, 16, 0}, 1);
    lay_out(in, {{0, split}, {1, length - split}});
    const Outputs before = compute<float>(in);
    for (const auto& [first, count] :
         {std::pair{index_t(0), split}, std::pair{split, length - split}}) {
      Inputs changed = in;
      for (index_t i = first * 32; i < (first + count) * 32; ++i) {
        changed.q[i] = 3 - 2 * in.q[i];
        changed.d_o[i] = 1 - in.d_o[i];
      }
      for (index_t i = first * 16; i < (first + count) * 16; ++i) {
        changed.k[i] = -3 * in.k[i];
        changed.v[i] = 5 - in.v[i];
      }
      const Outputs after = compute<float>(changed);
      const index_t other = first == 0 ? split : 0, rest = length - count;
      EXPECT_TRUE(same_rows(before.o, after.o, 32, other, rest));
      EXPECT_TRUE(same_rows(before.lse, after.lse, 2, other, rest));
      EXPECT_TRUE(same_rows(before.dq, after.dq, 32, other, rest));
      EXPECT_TRUE(same_rows(before.dk, after.dk, 16, other, rest));
      EXPECT_TRUE(same_rows(before.dv, after.dv, 16, other, rest));
      EXPECT_FALSE(same_rows(before.o, after.o, 32, first, count));
    }
  }
}

TEST(Attention, SameBitsForAnyNumberOfThreads) {
  const Inputs in = make({3, 130, 4, 2, 16, 70}, 2);
  const Outputs many = compute<float>(in);
  Outputs one;
  with_one_thread([&] { one = compute<float>(in); });
  EXPECT_EQ(many.o, one.o);
  EXPECT_EQ(many.dq, one.dq);
  EXPECT_EQ(many.dk, one.dk);
  EXPECT_EQ(many.dv, one.dv);
}

TEST(Attention, FlopsCountTilesInsideTheWindow) {
  // 4 tiles of 64 queries, causal: 10 tile pairs of 64 x 64, 4 h operations an element.
  EXPECT_EQ(attention_flops({1, 256, 1, 1, 32, 0}), 10.0 * 64 * 64 * 4 * 32);
  // A window of 65 reaches one tile back.
  EXPECT_EQ(attention_flops({2, 256, 3, 1, 32, 65}), 6 * 7.0 * 64 * 64 * 4 * 32);
}

// The definition that GPUs use, on a host team, against the one that hosts use.
template <class S, int B>
void compare_products(index_t m, index_t n) {
  const View1<S> a = view1<S>(normal_values(m * n, 1)),
                 b = view1<S>(normal_values(n * B, 2));
  const View1<S> start = view1<S>(normal_values(m * B, 3));
  View2<S> out("out", 2, m * B);
  for (const bool add : {false, true}) {
    for (const bool transposed : {false, true}) {
      const index_t row = transposed ? 1 : n, col = transposed ? m : 1;
      const int bytes = static_cast<int>(sizeof(S) * (n + m) * B);
      par_rows(
          "compare products", 2, bytes, KOKKOS_LAMBDA(const Team& team, index_t which) {
            S* right = reinterpret_cast<S*>(team.scratch());
            S* c = right + n * B;
            team.each(n * B, [&](index_t i) { right[i] = b(i); });
            team.each(m * B, [&](index_t i) { c[i] = start(i); });
            team.barrier();
            const Operand<S> left{a.data(), row, col};
            if (which == 0)
              tile_product<B>(team, m, n, left, right, c, add);
            else
              tile_product_any<B>(team, m, n, left, right, c, add);
            team.barrier();
            team.each(m * B, [&](index_t i) { out(which, i) = c[i]; });
          });
      const Values both = values(out);
      const Values first(both.begin(), both.begin() + m * B);
      const Values second(both.begin() + m * B, both.end());
      EXPECT_LT(relative_error(first, second), sizeof(S) == 8 ? 1e-14 : 1e-6);
    }
  }
}

TEST(TileProduct, BothDefinitionsAgree) {
  for (const index_t m : {1, 3, 8, 17, 64}) {
    compare_products<float, 64>(m, 33);
    compare_products<float, 32>(m, 16);
    compare_products<double, 64>(m, 7);
    compare_products<double, 32>(m, 64);
  }
}

}  // namespace
}  // namespace capstan
