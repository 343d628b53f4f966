// Counter-based random numbers: pure, independent streams, right moments.
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

#include "base/rng.hpp"

namespace capstan {
namespace {

constexpr std::uint64_t kDraws = 200000;

TEST(Rng, IsAPureFunctionOfKeyAndCounter) {
  const Rng a(7, 3), b(7, 3);
  std::vector<std::uint64_t> forward, backward(100);
  for (std::uint64_t i = 0; i < 100; ++i) forward.push_back(a.bits(i));
  for (std::uint64_t i = 100; i-- > 0;) backward[i] = b.bits(i);
  EXPECT_EQ(forward, backward);
  EXPECT_EQ(a.normal(41), b.normal(41));
}

TEST(Rng, ValuesAreFixedForEver) {
  // A run's initial weights and its order of data hang on these (computed apart, in
  // Python).
  const Rng rng(1, 2);
  EXPECT_EQ(rng.bits(0), 0xc916b82596b4593au);
  EXPECT_EQ(rng.bits(1), 0x8d8bd85d9414e46bu);
}

TEST(Rng, SeedsAndStreamsDiffer) {
  std::set<std::uint64_t> seen;
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    for (std::uint64_t stream = 0; stream < 30; ++stream) {
      for (std::uint64_t i = 0; i < 10; ++i) seen.insert(Rng(seed, stream).bits(i));
    }
  }
  EXPECT_EQ(seen.size(), 30u * 30u * 10u);
  EXPECT_NE(stream_of("wq"), stream_of("wk"));
}

TEST(Rng, EveryBitIsFair) {
  const Rng rng(5, 6);
  std::vector<int> ones(64, 0);
  for (std::uint64_t i = 0; i < kDraws; ++i) {
    const std::uint64_t x = rng.bits(i);
    for (int b = 0; b < 64; ++b) ones[b] += static_cast<int>(x >> b & 1);
  }
  for (int b = 0; b < 64; ++b) EXPECT_NEAR(ones[b] / double(kDraws), 0.5, 0.006) << b;
}

TEST(Rng, UniformMomentsAndRange) {
  const Rng rng(11, 1);
  double mean = 0, square = 0, lag = 0, before = 0.5;
  for (std::uint64_t i = 0; i < kDraws; ++i) {
    const double u = rng.uniform(i);
    ASSERT_GT(u, 0);
    ASSERT_LT(u, 1);
    mean += u / kDraws;
    square += u * u / kDraws;
    lag += (u - 0.5) * (before - 0.5) / kDraws;
    before = u;
  }
  EXPECT_NEAR(mean, 0.5, 0.004);
  EXPECT_NEAR(square, 1.0 / 3, 0.004);
  EXPECT_NEAR(lag, 0, 0.001);
}

TEST(Rng, NormalMoments) {
  const Rng rng(2, 9);
  double m1 = 0, m2 = 0, m3 = 0, m4 = 0;
  for (std::uint64_t i = 0; i < kDraws; ++i) {
    const double x = rng.normal(i);
    m1 += x / kDraws;
    m2 += x * x / kDraws;
    m3 += x * x * x / kDraws;
    m4 += x * x * x * x / kDraws;
  }
  EXPECT_NEAR(m1, 0, 0.015);
  EXPECT_NEAR(m2, 1, 0.02);
  EXPECT_NEAR(m3, 0, 0.06);
  EXPECT_NEAR(m4, 3, 0.15);
}

TEST(Rng, TruncatedNormalStaysInsideAndHasItsVariance) {
  const Rng rng(4, 4);
  double mean = 0, square = 0, largest = 0;
  for (std::uint64_t i = 0; i < kDraws; ++i) {
    const double x = rng.truncated_normal(i, 2);
    mean += x / kDraws;
    square += x * x / kDraws;
    largest = std::max(largest, std::fabs(x));
  }
  EXPECT_LE(largest, 2);
  EXPECT_GT(largest, 1.99);
  EXPECT_NEAR(mean, 0, 0.015);
  // 1 - 2 L phi(L) / (2 Phi(L) - 1) at L = 2
  EXPECT_NEAR(square, 0.774, 0.015);
}

}  // namespace
}  // namespace capstan
