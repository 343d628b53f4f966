#pragma once
/// \file 64-bit hashes: of bytes (pieces of files, decks) and of (index, bits) pairs
/// whose sum mod 2^64 does not depend on how a tensor is split.
#include <Kokkos_Core.hpp>
#include <cstddef>
#include <cstdint>
#include <string>

namespace capstan {

/// The finaliser of splitmix64: a bijection on 64 bits.
KOKKOS_INLINE_FUNCTION std::uint64_t mix64(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

/// Hash of `bytes` bytes at `data`; `seed` continues an earlier hash.
std::uint64_t hash_bytes(const void* data, std::size_t bytes, std::uint64_t seed = 0);

/// Sum mod 2^64 over i of mix64(mix64(first + i) ^ bits of element i). Equal on any grid:
/// parts of a tensor add up. `width` is 2, 4 or 8 bytes.
std::uint64_t hash_indexed(const void* data, std::int64_t n, int width,
                           std::int64_t first);

/// 16 hexadecimal digits.
std::string hex(std::uint64_t x);

}  // namespace capstan
