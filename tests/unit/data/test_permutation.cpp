/// \file The Feistel permutation and the draws of a mixture.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "data/draws.hpp"
#include "data/permutation.hpp"
#include "unit/data/files.hpp"

namespace capstan::test {
namespace {

TEST(Permutation, IsABijectionWithItsInverse) {
  for (const index_t n : {1, 2, 3, 4, 5, 16, 17, 1000, 4097}) {
    const Permutation p(n, 42);
    std::set<index_t> images;
    for (index_t i = 0; i < n; ++i) {
      const index_t x = p.at(i);
      ASSERT_TRUE(x >= 0 && x < n);
      ASSERT_EQ(p.find(x), i);
      images.insert(x);
    }
    EXPECT_EQ(static_cast<index_t>(images.size()), n);
  }
}

TEST(Permutation, WorksBeyond2To32) {
  const index_t n = (index_t{1} << 40) + 12345;
  const Permutation p(n, 7);
  index_t high = 0;
  for (index_t i = 0; i < 1000; ++i) {
    const index_t x = p.at(n - 1 - i * 1000003);
    ASSERT_TRUE(x >= 0 && x < n);
    ASSERT_EQ(p.find(x), n - 1 - i * 1000003);
    high += x >= n / 2;
  }
  EXPECT_NEAR(static_cast<double>(high), 500, 80);
}

// Each of the images of a small range is equally likely over keys: chi-square, 5 sigma.
TEST(Permutation, KeysMakeDifferentUniformOrders) {
  const index_t n = 11, keys = 20000;
  std::vector<double> counts(n * n, 0);
  for (index_t key = 0; key < keys; ++key) {
    const Permutation p(n, key);
    for (index_t i = 0; i < n; ++i) ++counts[i * n + p.at(i)];
  }
  const double mean = static_cast<double>(keys) / static_cast<double>(n);
  double chi = 0;
  for (const double c : counts) chi += (c - mean) * (c - mean) / mean;
  const double freedom = static_cast<double>((n - 1) * (n - 1));
  EXPECT_LT(chi, freedom + 5 * std::sqrt(2 * freedom));
}

void expect_exact(const std::vector<double>& weights, index_t n) {
  const Draws draws(weights);
  double total = 0;
  for (const double w : weights) total += w;
  std::vector<index_t> count(weights.size(), 0);
  for (index_t i = 0; i < n; ++i) {
    for (std::size_t s = 0; s < weights.size(); ++s) {
      const double expected = weights[s] / total * static_cast<double>(i);
      ASSERT_LE(std::abs(static_cast<double>(count[s]) - expected), 1 + 1e-9)
          << "source " << s << " after " << i;
      if (i % 997 == 0) {
        ASSERT_EQ(draws.count(static_cast<int>(s), i), count[s]);
      }
    }
    ++count[draws.source(i)];
  }
}

TEST(Draws, CountsAreExactAtEveryPrefix) {
  expect_exact({1}, 1000);
  expect_exact({1, 1}, 1000);
  expect_exact({1, 2}, 3000);
  expect_exact({0.7, 0.3}, 20000);
  expect_exact({0.123456, 0.876544}, 20000);
  expect_exact({0.5, 0.0005, 0.25, 0.2495, 0}, 30000);
  // A mixture of 200 cells, most of them rare: none is starved.
  std::vector<double> cells;
  for (int i = 0; i < 200; ++i) cells.push_back(i % 7 == 0 ? 100 : 1 + i % 3);
  expect_exact(cells, 20000);
}

TEST(Draws, AnyPositionIsReachedDirectly) {
  const Draws draws({0.5, 0.3, 0.2});
  EXPECT_EQ(draws.period(), 10);
  for (const index_t far : {index_t{1} << 33, (index_t{1} << 40) + 7}) {
    index_t sum = 0;
    for (int s = 0; s < 3; ++s) sum += draws.count(s, far);
    EXPECT_EQ(sum, far);
    EXPECT_EQ(draws.count(draws.source(far), far + 1),
              draws.count(draws.source(far), far) + 1);
  }
}

// What is drawn from each block is what the unpermuted order draws there; counts are
// those of a plain count, and within 1 of the share at the ends of blocks.
TEST(Draws, BlocksArePermutedAndTheirCountsAreExact) {
  const std::vector<double> weights = {0.6, 0.3, 0.0998, 0.0002};
  const Draws plain(weights), permuted(weights, true, 7), other(weights, true, 8);
  std::vector<index_t> count(4, 0);
  index_t moved = 0, differ = 0;
  for (index_t n = 0; n < 40 * Draws::kBlock; ++n) {
    for (int s = 0; s < 4; ++s) {
      if (n % 331 == 0) {
        ASSERT_EQ(permuted.count(s, n), count[s]);
      }
      if (n % Draws::kBlock != 0) continue;
      ASSERT_EQ(count[s], plain.count(s, n));
      ASSERT_LE(
          std::abs(static_cast<double>(count[s]) - weights[s] * static_cast<double>(n)),
          1 + 1e-9);
    }
    moved += permuted.source(n) != plain.source(n);
    differ += permuted.source(n) != other.source(n);
    ++count[permuted.source(n)];
  }
  // 40,960 draws of 0.0002: 8.2 expected. Two independent orders differ in 1 - sum of
  // squares = 54 % of the places.
  EXPECT_GE(count[3], 7);
  EXPECT_LE(count[3], 9);
  EXPECT_NEAR(static_cast<double>(moved) / (40 * Draws::kBlock), 0.54, 0.03);
  EXPECT_NEAR(static_cast<double>(differ) / (40 * Draws::kBlock), 0.54, 0.03);
}

// With weights 3 : 1 the plain order gives the second source to every fourth place: a
// rank that reads those places would see nothing else.
TEST(Draws, NoPlaceOfAStepIsBoundToOneSource) {
  const Draws draws({3, 1}, true, 3);
  for (int place = 0; place < 4; ++place) {
    index_t second = 0;
    for (index_t step = 0; step < 4000; ++step) second += draws.source(4 * step + place);
    EXPECT_NEAR(static_cast<double>(second) / 4000, 0.25, 0.03) << place;
  }
}

TEST(Draws, RoundsOnlyWhatItMust) {
  EXPECT_EQ(Draws({1, 2}).period(), 3);
  const Draws rounded({123456.789, 1000});
  EXPECT_NEAR(
      static_cast<double>(rounded.share(0)) / static_cast<double>(rounded.period()),
      123456.789 / 124456.789, 5.01e-7);
  EXPECT_LE(rounded.period(), 1000000);
  EXPECT_NE(error_of(
                [] {
                  Draws({1, 1e-9});
                },
                Exit::deck)
                .find("source 2"),
            std::string::npos);
  for (const std::vector<double>& bad :
       {std::vector<double>{}, {0, 0}, {1, -1}, {1, NAN}}) {
    EXPECT_NE(error_of([&] { Draws draws(bad); }, Exit::deck), "");
  }
}

}  // namespace
}  // namespace capstan::test
