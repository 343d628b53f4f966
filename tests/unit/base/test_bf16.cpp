// bf16: rounding to nearest even, special values.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "base/bf16.hpp"
#include "base/rng.hpp"

namespace capstan {
namespace {

float from_bits(std::uint32_t u) {
  float f;
  std::memcpy(&f, &u, 4);
  return f;
}

TEST(Bf16, EveryValueSurvivesTheRoundTrip) {
  for (std::uint32_t u = 0; u < 65536; ++u) {
    const float f = from_bits(u << 16);
    if (std::isnan(f)) {
      EXPECT_TRUE(std::isnan(static_cast<float>(bf16(f))));
    } else {
      EXPECT_EQ(bf16(f).bits, u);
      EXPECT_EQ(static_cast<float>(bf16(f)), f);
    }
  }
}

TEST(Bf16, RoundsToNearestAndTiesToEven) {
  EXPECT_EQ(bf16(from_bits(0x3f808000u)).bits, 0x3f80);  // tie, even below
  EXPECT_EQ(bf16(from_bits(0x3f818000u)).bits, 0x3f82);  // tie, even above
  EXPECT_EQ(bf16(from_bits(0x3f808001u)).bits, 0x3f81);
  EXPECT_EQ(bf16(from_bits(0x3f807fffu)).bits, 0x3f80);
  EXPECT_EQ(bf16(from_bits(0xbf818000u)).bits, 0xbf82);
  EXPECT_EQ(bf16(from_bits(0x3fffffffu)).bits, 0x4000);  // carries into the exponent
}

TEST(Bf16, IsTheNearestOfTheTwoNeighbours) {
  const Rng rng(1, 2);
  for (std::uint64_t i = 0; i < 100000; ++i) {
    const float x = from_bits(static_cast<std::uint32_t>(rng.bits(i)));
    if (!std::isfinite(x) || std::fabs(x) > 3e38f) continue;
    std::uint32_t u;
    std::memcpy(&u, &x, 4);
    const double below = from_bits(u & 0xffff0000u);  // towards zero
    const double above = from_bits((u & 0xffff0000u) + 0x10000u);
    const double rounded = static_cast<float>(bf16(x));
    ASSERT_TRUE(rounded == below || rounded == above);
    ASSERT_LE(std::fabs(rounded - x),
              std::min(std::fabs(below - x), std::fabs(above - x)));
  }
}

TEST(Bf16, SpecialValues) {
  constexpr float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(bf16(inf).bits, 0x7f80);
  EXPECT_EQ(bf16(-inf).bits, 0xff80);
  EXPECT_EQ(bf16(0.0f).bits, 0x0000);
  EXPECT_EQ(bf16(-0.0f).bits, 0x8000);
  EXPECT_EQ(bf16(std::numeric_limits<float>::max()).bits, 0x7f80);  // rounds to infinity
  // A NaN whose payload sits in the lower half must not turn into infinity, nor into
  // zero.
  for (const std::uint32_t u : {0x7f800001u, 0xff800001u, 0x7fffffffu, 0xffffffffu}) {
    EXPECT_TRUE(std::isnan(static_cast<float>(bf16(from_bits(u)))));
    EXPECT_EQ(bf16(from_bits(u)).bits >> 15, u >> 31);
  }
  EXPECT_EQ(bf16().bits, 0);
}

}  // namespace
}  // namespace capstan
