// gemm against the plain loops, and the plain loops against numbers worked out by hand.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <string>

#include "unit/blas/operands.hpp"

using namespace capstan::blas;
using namespace capstan::test;

namespace {

/// One product with the strides of its operands.
template <class S>
struct Case {
  Op op_a, op_b;
  index_t m, n, k;
  S alpha, beta;
  index_t pad = 0;  ///< added to every leading dimension

  index_t lda() const { return (op_a == Op::N ? k : m) + pad; }
  index_t ldb() const { return (op_b == Op::N ? n : k) + pad; }
  index_t ldc() const { return n + pad; }
  std::vector<S> a() const { return uniform<S>((op_a == Op::N ? m : k) * lda(), 1); }
  std::vector<S> b() const { return uniform<S>((op_b == Op::N ? k : n) * ldb(), 2); }
  std::vector<S> c() const { return uniform<S>(m * ldc(), 3); }

  std::vector<S> result(const std::vector<S>& c) const { return result(a(), b(), c); }
  std::vector<S> result(const std::vector<S>& a, const std::vector<S>& b,
                        const std::vector<S>& c) const {
    const OnDevice<S> x(a), y(b), out(c);
    gemm<S>(op_a, op_b, m, n, k, alpha, x.data(), lda(), y.data(), ldb(), beta,
            out.data(), ldc());
    return out.back();
  }
  std::vector<S> expected(std::vector<S> c) const {
    const auto x = a(), y = b();
    reference::gemm<S>(op_a, op_b, m, n, k, alpha, x.data(), lda(), y.data(), ldb(), beta,
                       c.data(), ldc());
    return c;
  }
  std::string name() const {
    return std::string(op_a == Op::N ? "N" : "T") + (op_b == Op::N ? "N" : "T") + " " +
           std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k) +
           " alpha " + std::to_string(alpha) + " beta " + std::to_string(beta) + " pad " +
           std::to_string(pad);
  }
};

constexpr Op kOps[] = {Op::N, Op::T};

template <class S>
class Gemm : public testing::Test {};
using Scalars = testing::Types<float, double>;
TYPED_TEST_SUITE(Gemm, Scalars);

}  // namespace

TEST(Reference, TwoByTwoByHand) {
  const double a[] = {1, 2, 3, 4, 5, 6};   // [2, 3]
  const double b[] = {1, 2, 0, 1, 4, -1};  // [3, 2]
  double c[] = {10, 20, 30, 40};
  reference::gemm<double>(Op::N, Op::N, 2, 2, 3, 2.0, a, 3, b, 2, 0.5, c, 2);
  EXPECT_DOUBLE_EQ(c[0], 2 * 13 + 5);
  EXPECT_DOUBLE_EQ(c[1], 2 * 1 + 10);
  EXPECT_DOUBLE_EQ(c[2], 2 * 28 + 15);
  EXPECT_DOUBLE_EQ(c[3], 2 * 7 + 20);
  // the same a read as [3, 2] transposed, the same b as [2, 3] transposed
  double t[4] = {};
  reference::gemm<double>(Op::T, Op::T, 2, 2, 3, 1.0, a, 2, b, 3, 0.0, t, 2);
  EXPECT_DOUBLE_EQ(t[0], 1 * 1 + 3 * 2 + 5 * 0);
  EXPECT_DOUBLE_EQ(t[1], 1 * 1 + 3 * 4 + 5 * -1);
  EXPECT_DOUBLE_EQ(t[2], 2 * 1 + 4 * 2 + 6 * 0);
  EXPECT_DOUBLE_EQ(t[3], 2 * 1 + 4 * 4 + 6 * -1);
}

TYPED_TEST(Gemm, AgreesWithTheReference) {
  using S = TypeParam;
  const index_t shapes[][3] = {{1, 1, 1},    {1, 7, 3},      {5, 1, 9},
                               {3, 17, 2},   {17, 33, 65},   {64, 64, 64},
                               {130, 31, 7}, {67, 129, 300}, {200, 100, 1}};
  for (Op op_a : kOps)
    for (Op op_b : kOps)
      for (const auto& s : shapes)
        for (index_t pad : {0, 5})
          for (S alpha : {S(1), S(-0.5)})
            for (S beta : {S(0), S(1), S(0.25)}) {
              const Case<S> p{op_a, op_b, s[0], s[1], s[2], alpha, beta, pad};
              EXPECT_LE(distance(p.result(p.c()), p.expected(p.c())), bound<S>(p.k))
                  << p.name();
            }
}

