// Grouped products against one plain product for each group.
#include <gtest/gtest.h>

#include <limits>

#include "unit/blas/operands.hpp"

using namespace capstan::blas;
using namespace capstan::test;

namespace {

using Offsets = std::vector<index_t>;

/// Loads with empty groups, single rows, one huge group, and none at all.
const std::vector<Offsets> kLoads = {{0, 5},
                                     {0, 0, 0, 0},
                                     {0, 1, 1, 2, 100, 100},
                                     {0, 0, 400, 400, 403, 410},
                                     {0, 64, 128, 192, 256, 320, 384, 448, 512},
                                     {0, 3, 20, 21, 61, 75, 75, 170, 300, 331, 331}};

template <class S, class C = S>
struct Experts {
  using A = capstan::Acc<S>;
  const Offsets& offsets;
  index_t in, out;
  Op op = Op::N;

  index_t groups() const { return index_t(offsets.size()) - 1; }
  index_t rows() const { return offsets.back(); }
  std::vector<S> x() const { return uniform<S>(rows() * in, 11); }
  std::vector<S> w() const { return uniform<S>(groups() * in * out, 12); }
  std::vector<S> dy() const { return uniform<S>(rows() * out, 13); }
  std::vector<C> y() const { return uniform<C>(rows() * out, 14); }
  std::vector<C> dw() const { return uniform<C>(groups() * in * out, 15); }

  std::vector<C> forward(A alpha, A beta, const std::vector<C>& c) const {
    const OnDevice<S> a(x()), b(w());
    const OnDevice<C> result(c);
    grouped_gemm<S, C>(op, groups(), offsets.data(), in, out, alpha, a.data(), b.data(),
                       beta, result.data());
    return result.back();
  }
  std::vector<double> forward_expected(A alpha, A beta, const std::vector<C>& y) const {
    const auto a = widened(x()), b = widened(w());
    auto c = widened(y);
    for (index_t g = 0; g < groups(); ++g)
      reference::gemm<double>(Op::N, op, offsets[g + 1] - offsets[g], out, in, alpha,
                              a.data() + offsets[g] * in, in, b.data() + g * in * out,
                              op == Op::N ? out : in, beta, c.data() + offsets[g] * out,
                              out);
    return c;
  }
  std::vector<C> weights(A alpha, A beta, const std::vector<C>& c) const {
    const OnDevice<S> a(x()), b(dy());
    const OnDevice<C> result(c);
    grouped_gemm_weights<S, C>(groups(), offsets.data(), in, out, alpha, a.data(),
                               b.data(), beta, result.data());
    return result.back();
  }
  std::vector<double> weights_expected(A alpha, A beta, const std::vector<C>& dw) const {
    const auto a = widened(x()), b = widened(dy());
    auto c = widened(dw);
    for (index_t g = 0; g < groups(); ++g)
      reference::gemm<double>(Op::T, Op::N, in, out, offsets[g + 1] - offsets[g], alpha,
                              a.data() + offsets[g] * in, in, b.data() + offsets[g] * out,
                              out, beta, c.data() + g * in * out, out);
    return c;
  }
};

template <class T>
class Grouped : public testing::Test {};
using Scalars = testing::Types<Types<float>, Types<double>, Types<capstan::bf16>,
                               Types<capstan::bf16, float>>;
TYPED_TEST_SUITE(Grouped, Scalars);

constexpr int kThreads[] = {1, 2, 3};

}  // namespace

TYPED_TEST(Grouped, ForwardAgreesWithTheReference) {
  using S = typename TypeParam::S;
  using C = typename TypeParam::C;
  for (int n : kThreads)
    for (const Offsets& load : kLoads)
      for (Op op : {Op::N, Op::T})
        for (float alpha : {1.f, 0.5f})
          for (float beta : {0.f, 1.f}) {
            const Threads threads(n);
            const Experts<S, C> e{load, 37, 50, op};
            const auto expected = e.forward_expected(alpha, beta, e.y());
            EXPECT_LE(distance(e.forward(alpha, beta, e.y()), expected),
                      (bound<S, C>(37, expected)))
                << n << " threads, " << load.back() << " rows";
          }
}

