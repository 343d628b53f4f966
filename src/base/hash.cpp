#include "base/hash.hpp"

#include <cstdio>
#include <cstring>

namespace capstan {

std::uint64_t hash_bytes(const void* data, std::size_t bytes, std::uint64_t seed) {
  // Four independent lanes keep the multiplier busy; the tail and the length are mixed in
  // last.
  const auto* p = static_cast<const unsigned char*>(data);
  std::uint64_t lane[4];
  for (int i = 0; i < 4; ++i) lane[i] = mix64(seed + static_cast<std::uint64_t>(i));
  std::size_t left = bytes;
  while (left >= 32) {
    for (int i = 0; i < 4; ++i) {
      std::uint64_t w;
      std::memcpy(&w, p + 8 * i, 8);
      lane[i] = (lane[i] ^ w) * 0x9fb21c651e98df25ull;
      lane[i] ^= lane[i] >> 29;
    }
    p += 32;
    left -= 32;
  }
  std::uint64_t h = 0;
  for (int i = 0; i < 4; ++i) h = mix64(h ^ lane[i]);
  for (; left > 0; --left, ++p) h = mix64(h ^ *p);
  return mix64(h ^ bytes);
}

std::uint64_t hash_indexed(const void* data, std::int64_t n, int width,
                           std::int64_t first) {
  const auto* p = static_cast<const unsigned char*>(data);
  std::uint64_t sum = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, p + i * width, static_cast<std::size_t>(width));
    sum += mix64(mix64(static_cast<std::uint64_t>(first + i)) ^ bits);
  }
  return sum;
}

std::string hex(std::uint64_t x) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(x));
  return text;
}

}  // namespace capstan
