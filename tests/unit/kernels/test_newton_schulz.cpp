// Newton-Schulz against plain loops in double that follow the published text: normalise,
// transpose where rows > cols, five steps, transpose back.
#include <gtest/gtest.h>

#include <cmath>

#include "blas/gemm.hpp"
#include "kernels/newton_schulz.hpp"
#include "unit/newton_schulz_reference.hpp"

using namespace capstan;
using namespace capstan::test;

namespace {

template <class S>
Values orthogonalised(const BatchShape& shape, const Values& x) {
  const auto view = view1<S>(x);
  const View1<S> scratch("scratch", newton_schulz_scratch(shape));
  const View1<double> sums("sums", newton_schulz_sums(shape));
  newton_schulz<S>(shape, view, scratch, sums);
  return values(view);
}

Values expected(const BatchShape& s, const Values& x) {
  Values out;
  for (index_t g = 0; g < s.count; ++g) {
    const auto from = x.begin() + g * s.size();
    const Matrix y =
        newton_schulz_reference({s.rows, s.cols, Values(from, from + s.size())});
    out.insert(out.end(), y.v.begin(), y.v.end());
  }
  return out;
}

template <class S>
class NewtonSchulz : public testing::Test {};
using Scalars = testing::Types<float, double>;
TYPED_TEST_SUITE(NewtonSchulz, Scalars);

template <class S>
constexpr double kTolerance = sizeof(S) == 4 ? 2e-5 : 1e-12;

}  // namespace

TYPED_TEST(NewtonSchulz, FollowsTheLoopsForEveryShape) {
  using S = TypeParam;
  const BatchShape shapes[] = {{1, 24, 24}, {1, 16, 70}, {1, 70, 16}, {3, 24, 24},
                               {5, 12, 33}, {4, 40, 9},  {2, 1, 7},   {1, 1, 1},
                               {1, 96, 80}, {7, 5, 1}};
  for (const BatchShape& s : shapes) {
    for (const double scale : {1e-12, 1.0, 1e12}) {
      const Values x = as_float(normal_values(s.count * s.size(), 3 + s.rows, scale));
      EXPECT_LE(relative_error(orthogonalised<S>(s, x), expected(s, x)), kTolerance<S>)
          << s.count << " x " << s.rows << " x " << s.cols << " scale " << scale;
    }
  }
}

TYPED_TEST(NewtonSchulz, StackedMatricesEqualALoop) {
  using S = TypeParam;
  for (const BatchShape s : {BatchShape{6, 20, 32}, BatchShape{6, 32, 20}}) {
    const Values x = as_float(normal_values(s.count * s.size(), 11));
    const Values all = orthogonalised<S>(s, x);
    Values one_by_one;
    for (index_t g = 0; g < s.count; ++g) {
      const Values part(x.begin() + g * s.size(), x.begin() + (g + 1) * s.size());
      const Values y = orthogonalised<S>({1, s.rows, s.cols}, part);
      one_by_one.insert(one_by_one.end(), y.begin(), y.end());
    }
    EXPECT_LE(relative_error(all, one_by_one), kTolerance<S>);
  }
}

TYPED_TEST(NewtonSchulz, SingularValuesComeNearOne) {
  using S = TypeParam;
  const BatchShape s{1, 32, 128};
  const Values x = orthogonalised<S>(s, normal_values(s.size(), 5));
  const Matrix y{s.rows, s.cols, x};
  const Matrix gram = product(y, transposed(y));
  for (index_t i = 0; i < s.rows; ++i) EXPECT_NEAR(gram.at(i, i), 1, 0.35) << i;
}

TYPED_TEST(NewtonSchulz, AZeroMatrixStaysZeroAmongOthers) {
  using S = TypeParam;
  const BatchShape s{3, 8, 12};
  Values x = normal_values(s.count * s.size(), 8);
  std::fill(x.begin() + s.size(), x.begin() + 2 * s.size(), 0.0);
  const Values y = orthogonalised<S>(s, x);
  for (index_t i = s.size(); i < 2 * s.size(); ++i) EXPECT_EQ(y[i], 0);
  EXPECT_GT(dot(y, y), 10);
}

