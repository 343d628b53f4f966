#include "deck/help.hpp"

#include <algorithm>

#include "deck/key.hpp"
#include "deck/nearest.hpp"
#include "deck/values.hpp"

namespace capstan {
namespace {

using std::string;

/// Words of `text` in lines of at most 80 columns, each behind `indent` spaces.
string wrapped(const string& text, std::size_t indent) {
  constexpr std::size_t kWidth = 80;
  const string margin(indent, ' ');
  string out, line = margin;
  for (std::size_t from = 0; from < text.size();) {
    const std::size_t to = std::min(text.find(' ', from), text.size());
    const string word = text.substr(from, to - from);
    const bool first = line.size() == indent;
    if (!first && line.size() + 1 + word.size() > kWidth) {
      out += line + "\n";
      line = margin + word;
    } else {
      line += (first ? "" : " ") + word;
    }
    from = to + 1;
  }
  return out + line + "\n";
}

string heading(const Block& b) {
  return "<" + b.name + (b.numbered ? "1..n>" : ">");
}

string key_text(const Key& key) {
  string value = "= " + key.fallback;
  if (key.is_required) value = "(required)";
  if (!key.inherits.empty()) value = "(as " + key.inherits + ")";
  if (value == "= ") value = "= (empty)";
  static const char* kRestart[] = {"cannot change at a restart",
                                   "a change at a restart is reported", ""};
  string facts = describe(key);
  const string restart = kRestart[static_cast<int>(key.on_restart)];
  if (!restart.empty()) facts += "; " + restart;
  string out = "  " + key.name + " " + value + "\n";
  return out + wrapped(key.doc_text, 6) + wrapped("[" + facts + "]", 6);
}

string block_text(const Block& block) {
  string out = heading(block) + "\n" + wrapped(block.doc, 2);
  for (const auto& key : block.keys) {
    out += '\n';
    out += key_text(key);
  }
  return out;
}

string block_list() {
  string out = "Blocks of a deck (-h BLOCK prints its keys, -h all every key):\n\n";
  for (const auto& b : deck_blocks()) {
    string name = "  " + heading(b);
    name.resize(18, ' ');
    out += name + wrapped(b.doc, 18).substr(18);
  }
  return out;
}

[[noreturn]] void unknown(const string& topic) {
  std::vector<string> names = {"all"};
  for (const auto& b : deck_blocks()) {
    names.push_back(b.name);
    for (const auto& k : b.keys) names.push_back(b.name + "/" + k.name);
  }
  string what = "no help on '" + topic + "'";
  const string best = nearest(topic, names);
  if (!best.empty()) what += "; did you mean " + best + "?";
  throw Error(Exit::deck, what);
}

}  // namespace

string help_text(const string& topic) {
  if (topic.empty()) return block_list();
  string out;
  const auto slash = topic.find('/');
  for (const auto& b : deck_blocks()) {
    const bool named =
        topic.substr(0, slash) == b.name || find_block(topic.substr(0, slash)) == &b;
    if (topic == "all") {
      if (!out.empty()) out += '\n';
      out += block_text(b);
    }
    if (!named) continue;
    if (slash == string::npos) return block_text(b);
    const Key* key = b.find(topic.substr(slash + 1));
    if (key) return heading(b) + "\n\n" + key_text(*key);
  }
  if (out.empty()) unknown(topic);
  return out;
}

}  // namespace capstan
