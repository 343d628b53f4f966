#pragma once
/// \file What must hold between keys of a deck, whatever the code can run.
#include <functional>
#include <string>
#include <vector>

#include "deck/deck.hpp"

namespace capstan {

/// `problem` gives "" or what is wrong. It reads only `keys`, and is asked only when each
/// of them has a sound value. A rule on numbered blocks has their `stem`; its keys
/// "*/files" then mean the key of the block at hand, which `problem` gets as second
/// argument ("mixture1").
struct Rule {
  std::vector<std::string> keys;
  std::function<std::string(const Deck&, const std::string& block)> problem;
  std::string stem;
};

const std::vector<Rule>& deck_rules();
/// "*/files" in "mixture1" -> "mixture1/files"; other names as they are.
std::string rule_path(const std::string& key, const std::string& block);

}  // namespace capstan
