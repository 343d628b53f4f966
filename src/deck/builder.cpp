#include "deck/builder.hpp"

#include <algorithm>
#include <fstream>
#include <sstream>

#include "deck/nearest.hpp"
#include "deck/rules.hpp"
#include "deck/values.hpp"

namespace capstan {
namespace {

using std::string;

std::vector<string> block_names() {
  std::vector<string> out;
  for (const auto& b : deck_blocks()) out.push_back(b.numbered ? b.name + "1" : b.name);
  return out;
}

/// Every "block/key" whose key is called `key`: for keys that stand in the wrong block.
string block_that_has(const string& key) {
  string out;
  for (const auto& b : deck_blocks()) {
    if (!b.find(key)) continue;
    out += (out.empty() ? "" : ", ") + string("<") + b.name + (b.numbered ? "1>" : ">");
  }
  return out;
}

string unknown_key(const Block& block, const string& heading, const string& key) {
  std::vector<string> names;
  for (const auto& k : block.keys) names.push_back(k.name);
  string what = "unknown key " + key + " in <" + heading + ">";
  const string best = nearest(key, names);
  const string other = block_that_has(key);
  if (!other.empty()) return what + "; " + other + " has it";
  return best.empty() ? what : what + "; did you mean " + best + "?";
}

string unknown_block(const string& heading) {
  const string what = "unknown block <" + heading + ">";
  const Block* first = find_block(heading + "1");
  if (first && first->numbered)
    return what + "; it takes a number: <" + heading + "1>, <" + heading + "2>, ...";
  const string best = nearest(heading, block_names());
  return best.empty() ? what : what + "; did you mean <" + best + ">?";
}

}  // namespace

void DeckBuilder::complain(const string& where, const string& what, int line) {
  problems_.push_back({where, what, line});
}

void DeckBuilder::add_file(const string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  // A directory opens but cannot be read; an empty file sets failbit on the insertion
  // only.
  if (!file || file.peek() == std::ifstream::traits_type::eof()) {
    complain(path, "cannot be read, or is empty");
    return;
  }
  text << file.rdbuf();
  add_text(text.str(), path);
}

void DeckBuilder::add_text(const string& text, const string& name) {
  if (first_source_ == "deck") first_source_ = name;
  add(lex(text, name));
}

void DeckBuilder::add_override(const string& text) {
  add(lex_override(text));
}

void DeckBuilder::add(const Lexed& lexed) {
  seen_.clear();
  const auto first = static_cast<std::ptrdiff_t>(problems_.size());
  for (const auto& p : lexed.problems) problems_.push_back(p);
  for (const auto& h : lexed.headings)
    if (check_heading(h)) headings_.emplace(h.block, h.where);
  for (const auto& a : lexed.assignments) add_assignment(a);
  std::stable_sort(problems_.begin() + first, problems_.end(),
                   [](const Problem& a, const Problem& b) { return a.line < b.line; });
}

bool DeckBuilder::check_heading(const Assignment& heading) {
  if (find_block(heading.block)) return true;
  complain(heading.where, unknown_block(heading.block), heading.line);
  return false;
}

void DeckBuilder::add_assignment(const Assignment& a) {
  const Block* block = find_block(a.block);
  if (!block) {  // in a file the heading was reported
    if (a.file.empty()) check_heading(a);
    return;
  }
  headings_.emplace(a.block, a.where);
  const Key* key = block->find(a.key);
  if (!key) return complain(a.where, unknown_key(*block, a.block, a.key), a.line);
  const string path = a.block + "/" + a.key;
  const auto [earlier, fresh] = seen_.emplace(path, a.where);
  if (!fresh) {
    const string what = path + " is given twice (first at " + earlier->second + ")";
    return complain(a.where, what, a.line);
  }
  string why;
  const auto value = check_value(*key, a.value, why);
  places_[path] = a.where;
  if (!value) {
    bad_.insert(path);
    return complain(a.where, path + ": " + why, a.line);
  }
  bad_.erase(path);
  deck_.values_[path] = {*value, true, ""};
}

/// Values that <scale> derives for keys that nobody gave.
void DeckBuilder::apply_scale() {
  const GivenValue given = [&](const string& path) -> const string* {
    const auto found = deck_.values_.find(path);
    return found == deck_.values_.end() ? nullptr : &found->second.text;
  };
  std::vector<int> groups;
  for (const auto& [heading, where] : headings_) {
    const Block* block = find_block(heading);
    if (block && block->name == "group") groups.push_back(std::stoi(heading.substr(5)));
  }
  ScaleResult result = derive_scale(given, groups);
  for (const auto& problem : result.problems) {
    const auto place = places_.find("scale/hidden");
    if (bad_.insert(problem.path).second)
      complain(place == places_.end() ? first_source_ : place->second, problem.what);
  }
  derived_ = std::move(result.values);
  std::vector<const Derived*> fresh;
  for (const Derived& d : derived_)
    if (!given(d.path) && !bad_.count(d.path)) fresh.push_back(&d);
  for (const Derived* d : fresh) {
    deck_.values_[d->path] = {d->text, false, ""};
    headings_.emplace(d->path.substr(0, d->path.find('/')), first_source_);
  }
}

/// The echo says by which rule a key has its value, or what the rule would have said.
void DeckBuilder::note_rules() {
  for (const Derived& d : derived_) {
    const auto found = deck_.values_.find(d.path);
    if (found == deck_.values_.end()) continue;
    const bool follows = found->second.text == d.text;
    found->second.rule = follows ? d.rule : "given, the rule says " + d.text;
  }
}

void DeckBuilder::fill(const Block& block, const string& heading) {
  for (const auto& key : block.keys) {
    const string path = heading + "/" + key.name;
    if (deck_.values_.count(path) || bad_.count(path)) continue;
    if (key.is_required) {
      const auto place = headings_.find(heading);
      complain(place == headings_.end() ? first_source_ : place->second,
               path + " is required (" + describe(key) + ")");
      bad_.insert(path);
    } else if (key.inherits.empty()) {
      deck_.values_[path] = {key.fallback, false, ""};
    } else if (bad_.count(key.inherits)) {
      bad_.insert(path);
    } else {
      deck_.values_[path] = {deck_.at(key.inherits).text, false, ""};
    }
  }
}

void DeckBuilder::fill_defaults() {
  for (const auto& block : deck_blocks()) {
    if (!block.numbered) {
      fill(block, block.name);
      continue;
    }
    for (const auto& [heading, where] : headings_)
      if (find_block(heading) == &block) fill(block, heading);
  }
}

void DeckBuilder::apply_rules() {
  const auto apply = [&](const Rule& rule, const string& block) {
    string where;
    for (const auto& name : rule.keys) {
      const string path = rule_path(name, block);
      if (bad_.count(path)) return;
      const auto place = places_.find(path);
      if (where.empty() && place != places_.end()) where = place->second;
    }
    const string what = rule.problem(deck_, block);
    if (!what.empty()) complain(where.empty() ? first_source_ : where, what);
  };
  for (const auto& rule : deck_rules()) {
    if (rule.stem.empty()) {
      apply(rule, "");
    } else {
      for (const int n : deck_.numbered(rule.stem))
        apply(rule, rule.stem + std::to_string(n));
    }
  }
}

void DeckBuilder::throw_if_any() const {
  if (problems_.empty()) return;
  constexpr std::size_t kMost = 100;
  const std::size_t n = problems_.size();
  string report =
      std::to_string(n) + (n == 1 ? " problem" : " problems") + " in the deck:";
  for (std::size_t i = 0; i < n && i < kMost; ++i)
    report += "\n  " + problems_[i].where + ": " + problems_[i].what;
  if (n > kMost) report += "\n  ... and " + std::to_string(n - kMost) + " more";
  throw Error(Exit::deck, report);
}

Deck DeckBuilder::finish() {
  apply_scale();
  fill_defaults();
  note_rules();
  apply_rules();
  throw_if_any();
  return std::move(deck_);
}

}  // namespace capstan
