#pragma once
/// \file What a table declares about a key: type, default, range, choices, unit,
/// documentation and restart class. Parser, echo, help and restart report all read it.
#include <limits>
#include <string>
#include <vector>

#include "deck/deck.hpp"

namespace capstan {

enum class KeyType { integer, real, flag, text, integers, reals, texts };

/// One key. Tables are written as chains: integer("layers").required().at_least(1)...
struct Key {
  std::string name;
  KeyType type = KeyType::text;
  std::string fallback;  ///< default, in canonical form
  std::string inherits;  ///< path whose value is the default instead ("optimizer/lr")
  bool is_required = false;
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool low_open = false, high_open = false;  ///< bound itself is not allowed
  std::size_t count = 0;                     ///< exact length of a list; 0 = any
  std::vector<std::string> choices;          ///< of a text, or of each element of texts
  std::string unit;
  std::string doc_text;
  OnRestart on_restart = OnRestart::free;

  bool is_list() const { return type >= KeyType::integers; }
  bool is_text() const { return type == KeyType::text || type == KeyType::texts; }

  Key&& required() && { return is_required = true, std::move(*this); }
  Key&& otherwise(const char* value) &&;
  Key&& as(const char* path) && { return inherits = path, std::move(*this); }
  Key&& at_least(double x) && { return low = x, std::move(*this); }
  Key&& at_most(double x) && { return high = x, std::move(*this); }
  Key&& above(double x) && { return low = x, low_open = true, std::move(*this); }
  Key&& below(double x) && { return high = x, high_open = true, std::move(*this); }
  Key&& length(std::size_t n) && { return count = n, std::move(*this); }
  Key&& one_of(std::vector<std::string> words) && {
    return choices = std::move(words), std::move(*this);
  }
  Key&& in(const char* u) && { return unit = u, std::move(*this); }
  Key&& fixed() && { return on_restart = OnRestart::fixed, std::move(*this); }
  Key&& warn() && { return on_restart = OnRestart::warn, std::move(*this); }
  Key&& doc(const char* d) && { return doc_text = d, std::move(*this); }
};

Key integer(const char* name);
Key real(const char* name);
Key flag(const char* name);
Key text(const char* name);
Key integers(const char* name);
Key reals(const char* name);
Key texts(const char* name);

/// One block. A numbered block "mixture" appears in decks as <mixture1>, <mixture2>, ...
struct Block {
  std::string name;
  std::string doc;
  bool numbered = false;
  std::vector<Key> keys;

  const Key* find(const std::string& key) const {
    for (const auto& k : keys)
      if (k.name == key) return &k;
    return nullptr;
  }
};

/// Every block, in the order of dumps and help.
const std::vector<Block>& deck_blocks();
/// The block of a heading ("mixture12" gives the block mixture), or null.
const Block* find_block(const std::string& heading);
/// The key of a path "block/key", or null.
const Key* find_key(const std::string& path);

}  // namespace capstan