TYPED_TEST(Gemm, LeavesThePaddingOfCAlone) {
  using S = TypeParam;
  const Case<S> p{Op::N, Op::T, 41, 50, 20, S(1), S(0), 3};
  const std::vector<S> before(p.c().size(), S(7)), after = p.result(before);
  for (index_t i = 0; i < p.m; ++i)
    for (index_t j = p.n; j < p.ldc(); ++j) EXPECT_EQ(after[i * p.ldc() + j], S(7));
}

TYPED_TEST(Gemm, BetaZeroDoesNotReadC) {
  using S = TypeParam;
  const S nan = std::numeric_limits<S>::quiet_NaN();
  for (Op op_a : kOps)
    for (Op op_b : kOps)
      for (index_t k : {0, 1, 40, 700}) {
        const Case<S> p{op_a, op_b, 70, 60, k, S(1), S(0)};
        const auto c = p.result(std::vector<S>(p.c().size(), nan));
        EXPECT_LE(distance(c, p.expected(p.c())), bound<S>(k)) << p.name();
      }
}

TYPED_TEST(Gemm, EmptyExtents) {
  using S = TypeParam;
  const Case<S> none_m{Op::N, Op::N, 0, 4, 3, S(1), S(0)};
  EXPECT_TRUE(none_m.result({}).empty());
  const Case<S> none_n{Op::N, Op::N, 4, 0, 3, S(1), S(0)};
  EXPECT_TRUE(none_n.result({}).empty());
  // k = 0 scales C
  for (S beta : {S(0), S(1), S(-2)}) {
    const Case<S> p{Op::N, Op::N, 9, 5, 0, S(1), beta, 2};
    const auto before = p.c(), after = p.result(before);
    for (index_t i = 0; i < p.m; ++i)
      for (index_t j = 0; j < p.n; ++j)
        EXPECT_EQ(after[i * p.ldc() + j], beta * before[i * p.ldc() + j]);
  }
  // alpha = 0 does not read A or B
  const std::vector<S> nan(16, std::numeric_limits<S>::quiet_NaN()), c(16, S(3));
  const Case<S> square{Op::N, Op::N, 4, 4, 4, S(0), S(2)};
  for (S x : square.result(nan, nan, c)) EXPECT_EQ(x, S(6));
}

TYPED_TEST(Gemm, ExactOnSmallIntegers) {
  using S = TypeParam;
  // Sums of integers below 2^24 are exact in any order, beta 1 included.
  for (Op op_a : kOps)
    for (Op op_b : kOps) {
      Case<S> p{op_a, op_b, 150, 190, 333, S(1), S(1)};
      auto a = p.a(), b = p.b(), c = p.c();
      for (auto* v : {&a, &b, &c})
        for (S& x : *v) x = std::nearbyint(x * 8);
      auto expected = c;
      reference::gemm<S>(op_a, op_b, p.m, p.n, p.k, S(1), a.data(), p.lda(), b.data(),
                         p.ldb(), S(1), expected.data(), p.ldc());
      EXPECT_EQ(distance(p.result(a, b, c), expected), 0.0) << p.name();
    }
}

TYPED_TEST(Gemm, SameBitsAgainAndCloseWithOtherThreads) {
  using S = TypeParam;
  for (Op op_a : kOps)
    for (Op op_b : kOps)
      for (index_t m : {40, 256, 301}) {
        const Case<S> p{op_a, op_b, m, 197, 1025, S(1), S(1)};
        const auto first = p.result(p.c());
        for (int again = 0; again < 3; ++again) {
          const auto c = p.result(p.c());
          EXPECT_TRUE(c == first) << p.name();
        }
        for (int n : {1, 3}) {
          const Threads threads(n);
          EXPECT_LE(distance(p.result(p.c()), first), bound<S>(p.k)) << p.name();
        }
      }
}

TEST(Flops, CountsTwoForEveryMultiplyAdd) {
  reset_flops_issued();
  Case<float>{Op::N, Op::N, 3, 5, 7, 1.f, 0.f}.result(std::vector<float>(15));
  EXPECT_EQ(flops_issued(), 2 * 3 * 5 * 7);
  Case<double>{Op::T, Op::N, 10, 10, 10, 1., 0.}.result(std::vector<double>(100));
  EXPECT_EQ(flops_issued(), 2 * 3 * 5 * 7 + 2000);
  reset_flops_issued();
  EXPECT_EQ(flops_issued(), 0);
}

TEST(Backend, HasAName) {
  EXPECT_GT(std::strlen(backend_float()), 4u);
  EXPECT_GT(std::strlen(backend_double()), 4u);
}
