#pragma once
/// \file Text of one value -> canonical text (checked against its key) -> number.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "deck/key.hpp"

namespace capstan {

/// Whole number: digits with optional sign, underscores between digits, decimal point and
/// exponent as long as the value is whole ("4e12", "1_000", "1.5e3"). Empty when it is
/// not one; `why` then says what is wrong.
std::optional<index_t> parse_integer(std::string_view text, std::string& why);
/// Finite decimal number; underscores between digits allowed.
std::optional<double> parse_real(std::string_view text, std::string& why);

/// Elements of a comma-separated list, trimmed; an empty text is an empty list.
std::vector<std::string> split_list(std::string_view text);
std::string_view trim(std::string_view text);
/// In single quotes.
std::string quoted(std::string_view text);

/// Shortest text that reads back as the same number.
std::string canonical(double x);
std::string canonical(index_t x);

/// The canonical text of `value` for `key`, or empty with `why` set: wrong type, partial
/// number, out of range, not a choice (with the nearest one), wrong number of elements.
std::optional<std::string> check_value(const Key& key, std::string_view value,
                                       std::string& why);

/// "integer, >= 1" and the like: what a key accepts, for messages and help.
std::string describe(const Key& key);

}  // namespace capstan
