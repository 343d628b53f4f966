#pragma once
/// \file The built-in tokenizer: a token is a byte of the text; one more id ends a
/// document.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace capstan::byte_tokenizer {

inline constexpr std::int32_t kEndOfDocument = 256;
inline constexpr std::int32_t kVocab = 257;

/// Ids 0..255 = the bytes of the text. No end of document is added.
std::vector<std::int32_t> encode(std::string_view text);
/// The bytes back. An end of document becomes a line feed, ids beyond it (a vocabulary
/// padded up to a round number) become the replacement character U+FFFD.
std::string decode(const std::vector<std::int32_t>& ids);

/// True when `text` is well-formed UTF-8 without NUL bytes: what a text file is.
bool is_text(std::string_view text);

}  // namespace capstan::byte_tokenizer