TYPED_TEST(Grouped, WeightsAgreeWithTheReference) {
  using S = typename TypeParam::S;
  using C = typename TypeParam::C;
  for (int n : kThreads)
    for (const Offsets& load : kLoads)
      for (float alpha : {1.f, 0.5f})
        for (float beta : {0.f, 1.f, 2.f}) {
          const Threads threads(n);
          const Experts<S, C> e{load, 29, 70};
          const auto expected = e.weights_expected(alpha, beta, e.dw());
          EXPECT_LE(distance(e.weights(alpha, beta, e.dw()), expected),
                    (bound<S, C>(e.rows(), expected)))
              << n << " threads, " << load.back() << " rows";
        }
}

TYPED_TEST(Grouped, BetaZeroDoesNotReadTheOutput) {
  using S = typename TypeParam::S;
  using C = typename TypeParam::C;
  const C nan(std::numeric_limits<float>::quiet_NaN());
  for (const Offsets& load : kLoads) {
    const Experts<S, C> e{load, 37, 50};
    const auto y = e.forward(1, 0, std::vector<C>(e.y().size(), nan));
    const auto expected = e.forward_expected(1, 0, e.y());
    EXPECT_LE(distance(y, expected), (bound<S, C>(37, expected)));
    const auto dw = e.weights(1, 0, std::vector<C>(e.dw().size(), nan));
    const auto gradient = e.weights_expected(1, 0, e.dw());
    EXPECT_LE(distance(dw, gradient), (bound<S, C>(e.rows(), gradient)));
  }
}

TYPED_TEST(Grouped, RowsOutsideTheGroupsStay) {
  using S = typename TypeParam::S;
  using C = typename TypeParam::C;
  // Groups begin at row 3 of X and end before its last two rows.
  const Offsets load = {3, 10, 10, 40};
  const index_t in = 8, out = 6, rows = 42;
  const auto x = uniform<S>(rows * in, 1), w = uniform<S>(3 * in * out, 2);
  const OnDevice<S> a(x), b(w);
  const OnDevice<C> result(std::vector<C>(rows * out, C(9)));
  grouped_gemm<S, C>(Op::N, 3, load.data(), in, out, 1, a.data(), b.data(), 0,
                     result.data());
  const std::vector<C> y = result.back();
  for (index_t i = 0; i < rows; ++i)
    for (index_t j = 0; j < out; ++j) {
      double expected = 9;
      if (i >= 3 && i < 40) {
        expected = 0;
        for (index_t p = 0; p < in; ++p)
          expected +=
              double(x[i * in + p]) * double(w[((i < 10 ? 0 : 2) * in + p) * out + j]);
      }
      EXPECT_NEAR(y[i * out + j], expected, (bound<S, C>(in, {expected})))
          << i << " " << j;
    }
}

TYPED_TEST(Grouped, SameBitsAgain) {
  using S = typename TypeParam::S;
  using C = typename TypeParam::C;
  for (const Offsets& load : kLoads) {
    const Experts<S, C> e{load, 128, 96};
    const auto y = e.forward(1, 1, e.y());
    const auto dw = e.weights(1, 1, e.dw());
    for (int again = 0; again < 3; ++again) {
      const auto y2 = e.forward(1, 1, e.y());
      const auto dw2 = e.weights(1, 1, e.dw());
      EXPECT_TRUE(y2 == y);
      EXPECT_TRUE(dw2 == dw);
    }
  }
}

TEST(GroupedFlops, CountsRowsOfGroups) {
  reset_flops_issued();
  const Experts<double> e{kLoads[2], 4, 6};
  e.forward(1, 0, e.y());
  EXPECT_EQ(flops_issued(), 2.0 * 100 * 4 * 6);
  e.weights(1, 0, e.dw());
  EXPECT_EQ(flops_issued(), 4.0 * 100 * 4 * 6);
}
