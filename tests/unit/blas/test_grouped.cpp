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

template <class S>
struct Experts {
  const Offsets& offsets;
  index_t in, out;
  Op op = Op::N;

  index_t groups() const { return index_t(offsets.size()) - 1; }
  index_t rows() const { return offsets.back(); }
  std::vector<S> x() const { return uniform<S>(rows() * in, 11); }
  std::vector<S> w() const { return uniform<S>(groups() * in * out, 12); }
  std::vector<S> y() const { return uniform<S>(rows() * out, 13); }

  std::vector<S> forward(S alpha, S beta, const std::vector<S>& c) const {
    const OnDevice<S> a(x()), b(w()), result(c);
    grouped_gemm<S>(op, groups(), offsets.data(), in, out, alpha, a.data(), b.data(),
                    beta, result.data());
    return result.back();
  }
  std::vector<S> forward_expected(S alpha, S beta, std::vector<S> c) const {
    const auto a = x(), b = w();
    for (index_t g = 0; g < groups(); ++g)
      reference::gemm<S>(Op::N, op, offsets[g + 1] - offsets[g], out, in, alpha,
                         a.data() + offsets[g] * in, in, b.data() + g * in * out,
                         op == Op::N ? out : in, beta, c.data() + offsets[g] * out, out);
    return c;
  }
  std::vector<S> weights(S alpha, S beta, const std::vector<S>& c) const {
    const OnDevice<S> a(x()), b(y()), result(c);
    grouped_gemm_weights<S>(groups(), offsets.data(), in, out, alpha, a.data(), b.data(),
                            beta, result.data());
    return result.back();
  }
  std::vector<S> weights_expected(S alpha, S beta, std::vector<S> c) const {
    const auto a = x(), b = y();
    for (index_t g = 0; g < groups(); ++g)
      reference::gemm<S>(Op::T, Op::N, in, out, offsets[g + 1] - offsets[g], alpha,
                         a.data() + offsets[g] * in, in, b.data() + offsets[g] * out, out,
                         beta, c.data() + g * in * out, out);
    return c;
  }
};

template <class S>
class Grouped : public testing::Test {};
using Scalars = testing::Types<float, double>;
TYPED_TEST_SUITE(Grouped, Scalars);

constexpr int kThreads[] = {1, 2, 3};

}  // namespace

TYPED_TEST(Grouped, ForwardAgreesWithTheReference) {
  using S = TypeParam;
  for (int n : kThreads)
    for (const Offsets& load : kLoads)
      for (Op op : {Op::N, Op::T})
        for (S alpha : {S(1), S(0.5)})
          for (S beta : {S(0), S(1)}) {
            const Threads threads(n);
            const Experts<S> e{load, 37, 50, op};
            EXPECT_LE(distance(e.forward(alpha, beta, e.y()),
                               e.forward_expected(alpha, beta, e.y())),
                      bound<S>(37))
                << n << " threads, " << load.back() << " rows";
          }
}

TYPED_TEST(Grouped, WeightsAgreeWithTheReference) {
  using S = TypeParam;
  for (int n : kThreads)
    for (const Offsets& load : kLoads)
      for (S alpha : {S(1), S(0.5)})
        for (S beta : {S(0), S(1), S(2)}) {
          const Threads threads(n);
          const Experts<S> e{load, 29, 70};
          EXPECT_LE(distance(e.weights(alpha, beta, e.w()),
                             e.weights_expected(alpha, beta, e.w())),
                    bound<S>(e.rows()))
              << n << " threads, " << load.back() << " rows";
        }
}

TYPED_TEST(Grouped, BetaZeroDoesNotReadTheOutput) {
  using S = TypeParam;
  const S nan = std::numeric_limits<S>::quiet_NaN();
  for (const Offsets& load : kLoads) {
    const Experts<S> e{load, 37, 50};
    const auto y = e.forward(S(1), S(0), std::vector<S>(e.y().size(), nan));
    EXPECT_LE(distance(y, e.forward_expected(S(1), S(0), e.y())), bound<S>(37));
    const auto dw = e.weights(S(1), S(0), std::vector<S>(e.w().size(), nan));
    EXPECT_LE(distance(dw, e.weights_expected(S(1), S(0), e.w())), bound<S>(e.rows()));
  }
}

TYPED_TEST(Grouped, RowsOutsideTheGroupsStay) {
  using S = TypeParam;
  // Groups begin at row 3 of X and end before its last two rows.
  const Offsets load = {3, 10, 10, 40};
  const index_t in = 8, out = 6, rows = 42;
  const auto x = uniform<S>(rows * in, 1), w = uniform<S>(3 * in * out, 2);
  const OnDevice<S> a(x), b(w), result(std::vector<S>(rows * out, S(9)));
  grouped_gemm<S>(Op::N, 3, load.data(), in, out, S(1), a.data(), b.data(), S(0),
                  result.data());
  const std::vector<S> y = result.back();
  for (index_t i = 0; i < rows; ++i)
    for (index_t j = 0; j < out; ++j) {
      double expected = 9;
      if (i >= 3 && i < 40) {
        expected = 0;
        for (index_t p = 0; p < in; ++p)
          expected += double(x[i * in + p]) * w[((i < 10 ? 0 : 2) * in + p) * out + j];
      }
      EXPECT_NEAR(y[i * out + j], expected, bound<S>(in)) << i << " " << j;
    }
}

TYPED_TEST(Grouped, SameBitsAgain) {
  using S = TypeParam;
  for (const Offsets& load : kLoads) {
    const Experts<S> e{load, 128, 96};
    const auto y = e.forward(S(1), S(1), e.y());
    const auto dw = e.weights(S(1), S(1), e.w());
    for (int again = 0; again < 3; ++again) {
      const auto y2 = e.forward(S(1), S(1), e.y());
      const auto dw2 = e.weights(S(1), S(1), e.w());
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
  e.weights(1, 0, e.w());
  EXPECT_EQ(flops_issued(), 4.0 * 100 * 4 * 6);
}
