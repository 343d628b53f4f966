#pragma once
/// \file From assignments of several sources to one checked Deck.
#include <map>
#include <set>
#include <string>
#include <vector>

#include "deck/deck.hpp"
#include "deck/key.hpp"
#include "deck/lexer.hpp"
#include "deck/scale.hpp"

namespace capstan {

/// Collects problems instead of stopping at the first; finish() throws them all.
class DeckBuilder {
 public:
  void add_file(const std::string& path);
  void add_text(const std::string& text, const std::string& name);
  void add_override(const std::string& text);
  /// Fills defaults, applies the rules that tie keys together. Error(Exit::deck).
  Deck finish();

 private:
  void add(const Lexed& lexed);
  void add_assignment(const Assignment& a);
  void complain(const std::string& where, const std::string& what, int line = 0);
  bool check_heading(const Assignment& heading);
  void apply_scale();
  void note_rules();
  void fill(const Block& block, const std::string& heading);
  void fill_defaults();
  void apply_rules();
  void throw_if_any() const;

  Deck deck_;
  std::vector<Problem> problems_;
  std::string first_source_ = "deck";
  std::map<std::string, std::string>
      headings_;  ///< block heading -> where it was first seen
  std::map<std::string, std::string> places_;  ///< path -> where its value was given last
  std::map<std::string, std::string> seen_;    ///< file and path -> where, for duplicates
  std::vector<Derived> derived_;               ///< by <scale>
  std::set<std::string> bad_;                  ///< paths without a usable value
};

}  // namespace capstan
