#include "deck/deck.hpp"

#include <algorithm>
#include <cstdlib>

#include "deck/builder.hpp"
#include "deck/values.hpp"

namespace capstan {
namespace {

using std::string;

/// The declared key of `path`, which must have this type.
const Key& key_of(const string& path, std::initializer_list<KeyType> types) {
  const Key* key = find_key(path);
  if (!key) throw Error(Exit::internal, "deck key " + path + " is not declared");
  if (std::find(types.begin(), types.end(), key->type) == types.end())
    throw Error(Exit::internal, "deck key " + path + " is asked for with a wrong type");
  return *key;
}

index_t to_integer(const string& text, const string& path) {
  string why;
  const auto n = parse_integer(text, why);
  if (!n) throw Error(Exit::internal, "deck key " + path + ": " + why);
  return *n;
}

double to_real(const string& text, const string& path) {
  string why;
  const auto x = parse_real(text, why);
  if (!x) throw Error(Exit::internal, "deck key " + path + ": " + why);
  return *x;
}

}  // namespace

Deck Deck::load(const std::vector<string>& files, const std::vector<string>& overrides) {
  DeckBuilder builder;
  for (const auto& file : files) builder.add_file(file);
  for (const auto& text : overrides) builder.add_override(text);
  return builder.finish();
}

Deck Deck::parse(const string& text, const string& name,
                 const std::vector<string>& overrides) {
  DeckBuilder builder;
  builder.add_text(text, name);
  for (const auto& o : overrides) builder.add_override(o);
  return builder.finish();
}

const Deck::Value& Deck::at(const string& path) const {
  const auto found = values_.find(path);
  if (found == values_.end())
    throw Error(Exit::internal, "deck key " + path + " is not declared");
  return found->second;
}

index_t Deck::integer(const string& path) const {
  key_of(path, {KeyType::integer});
  return to_integer(at(path).text, path);
}

double Deck::real(const string& path) const {
  key_of(path, {KeyType::real});
  return to_real(at(path).text, path);
}

bool Deck::flag(const string& path) const {
  key_of(path, {KeyType::flag});
  return at(path).text == "true";
}

const string& Deck::text(const string& path) const {
  key_of(path, {KeyType::text});
  return at(path).text;
}

std::vector<string> Deck::texts(const string& path) const {
  key_of(path, {KeyType::texts});
  return split_list(at(path).text);
}

std::vector<double> Deck::reals(const string& path) const {
  key_of(path, {KeyType::reals});
  std::vector<double> out;
  for (const auto& part : split_list(at(path).text)) out.push_back(to_real(part, path));
  return out;
}

std::vector<index_t> Deck::integers(const string& path) const {
  key_of(path, {KeyType::integers});
  std::vector<index_t> out;
  for (const auto& part : split_list(at(path).text))
    out.push_back(to_integer(part, path));
  return out;
}

bool Deck::given(const string& path) const {
  return at(path).given;
}

std::vector<int> Deck::numbered(const string& stem) const {
  std::vector<int> out;
  for (const auto& [path, value] : values_) {
    const string heading = path.substr(0, path.find('/'));
    const Block* block = find_block(heading);
    if (!block || !block->numbered || block->name != stem) continue;
    const int n = std::atoi(heading.c_str() + stem.size());
    if (out.empty() || out.back() != n) out.push_back(n);
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

string Deck::dump() const {
  return dump(true);
}

string Deck::dump(bool with_rules) const {
  string out = "# every key of the run, defaults included\n";
  const auto put = [&](const Block& block, const string& heading) {
    out += "\n<" + heading + ">\n";
    for (const auto& key : block.keys) {
      string line = key.name;
      line.resize(std::max<std::size_t>(line.size(), 18), ' ');
      const Value& value = at(heading + "/" + key.name);
      line += " = " + value.text;
      line.erase(line.find_last_not_of(' ') + 1);
      if (with_rules && !value.rule.empty()) line += "  # scale: " + value.rule;
      out += line + "\n";
    }
  };
  for (const auto& block : deck_blocks()) {
    if (!block.numbered) {
      put(block, block.name);
    } else {
      for (const int n : numbered(block.name)) put(block, block.name + std::to_string(n));
    }
  }
  return out;
}

std::uint64_t Deck::hash() const {
  std::uint64_t h = 0xcbf29ce484222325ull;  // FNV-1a, 64 bits
  for (const char c : dump(false)) {
    h ^= static_cast<unsigned char>(c);
    h *= 0x100000001b3ull;
  }
  return h;
}

std::vector<Deck::Difference> Deck::differences(const Deck& before) const {
  std::vector<Difference> out;
  const auto note = [&](const string& path, const string& was, const string& is) {
    if (was != is) out.push_back({path, was, is, find_key(path)->on_restart});
  };
  for (const auto& [path, value] : values_) {
    const auto old = before.values_.find(path);
    note(path, old == before.values_.end() ? "(absent)" : old->second.text, value.text);
  }
  for (const auto& [path, value] : before.values_)
    if (!values_.count(path)) note(path, value.text, "(absent)");
  return out;
}

}  // namespace capstan
