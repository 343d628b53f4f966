#pragma once
/// \file Deck text -> headings and assignments, with line numbers. Strict: a line is
/// blank, a comment, `<block>` or `key = value`; # starts a comment at the start of a
/// line or after white space.
#include <string>
#include <vector>

namespace capstan {

struct Assignment {
  std::string block, key, value;  ///< value is trimmed, comment removed
  std::string where;              ///< "file:line" or the override itself
  std::string file;               ///< "" for an override
  int line = 0;
};

struct Problem {
  std::string where, what;
  int line = 0;  ///< order of the problems of one file
};

struct Lexed {
  std::vector<Assignment> assignments;
  /// Headings with their place, also of blocks without keys.
  std::vector<Assignment> headings;
  std::vector<Problem> problems;
};

Lexed lex(const std::string& text, const std::string& file);

/// "block/key=value" -> one assignment, or a problem.
Lexed lex_override(const std::string& text);

}  // namespace capstan
