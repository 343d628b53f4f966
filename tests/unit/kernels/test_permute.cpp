// Gathering rows by expert and combining them back, against plain loops; the backward
// passes are checked as adjoints and by finite differences.
#include <gtest/gtest.h>

#include "kernels/routing.hpp"
#include "unit/check.hpp"

namespace capstan {
namespace {

using namespace test;

// Assignments of 6 tokens to 2 choices, sorted by hand; -1 = left out (a dropped row).
constexpr index_t kTokens = 6, kChoices = 2, kRows = 9;
const std::vector<std::int32_t> kOrder{3, 8, 0, 5, 11, 1, 2, 4, 9};

std::vector<std::int32_t> slots() {
  std::vector<std::int32_t> slot(kTokens * kChoices, -1);
  for (index_t r = 0; r < kRows; ++r) slot[kOrder[r]] = static_cast<std::int32_t>(r);
  return slot;
}

Values plain_combine(const Values& y, const Values& weights, index_t z) {
  const std::vector<std::int32_t> slot = slots();
  Values out(kTokens * z, 0.0);
  for (index_t c = 0; c < kTokens * kChoices; ++c)
    for (index_t i = 0; i < z && slot[c] >= 0; ++i)
      out[c / kChoices * z + i] += weights[c] * y[slot[c] * z + i];
  return out;
}

template <class S>
Values run_combine(const Values& y, const Values& weights, index_t z) {
  View2<S> out("out", kTokens, z);
  fill(out, S(7));
  combine<S>(view2<S>(kRows, z, y), view_ints(slots()),
             view2<Acc<S>>(kTokens, kChoices, weights), out);
  return values(out);
}

class Permute : public testing::TestWithParam<index_t> {};
// Widths around the piece of 64 columns that is summed at a time.
INSTANTIATE_TEST_SUITE_P(Widths, Permute, testing::Values(1, 5, 63, 64, 65, 200));

TEST_P(Permute, GatherCopiesTheTokenOfEachRow) {
  const index_t z = GetParam();
  const Values x = as_float(normal_values(kTokens * z, 1));
  View2<float> y("y", kRows, z);
  gather_rows<float>(view2<float>(kTokens, z, x), view_ints(kOrder), kChoices, y);
  const Values got = values(y);
  for (index_t r = 0; r < kRows; ++r)
    for (index_t i = 0; i < z; ++i)
      ASSERT_EQ(got[r * z + i], x[kOrder[r] / kChoices * z + i]);
}

TEST_P(Permute, GatherBackwardIsTheAdjoint) {
  const index_t z = GetParam();
  const Values x = normal_values(kTokens * z, 2), dy = normal_values(kRows * z, 3);
  View2<double> y("y", kRows, z), dx("dx", kTokens, z);
  fill(dx, 7.0);
  gather_rows<double>(view2<double>(kTokens, z, x), view_ints(kOrder), kChoices, y);
  gather_rows_backward<double>(view2<double>(kRows, z, dy), view_ints(slots()), kChoices,
                               dx);
  EXPECT_NEAR(dot(values(y), dy), dot(x, values(dx)), 1e-12 * z);
  // Token 5 has one row only (4), so its gradient is that row; token 3 has none.
  const Values got = values(dx);
  for (index_t i = 0; i < z; ++i) {
    ASSERT_EQ(got[5 * z + i], dy[4 * z + i]);
    ASSERT_EQ(got[3 * z + i], 0);
  }
}

TEST_P(Permute, CombineWeighsTheRowsOfAToken) {
  const index_t z = GetParam();
  const Values y = as_float(normal_values(kRows * z, 4));
  const Values weights = as_float(normal_values(kTokens * kChoices, 5));
  const Values want = plain_combine(y, weights, z);
  EXPECT_LT(relative_error(run_combine<double>(y, weights, z), want), 1e-15);
  EXPECT_LT(relative_error(run_combine<float>(y, weights, z), want), 1e-6);
}

TEST_P(Permute, CombineBackward) {
  const index_t z = GetParam();
  const Values y = normal_values(kRows * z, 6), d_out = normal_values(kTokens * z, 7);
  const Values weights = normal_values(kTokens * kChoices, 8);
  const View2<double> y_view = view2<double>(kRows, z, y);
  View2<double> dy("dy", kRows, z), d_weights("d_weights", kTokens, kChoices);
  fill(d_weights, 7.0);
  const auto backward = [&](const View2<double>& to) {
    combine_backward<double>(y_view, view_ints(kOrder), view_ints(slots()),
                             view2<double>(kTokens, kChoices, weights),
                             view2<double>(kTokens, z, d_out), to, d_weights);
  };
  backward(dy);
  const auto of_y = [&](const Values& v) {
    return dot(plain_combine(v, weights, z), d_out);
  };
  const auto of_w = [&](const Values& w) { return dot(plain_combine(y, w, z), d_out); };
  EXPECT_LT(relative_error(values(dy), finite_difference(of_y, y)), 1e-9);
  EXPECT_LT(relative_error(values(d_weights), finite_difference(of_w, weights)), 1e-9);
  // In place: dy may be y's memory.
  const Values apart = values(dy), apart_weights = values(d_weights);
  backward(y_view);
  EXPECT_EQ(values(y_view), apart);
  EXPECT_EQ(values(d_weights), apart_weights);
}

TEST_P(Permute, RowsMoveAsTold) {
  const index_t z = GetParam();
  const std::vector<std::int32_t> index{2, 0, 3, 1, 2};
  const Values x = as_float(normal_values(4 * z, 9));
  View2<float> y("y", 5, z);
  permute_rows<float>(view2<float>(4, z, x), view_ints(index), y);
  const Values got = values(y);
  for (index_t r = 0; r < 5; ++r)
    for (index_t i = 0; i < z; ++i) ASSERT_EQ(got[r * z + i], x[index[r] * z + i]);
}

TEST(PermuteEdges, NoRowsAtAll) {
  const std::vector<std::int32_t> none(4, -1);
  View2<float> y("y", 0, 3), out("out", 2, 3), d_weights("d_weights", 2, 2);
  const View2<float> x = view2<float>(2, 3, Values(6, 1.0)),
                     w = view2<float>(2, 2, Values(4, 1.0));
  const View1<std::int32_t> order("order", 0);
  fill(out, 7.0f);
  fill(d_weights, 7.0f);
  gather_rows<float>(x, order, 2, y);
  combine<float>(y, view_ints(none), w, out);
  EXPECT_EQ(values(out), Values(6, 0.0));
  fill(out, 7.0f);
  gather_rows_backward<float>(y, view_ints(none), 2, out);
  EXPECT_EQ(values(out), Values(6, 0.0));
  combine_backward<float>(y, order, view_ints(none), w, x, y, d_weights);
  EXPECT_EQ(values(d_weights), Values(4, 0.0));
}

}  // namespace
}  // namespace capstan
