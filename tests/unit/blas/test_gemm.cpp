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
template <class S, class C = S>
struct Case {
  Op op_a, op_b;
  index_t m, n, k;
  capstan::Acc<S> alpha, beta;
  index_t pad = 0;  ///< added to every leading dimension

  index_t lda() const { return (op_a == Op::N ? k : m) + pad; }
  index_t ldb() const { return (op_b == Op::N ? n : k) + pad; }
  index_t ldc() const { return n + pad; }
  std::vector<S> a() const { return uniform<S>((op_a == Op::N ? m : k) * lda(), 1); }
  std::vector<S> b() const { return uniform<S>((op_b == Op::N ? k : n) * ldb(), 2); }
  std::vector<C> c() const { return uniform<C>(m * ldc(), 3); }

  std::vector<C> result(const std::vector<C>& c) const { return result(a(), b(), c); }
  std::vector<C> result(const std::vector<S>& a, const std::vector<S>& b,
                        const std::vector<C>& c) const {
    const OnDevice<S> x(a), y(b);
    const OnDevice<C> out(c);
    gemm<S, C>(op_a, op_b, m, n, k, alpha, x.data(), lda(), y.data(), ldb(), beta,
               out.data(), ldc());
    return out.back();
  }
  /// In double, from the same operands.
  std::vector<double> expected(const std::vector<C>& before) const {
    const auto x = widened(a()), y = widened(b());
    auto c = widened(before);
    reference::gemm<double>(op_a, op_b, m, n, k, alpha, x.data(), lda(), y.data(), ldb(),
                            beta, c.data(), ldc());
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

template <class T>
class Gemm : public testing::Test {};
using Scalars = testing::Types<Types<float>, Types<double>, Types<capstan::bf16>,
                               Types<capstan::bf16, float>>;
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
  using S = typename TypeParam::S;
  using C = typename TypeParam::C;
  const index_t shapes[][3] = {{1, 1, 1},    {1, 7, 3},      {5, 1, 9},
                               {3, 17, 2},   {17, 33, 65},   {64, 64, 64},
                               {130, 31, 7}, {67, 129, 300}, {200, 100, 1}};
  for (Op op_a : kOps)
    for (Op op_b : kOps)
      for (const auto& s : shapes)
        for (index_t pad : {0, 5})
          for (float alpha : {1.f, -0.5f})
            for (float beta : {0.f, 1.f, 0.25f}) {
              const Case<S, C> p{op_a, op_b, s[0], s[1], s[2], alpha, beta, pad};
              const auto expected = p.expected(p.c());
              EXPECT_LE(distance(p.result(p.c()), expected), (bound<S, C>(p.k, expected)))
                  << p.name();
            }
}

TYPED_TEST(Gemm, LeavesThePaddingOfCAlone) {
  using S = typename TypeParam::S;
  using C = typename TypeParam::C;
  const Case<S, C> p{Op::N, Op::T, 41, 50, 20, 1, 0, 3};
  const std::vector<C> before(p.c().size(), C(7)), after = p.result(before);
  for (index_t i = 0; i < p.m; ++i)
    for (index_t j = p.n; j < p.ldc(); ++j) EXPECT_EQ(after[i * p.ldc() + j], C(7));
}

TYPED_TEST(Gemm, BetaZeroDoesNotReadC) {
  using S = typename TypeParam::S;
  using C = typename TypeParam::C;
  const C nan(std::numeric_limits<float>::quiet_NaN());
  for (Op op_a : kOps)
    for (Op op_b : kOps)
      for (index_t k : {0, 1, 40, 700}) {
        const Case<S, C> p{op_a, op_b, 70, 60, k, 1, 0};
        const auto c = p.result(std::vector<C>(p.c().size(), nan));
        const auto expected = p.expected(p.c());
        EXPECT_LE(distance(c, expected), (bound<S, C>(k, expected))) << p.name();
      }
}

TYPED_TEST(Gemm, EmptyExtents) {
  using S = typename TypeParam::S;
  using C = typename TypeParam::C;
  const Case<S, C> none_m{Op::N, Op::N, 0, 4, 3, 1, 0};
  EXPECT_TRUE(none_m.result({}).empty());
  const Case<S, C> none_n{Op::N, Op::N, 4, 0, 3, 1, 0};
  EXPECT_TRUE(none_n.result({}).empty());
  // k = 0 scales C
  for (float beta : {0.f, 1.f, -2.f}) {
    const Case<S, C> p{Op::N, Op::N, 9, 5, 0, 1, beta, 2};
    const auto before = p.c(), after = p.result(before);
    for (index_t i = 0; i < p.m; ++i)
      for (index_t j = 0; j < p.n; ++j)
        EXPECT_EQ(after[i * p.ldc() + j], C(beta * before[i * p.ldc() + j]));
  }
  // alpha = 0 does not read A or B
  const std::vector<S> nan(16, S(std::numeric_limits<float>::quiet_NaN()));
  const Case<S, C> square{Op::N, Op::N, 4, 4, 4, 0, 2};
  for (C x : square.result(nan, nan, std::vector<C>(16, C(3)))) EXPECT_EQ(x, C(6));
}

TYPED_TEST(Gemm, ExactOnSmallIntegers) {
  using S = typename TypeParam::S;
  using C = typename TypeParam::C;
  // Sums of integers below 2^24 are exact in any order, beta 1 included; a result in bf16
  // is the nearest to the exact sum, to even where two are.
  for (Op op_a : kOps)
    for (Op op_b : kOps) {
      const Case<S, C> p{op_a, op_b, 150, 190, 333, 1, 1};
      auto a = p.a(), b = p.b();
      auto c = p.c();
      const auto whole = [](auto& v) {
        for (auto& x : v) x = std::nearbyint(float(x) * 8);
      };
      whole(a), whole(b), whole(c);
      const auto x = widened(a), y = widened(b);
      auto exact = widened(c);
      reference::gemm<double>(op_a, op_b, p.m, p.n, p.k, 1, x.data(), p.lda(), y.data(),
                              p.ldb(), 1, exact.data(), p.ldc());
      const std::vector<C> expected(exact.begin(), exact.end());
      EXPECT_EQ(distance(p.result(a, b, c), expected), 0.0) << p.name();
    }
}

TYPED_TEST(Gemm, SameBitsAgainAndCloseWithOtherThreads) {
  using S = typename TypeParam::S;
  using C = typename TypeParam::C;
  for (Op op_a : kOps)
    for (Op op_b : kOps)
      for (index_t m : {40, 256, 301}) {
        const Case<S, C> p{op_a, op_b, m, 197, 1025, 1, 1};
        const auto first = p.result(p.c());
        for (int again = 0; again < 3; ++again) {
          const auto c = p.result(p.c());
          EXPECT_TRUE(c == first) << p.name();
        }
        for (int n : {1, 3}) {
          const Threads threads(n);
          const auto c = p.result(p.c());
          EXPECT_LE(distance(c, first), 2 * (bound<S, C>(p.k, widened(first))))
              << p.name();
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
  EXPECT_GT(std::strlen(backend_bf16()), 4u);
  EXPECT_GT(std::strlen(backend_float()), 4u);
  EXPECT_GT(std::strlen(backend_double()), 4u);
}
