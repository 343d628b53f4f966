// Hashes: of bytes, and of indexed elements whose parts add up.
#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "base/hash.hpp"
#include "base/rng.hpp"

namespace capstan {
namespace {

std::vector<unsigned char> bytes(std::size_t n) {
  const Rng rng(1, 1);
  std::vector<unsigned char> out(n);
  for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<unsigned char>(rng.bits(i));
  return out;
}

TEST(HashBytes, EveryByteAndTheLengthMatter) {
  for (const std::size_t n : {1u, 7u, 31u, 32u, 33u, 64u, 100u}) {
    auto data = bytes(n);
    std::set<std::uint64_t> seen = {hash_bytes(data.data(), n)};
    for (std::size_t i = 0; i < n; ++i) {
      data[i] ^= 1;
      EXPECT_TRUE(seen.insert(hash_bytes(data.data(), n)).second) << n << " byte " << i;
      data[i] ^= 1;
    }
    EXPECT_EQ(hash_bytes(data.data(), n), hash_bytes(data.data(), n));
  }
  const std::vector<unsigned char> zeros(100, 0);
  std::set<std::uint64_t> seen;
  for (std::size_t n = 0; n <= 100; ++n) seen.insert(hash_bytes(zeros.data(), n));
  EXPECT_EQ(seen.size(), 101u);
}

TEST(HashBytes, SeedMattersAndAlignmentDoesNot) {
  const auto data = bytes(80);
  auto shifted = data;
  shifted.insert(shifted.begin(), 3, 0);
  EXPECT_EQ(hash_bytes(data.data(), 80), hash_bytes(shifted.data() + 3, 80));
  EXPECT_NE(hash_bytes(data.data(), 80, 1), hash_bytes(data.data(), 80, 2));
}

TEST(HashIndexed, PartsAddUpInAnySplit) {
  constexpr std::int64_t n = 101;
  for (const int width : {2, 4, 8}) {
    const auto data = bytes(static_cast<std::size_t>(n * width));
    const std::uint64_t whole = hash_indexed(data.data(), n, width, 1000);
    for (const std::int64_t cut : {0, 1, 50, 100, 101}) {
      const std::uint64_t left = hash_indexed(data.data(), cut, width, 1000);
      const std::uint64_t right =
          hash_indexed(data.data() + cut * width, n - cut, width, 1000 + cut);
      EXPECT_EQ(left + right, whole) << "width " << width << " cut " << cut;
    }
  }
}

TEST(HashIndexed, SeesValuesPlacesAndSwaps) {
  std::vector<std::uint32_t> data = {5, 6, 7, 8};
  const auto of = [&](std::int64_t first) {
    return hash_indexed(data.data(), 4, 4, first);
  };
  const std::uint64_t before = of(0);
  EXPECT_NE(of(1), before);
  std::swap(data[1], data[2]);
  EXPECT_NE(of(0), before);
  std::swap(data[1], data[2]);
  data[3] ^= 1u << 31;
  EXPECT_NE(of(0), before);
}

TEST(Hash, HexHasSixteenDigits) {
  EXPECT_EQ(hex(0), "0000000000000000");
  EXPECT_EQ(hex(0xfedcba9876543210ull), "fedcba9876543210");
}

}  // namespace
}  // namespace capstan
