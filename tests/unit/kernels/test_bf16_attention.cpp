// Heads and attention in bf16.
#include "kernels/attention.hpp"
#include "kernels/dispatch.hpp"
#include "kernels/heads.hpp"
#include "unit/kernels/bf16_case.hpp"

namespace capstan {
namespace {

using namespace test;

constexpr index_t kSeqLen = 90, kRows = 2 * kSeqLen, kHeads = 4, kKv = 2, kDim = 32;

template <class S>
View2<S> heads(index_t n, std::uint64_t seed) {
  return view2<S>(kRows, n * kDim, bf16_values(kRows * n * kDim, seed));
}

/// Three documents in each sequence, and padding at the end of the last.
View1<std::int32_t> segments() {
  std::vector<std::int32_t> s(kRows);
  for (index_t i = 0; i < kRows; ++i) s[i] = i >= kRows - 3 ? -1 : i % kSeqLen / 40;
  return view_ints(s);
}

struct Turned {
  Values y, inv, dx;
};
template <class S>
Turned turned() {
  using A = Acc<S>;
  const auto x = heads<S>(kHeads, 1), dy = heads<S>(kHeads, 2);
  const auto y = heads<S>(kHeads, 3), dx = heads<S>(kHeads, 4);
  View2<A> inv("inv", kRows, kHeads);
  qk_norm_rope<S>(x, kHeads, kDim, kSeqLen, A(1e-6), kDim / 2, 1e4, A(1.3), y, inv);
  const auto saved = view2<A>(kRows, kHeads, as_float(values(inv)));
  qk_norm_rope_backward<S>(x, saved, kHeads, kDim, kSeqLen, A(1e-6), kDim / 2, 1e4,
                           A(1.3), dy, dx);
  return {values(y), values(inv), values(dx)};
}

TEST(Bf16, QkNormAndRope) {
  const Turned b = turned<bf16>(), d = turned<double>();
  expect_rounded(b.y, d.y, "y");
  expect_float(b.inv, d.inv, "inv");
  expect_rounded(b.dx, d.dx, "dx");
}

struct Gated {
  Values y, d_o, dv, d_gate;
};
template <class S>
Gated gated() {
  const auto o = heads<S>(kHeads, 1), dy = heads<S>(kHeads, 2), y = heads<S>(kHeads, 3);
  const auto d_o = heads<S>(kHeads, 4), v = heads<S>(kKv, 5);
  // one query head to a value head: with more, dv is rounded once for each
  const auto v_all = heads<S>(kHeads, 6), dv_all = heads<S>(kHeads, 7);
  const auto gate = view2<S>(kRows, kHeads, bf16_values(kRows * kHeads, 8));
  View2<S> d_gate("d_gate", kRows, kHeads);
  xsa_gate<S>(o, v, gate, kHeads, kKv, kDim, true, y);
  xsa_gate_backward<S>(o, v_all, gate, kHeads, kHeads, kDim, true, dy, d_o, dv_all,
                       d_gate);
  return {values(y), values(d_o), values(dv_all), values(d_gate)};
}

TEST(Bf16, XsaAndHeadGate) {
  const Gated b = gated<bf16>(), d = gated<double>();
  expect_rounded(b.y, d.y, "y");
  expect_rounded(b.d_o, d.d_o, "d_o");
  expect_rounded(b.dv, d.dv, "dv");
  expect_rounded(b.d_gate, d.d_gate, "d_gate", 1e-5);
}

struct Core {
  Values o, lse, dq, dk, dv;
};
/// The backward pass takes o and lse as bf16 and float hold them.
template <class S>
Core core(index_t window) {
  using A = Acc<S>;
  const AttentionShape shape{2, kSeqLen, kHeads, kKv, kDim, window};
  const auto q = heads<S>(kHeads, 1), k = heads<S>(kKv, 2), v = heads<S>(kKv, 3);
  const auto o = heads<S>(kHeads, 4), d_o = heads<S>(kHeads, 5);
  const auto dq = heads<S>(kHeads, 6), dk = heads<S>(kKv, 7), dv = heads<S>(kKv, 8);
  View2<A> lse("lse", kRows, kHeads), delta("delta", kRows, kHeads);
  attention<S>(shape, q, k, v, segments(), o, lse);
  const auto out = view2<S>(kRows, kHeads * kDim, as_bf16(values(o)));
  const auto sums = view2<A>(kRows, kHeads, as_float(values(lse)));
  attention_backward<S>(shape, q, k, v, segments(), out, sums, d_o, delta, dq, dk, dv);
  return {values(o), values(lse), values(dq), values(dk), values(dv)};
}

TEST(Bf16, Attention) {
  for (const index_t window : {0, 25}) {
    const Core b = core<bf16>(window), d = core<double>(window);
    expect_rounded(b.o, d.o, "o", 1e-5);
    expect_float(b.lse, d.lse, "lse");
    // o is rounded: where two neighbours are equally near, both types may differ by a
    // step in delta, which is a sum of kDim such terms.
    expect_rounded(b.dq, d.dq, "dq", 1e-3);
    expect_rounded(b.dk, d.dk, "dk", 1e-3);
    expect_rounded(b.dv, d.dv, "dv", 1e-5);
  }
}

TEST(Bf16, IdsOfRowsAreExactUpTo256Experts) {
  const index_t pool = 600, local = 256;
  const PoolLayout layout{1, 1, pool, (pool + kDim - 1) / kDim};
  std::vector<std::int32_t> listed(layout.rows(), -1), experts(pool);
  for (index_t i = 0; i < pool; ++i) {
    listed[i] = static_cast<std::int32_t>(i);
    experts[i] = static_cast<std::int32_t>(i % local);
  }
  View2<bf16> rows("rows", layout.rows(), kDim);
  pack_ids<bf16>(view_ints(listed), view_ints(experts), local, layout, rows);
  const ArrivedBlocks blocks{view1<index_t>({0, double(layout.rows())}),
                             view1<index_t>({double(pool)})};
  View1<std::int32_t> ids("ids", layout.rows());
  unpack_ids<bf16>(rows, blocks, ids);
  const Values found = values(ids);
  for (index_t i = 0; i < pool; ++i) EXPECT_EQ(found[i], experts[i] + 1);
}

}  // namespace
}  // namespace capstan
