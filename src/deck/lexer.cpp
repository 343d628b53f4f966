#include "deck/lexer.hpp"

#include <algorithm>
#include <string_view>

#include "deck/values.hpp"

namespace capstan {
namespace {

using std::string;
using std::string_view;

/// Names are lower_snake.
bool is_name(string_view text) {
  const auto ok = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           c == '_';
  };
  return !text.empty() && std::all_of(text.begin(), text.end(), ok);
}

bool has_control(string_view text) {
  const auto control = [](char c) {
    return static_cast<unsigned char>(c) < 32 && c != '\t' && c != '\r';
  };
  return std::any_of(text.begin(), text.end(), control);
}

/// Where the comment starts: at a # that begins the text or follows white space, so that
/// links and names with # stay whole.
std::size_t comment_start(string_view text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool starts = i == 0 || text[i - 1] == ' ' || text[i - 1] == '\t';
    if (text[i] == '#' && starts) return i;
  }
  return string_view::npos;
}

class Lexer {
 public:
  explicit Lexer(const string& file) : file_(file) {}

  void line(string_view raw) {
    ++number_;
    if (has_control(raw)) return complain("control character; a deck is plain text");
    const string_view text = trim(raw.substr(0, comment_start(raw)));
    if (text.empty()) return;
    if (text.front() == '<') return heading(text);
    assignment(text);
  }
  Lexed take() { return std::move(out_); }

 private:
  string where() const { return file_ + ":" + std::to_string(number_); }
  void complain(const string& what) { out_.problems.push_back({where(), what, number_}); }

  void heading(string_view text) {
    block_.clear();
    in_block_ = true;  // so that one bad heading is one problem, not one for each key
    const string_view name =
        text.back() == '>' ? trim(text.substr(1, text.size() - 2)) : string_view();
    if (!is_name(name)) return complain(quoted(text) + " is not a heading <block>");
    block_ = name;
    for (const auto& earlier : out_.headings) {
      if (earlier.block != block_) continue;
      return complain("block <" + block_ + "> is opened twice (first at " +
                      earlier.where + ")");
    }
    out_.headings.push_back({block_, "", "", where(), file_, number_});
  }

  void assignment(string_view text) {
    const auto equals = text.find('=');
    if (equals == string_view::npos)
      return complain(quoted(text) + " is neither <block> nor key = value");
    const string_view key = trim(text.substr(0, equals));
    if (!is_name(key)) return complain(quoted(key) + " is not the name of a key");
    if (!in_block_)
      return complain("key " + string(key) + " stands before the first <block>");
    if (block_.empty()) return;
    out_.assignments.push_back({block_, string(key),
                                string(trim(text.substr(equals + 1))), where(), file_,
                                number_});
  }

  string file_, block_;
  int number_ = 0;
  bool in_block_ = false;
  Lexed out_;
};

}  // namespace

Lexed lex(const string& text, const string& file) {
  Lexer lexer(file);
  for (std::size_t from = 0; from < text.size();) {
    const std::size_t to = std::min(text.find('\n', from), text.size());
    lexer.line(string_view(text).substr(from, to - from));
    from = to + 1;
  }
  return lexer.take();
}

Lexed lex_override(const string& text) {
  Lexed out;
  const string where = "override " + text;
  const auto equals = text.find('=');
  const auto slash = text.find('/');
  const bool shaped = equals != string::npos && slash != string::npos && slash < equals;
  const string_view view = text;
  const string block(shaped ? trim(view.substr(0, slash)) : "");
  const string key(shaped ? trim(view.substr(slash + 1, equals - slash - 1)) : "");
  if (!is_name(block) || !is_name(key)) {
    out.problems.push_back({where, "is not of the form block/key=value", 0});
    return out;
  }
  const string_view value = trim(view.substr(equals + 1));
  if (has_control(value) || comment_start(value) != string_view::npos) {
    out.problems.push_back(
        {where, "a value cannot hold a comment or control characters"});
    return out;
  }
  out.assignments.push_back({block, key, string(value), where, "", 0});
  return out;
}

}  // namespace capstan
