/// \file Byte tokenizer, and which files count as text.
#include <gtest/gtest.h>

#include "data/byte_tokenizer.hpp"

namespace capstan::byte_tokenizer {
namespace {

TEST(ByteTokenizer, RoundTripOfEveryByte) {
  std::string text;
  for (int i = 0; i < 256; ++i) text += static_cast<char>(i);
  const auto ids = encode(text);
  ASSERT_EQ(ids.size(), 256u);
  for (int i = 0; i < 256; ++i) EXPECT_EQ(ids[i], i);
  EXPECT_EQ(decode(ids), text);
  EXPECT_EQ(decode({'a', kEndOfDocument, 'b', 300}), "a\nb\xef\xbf\xbd");
}

TEST(ByteTokenizer, TextIsUtf8WithoutNul) {
  for (const char* good : {"", "abc\n", "h\xc3\xa9llo", "\xe2\x82\xac",
                           "\xf0\x9f\x98\x80", "\xed\x9f\xbf", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_TRUE(is_text(good)) << good;
  }
  for (const char* bad :
       {"\xff", "a\xc3", "\xc3(", "\xc0\x80", "\xe0\x80\x80", "\xed\xa0\x80",
        "\xf0\x80\x80\x80", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\x80", "\xe2\x82"}) {
    EXPECT_FALSE(is_text(bad)) << bad;
  }
  EXPECT_FALSE(is_text(std::string("a\0b", 3)));
}

}  // namespace
}  // namespace capstan::byte_tokenizer
