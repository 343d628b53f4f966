#pragma once
/// \file Element types of datasets.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace capstan {

/// bf16 is stored as its 16 bits (unsigned). text: zero-padded strings of a fixed size.
enum class Element { f64, f32, bf16, i64, i32, u64, u8, text };

/// Bytes of one element; 0 for text, whose size is its column's.
std::size_t bytes_of(Element element);
const char* name_of(Element element);

/// Extents of an array, slowest axis first.
using Extents = std::vector<std::int64_t>;
/// Product of the extents (1 for none).
std::int64_t count_of(const Extents& extents);
/// "[2, 3]"
std::string text_of(const Extents& extents);

}  // namespace capstan