TYPED_TEST(NewtonSchulz, TheLargestFiniteEntriesGiveAFiniteResult) {
  using S = TypeParam;
  const BatchShape s{1, 4, 6};
  const double largest = sizeof(S) == 4 ? 3e38 : 1e150;
  const Values y = orthogonalised<S>(s, Values(s.size(), largest));
  for (const double v : y) EXPECT_TRUE(std::isfinite(v));
  EXPECT_GT(dot(y, y), 0.5);
}

TYPED_TEST(NewtonSchulz, IssuesTheOperationsThatItDeclares) {
  using S = TypeParam;
  for (const BatchShape s : {BatchShape{1, 48, 20}, BatchShape{4, 16, 24}}) {
    blas::reset_flops_issued();
    orthogonalised<S>(s, normal_values(s.count * s.size(), 2));
    EXPECT_EQ(blas::flops_issued(), newton_schulz_flops(s));
  }
}

TYPED_TEST(NewtonSchulz, TheSameBitsEveryTime) {
  using S = TypeParam;
  const BatchShape s{3, 64, 100};
  const Values x = normal_values(s.count * s.size(), 21);
  EXPECT_EQ(orthogonalised<S>(s, x), orthogonalised<S>(s, x));
}

namespace {

Values in_bf16(const BatchShape& shape, const Values& x) {
  const auto view = view1<float>(x);
  const View1<float> scratch("scratch", newton_schulz_scratch(shape));
  const View1<double> sums("sums", newton_schulz_sums(shape));
  newton_schulz_bf16<float>(shape, view, scratch, sums);
  return values(view);
}

}  // namespace

/// Each step rounds X, G, b G + c G^2 and its result once, by u = 2^-9 of an element. For
/// singular values up to 1 the terms of a step are at most |a| + |b| + |c| = 14, so that
/// one step is off by 14 u at the very most, where terms cancel; the steps' errors are
/// independent and each next step pulls towards 1, so five are held to the bound of one.
TEST(NewtonSchulzBf16, FollowsTheLoopsWithinItsRounding) {
  const BatchShape shapes[] = {{1, 64, 64}, {1, 48, 200}, {1, 200, 48}, {6, 48, 48},
                               {3, 40, 96}, {3, 96, 40},  {1, 1, 1}};
  constexpr double kTolerance = 14.0 / 512;
  for (const BatchShape& s : shapes) {
    for (const double scale : {1e-12, 1e12}) {
      const Values x = as_float(normal_values(s.count * s.size(), 3 + s.rows, scale));
      const Values want = expected(s, x), got = in_bf16(s, x);
      Values off = got;
      for (std::size_t i = 0; i < off.size(); ++i) off[i] -= want[i];
      EXPECT_LE(std::sqrt(dot(off, off) / dot(want, want)), kTolerance)
          << s.count << " x " << s.rows << " x " << s.cols;
    }
  }
}

TEST(NewtonSchulzBf16, ZeroAndHugeMatrices) {
  const BatchShape s{3, 8, 12};
  Values x = normal_values(s.count * s.size(), 8);
  std::fill(x.begin() + s.size(), x.begin() + 2 * s.size(), 0.0);
  std::fill(x.begin() + 2 * s.size(), x.end(), 3e38);
  const Values y = in_bf16(s, x);
  for (index_t i = s.size(); i < 2 * s.size(); ++i) EXPECT_EQ(y[i], 0);
  for (const double v : y) EXPECT_TRUE(std::isfinite(v));
  EXPECT_GT(dot(y, y), 8);  // eight rows of the first matrix near length 1
  EXPECT_EQ(y, in_bf16(s, x));
}

TEST(NewtonSchulzBf16, IssuesTheOperationsThatItDeclares) {
  const BatchShape s{4, 16, 24};
  blas::reset_flops_issued();
  in_bf16(s, normal_values(s.count * s.size(), 2));
  EXPECT_EQ(blas::flops_issued(), newton_schulz_flops(s));
}
