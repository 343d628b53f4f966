#include "deck/values.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>

#include "deck/nearest.hpp"

namespace capstan {
namespace {

using std::string;
using std::string_view;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

/// Takes underscores between digits away; false when one stands elsewhere.
bool strip_underscores(string_view text, string& out) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
      continue;
    }
    const bool inside =
        i > 0 && i + 1 < text.size() && is_digit(text[i - 1]) && is_digit(text[i + 1]);
    if (!inside) return false;
  }
  return true;
}

/// Sign, digits, point and exponent of a decimal number.
struct Decimal {
  bool negative = false;
  string digits;     ///< without leading zeros
  int exponent = 0;  ///< value = digits * 10^exponent
};

/// Length of the longest head of `text` that is a decimal number; 0 = none.
std::size_t scan_decimal(string_view text, Decimal& d) {
  std::size_t i = 0;
  if (i < text.size() && (text[i] == '+' || text[i] == '-'))
    d.negative = text[i++] == '-';
  bool any = false, point = false;
  for (; i < text.size(); ++i) {
    if (text[i] == '.' && !point) {
      point = true;
    } else if (is_digit(text[i])) {
      any = true;
      if (text[i] != '0' || !d.digits.empty()) d.digits += text[i];
      if (point) --d.exponent;
    } else {
      break;
    }
  }
  if (!any) return 0;
  if (i + 1 < text.size() && (text[i] == 'e' || text[i] == 'E')) {
    std::size_t j = i + 1;
    const bool minus = text[j] == '-';
    if (text[j] == '+' || text[j] == '-') ++j;
    int e = 0;
    const std::size_t first = j;
    for (; j < text.size() && is_digit(text[j]); ++j)
      e = std::min(e * 10 + text[j] - '0', 9999);
    if (j > first) {
      d.exponent += minus ? -e : e;
      i = j;
    }
  }
  return i;
}

/// The same for both kinds of number: the text without underscores, or why it is none.
bool scan_whole_text(string_view text, const char* kind, Decimal& d, string& plain,
                     string& why) {
  if (text.empty()) return why = string("no value, expected ") + kind, false;
  const bool clean = strip_underscores(text, plain);
  const std::size_t used = clean ? scan_decimal(plain, d) : 0;
  if (clean && used == plain.size()) return true;
  why = quoted(text) + " is not " + kind;
  if (used > 0) why += " (" + quoted(plain.substr(used)) + " is left over)";
  return false;
}

bool in_range(const Key& key, double x) {
  const bool low = key.low_open ? x > key.low : x >= key.low;
  const bool high = key.high_open ? x < key.high : x <= key.high;
  return low && high;
}

string range_text(const Key& key) {
  string out;
  if (std::isfinite(key.low)) out = (key.low_open ? "> " : ">= ") + canonical(key.low);
  if (std::isfinite(key.high)) {
    if (!out.empty()) out += " and ";
    out += (key.high_open ? "< " : "<= ") + canonical(key.high);
  }
  return out;
}

string joined(const std::vector<string>& parts, const char* between) {
  string out;
  for (const auto& part : parts) out += (out.empty() ? "" : between) + part;
  return out;
}

std::optional<string> check_number(const Key& key, string_view value, bool whole,
                                   string& why) {
  double x = 0;
  string out;
  if (whole) {
    const auto n = parse_integer(value, why);
    if (!n) return std::nullopt;
    x = static_cast<double>(*n);
    out = canonical(*n);
  } else {
    const auto r = parse_real(value, why);
    if (!r) return std::nullopt;
    x = *r;
    out = canonical(*r);
  }
  if (in_range(key, x)) return out;
  why = out + " is out of range, must be " + range_text(key);
  return std::nullopt;
}

std::optional<string> check_text(const Key& key, string_view value, string& why) {
  if (!value.empty() && value.front() == '#')  // its echo would read as a comment
    return why = quoted(value) + " starts with #", std::nullopt;
  if (key.choices.empty()) return string(value);
  const auto& words = key.choices;
  if (std::find(words.begin(), words.end(), value) != words.end()) return string(value);
  why = quoted(value) + " is not one of " + joined(words, ", ");
  const string best = nearest(string(value), words);
  if (!best.empty()) why += "; did you mean " + best + "?";
  return std::nullopt;
}

