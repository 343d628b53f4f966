#include "data/byte_tokenizer.hpp"

namespace capstan::byte_tokenizer {

std::vector<std::int32_t> encode(std::string_view text) {
  std::vector<std::int32_t> ids;
  ids.reserve(text.size() + 1);
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

std::string decode(const std::vector<std::int32_t>& ids) {
  std::string text;
  for (const std::int32_t id : ids) {
    if (id >= 0 && id < kEndOfDocument) {
      text += static_cast<char>(static_cast<unsigned char>(id));
    } else {
      text += id == kEndOfDocument ? "\n" : "\xef\xbf\xbd";
    }
  }
  return text;
}

namespace {
/// Bytes of the UTF-8 sequence at `at`, or 0 where there is none (RFC 3629).
std::size_t sequence_length(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) -> unsigned {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  const auto tail = [&](std::size_t i) { return (byte(i) & 0xc0u) == 0x80u; };
  const unsigned a = byte(at), b = byte(at + 1);
  if (a == 0) return 0;
  if (a < 0x80) return 1;
  if (a >= 0xc2 && a < 0xe0) return tail(at + 1) ? 2 : 0;
  if (a >= 0xe0 && a < 0xf0) {
    const bool overlong = a == 0xe0 && b < 0xa0, surrogate = a == 0xed && b >= 0xa0;
    return tail(at + 1) && tail(at + 2) && !overlong && !surrogate ? 3 : 0;
  }
  if (a >= 0xf0 && a < 0xf5) {
    const bool overlong = a == 0xf0 && b < 0x90, beyond = a == 0xf4 && b >= 0x90;
    const bool tails = tail(at + 1) && tail(at + 2) && tail(at + 3);
    return tails && !overlong && !beyond ? 4 : 0;
  }
  return 0;
}
}  // namespace

bool is_text(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t n = sequence_length(text, at);
    if (n == 0) return false;
    at += n;
  }
  return true;
}

}  // namespace capstan::byte_tokenizer