std::optional<string> check_element(const Key& key, string_view value, string& why) {
  switch (key.type) {
    case KeyType::integer:
    case KeyType::integers:
      return check_number(key, value, true, why);
    case KeyType::real:
    case KeyType::reals:
      return check_number(key, value, false, why);
    case KeyType::flag:
      if (value == "true" || value == "false") return string(value);
      why = value.empty() ? "no value, expected true or false"
                          : quoted(value) + " is neither true nor false";
      return std::nullopt;
    case KeyType::text:
    case KeyType::texts:
      break;
  }
  return check_text(key, value, why);
}

std::optional<string> check_list(const Key& key, string_view value, string& why) {
  auto parts = split_list(value);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const string element = "element " + std::to_string(i + 1);
    if (parts[i].empty()) return why = element + " is empty", std::nullopt;
    const auto checked = check_element(key, parts[i], why);
    if (!checked) return why = element + ": " + why, std::nullopt;
    parts[i] = *checked;
  }
  if (key.count > 0 && parts.size() != key.count) {
    why = "has " + std::to_string(parts.size()) + " elements, must have " +
          std::to_string(key.count);
    return std::nullopt;
  }
  return joined(parts, ", ");
}

}  // namespace

string quoted(string_view text) {
  string out(1, '\'');
  out += text;
  out += '\'';
  return out;
}

string_view trim(string_view text) {
  const auto space = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
  while (!text.empty() && space(text.front())) text.remove_prefix(1);
  while (!text.empty() && space(text.back())) text.remove_suffix(1);
  return text;
}

std::vector<string> split_list(string_view text) {
  std::vector<string> out;
  text = trim(text);
  if (text.empty()) return out;
  for (std::size_t from = 0; from <= text.size();) {
    const std::size_t to = std::min(text.find(',', from), text.size());
    out.emplace_back(trim(text.substr(from, to - from)));
    from = to + 1;
  }
  return out;
}

string canonical(double x) {
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, x).ptr;
  return string(buffer, end);
}

string canonical(index_t x) {
  return std::to_string(x);
}

std::optional<index_t> parse_integer(string_view text, string& why) {
  Decimal d;
  string plain;
  if (!scan_whole_text(text, "an integer", d, plain, why)) return std::nullopt;
  for (; d.exponent < 0 && !d.digits.empty() && d.digits.back() == '0'; ++d.exponent)
    d.digits.pop_back();
  if (d.digits.empty()) return 0;
  if (d.exponent < 0) return why = quoted(text) + " is not a whole number", std::nullopt;
  index_t n = 0;
  if (d.exponent <= 18) {
    d.digits.append(static_cast<std::size_t>(d.exponent), '0');
    const auto result =
        std::from_chars(d.digits.data(), d.digits.data() + d.digits.size(), n);
    if (result.ec == std::errc()) return d.negative ? -n : n;
  }
  why = quoted(text) + " does not fit into 64 bits";
  return std::nullopt;
}

std::optional<double> parse_real(string_view text, string& why) {
  Decimal d;
  string plain;
  if (!scan_whole_text(text, "a number", d, plain, why)) return std::nullopt;
  const char* first = plain.data() + (plain[0] == '+' ? 1 : 0);
  double x = 0;
  const auto result = std::from_chars(first, plain.data() + plain.size(), x);
  if (result.ec == std::errc() && std::isfinite(x)) return x;
  why = quoted(text) + " does not fit into a double";
  return std::nullopt;
}

std::optional<string> check_value(const Key& key, string_view value, string& why) {
  return key.is_list() ? check_list(key, value, why) : check_element(key, value, why);
}

string describe(const Key& key) {
  static const char* kNames[] = {"integer",      "number",           "true or false",
                                 "text",         "list of integers", "list of numbers",
                                 "list of texts"};
  string out = kNames[static_cast<int>(key.type)];
  if (!key.choices.empty())
    out = (key.is_list() ? "list of " : "") + joined(key.choices, " | ");
  if (key.count > 0) out = std::to_string(key.count) + " numbers";
  if (!key.unit.empty()) out += " in " + key.unit;
  const string range = range_text(key);
  return range.empty() ? out : out + ", " + range;
}

}  // namespace capstan
