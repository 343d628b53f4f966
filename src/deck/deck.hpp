#pragma once
/// \file A deck: the values of every declared key, with defaults filled in, checked.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/error.hpp"

namespace capstan {

using index_t = std::int64_t;

/// What happens when a key differs at restart from the run that wrote the checkpoint.
enum class OnRestart { fixed, warn, free };

/// Immutable after loading. Paths are "block/key"; numbered blocks are "mixture1/files".
/// Asking for an undeclared path is Error(Exit::internal).
class Deck {
 public:
  /// Reads the files in order (later ones override earlier ones), then the overrides
  /// "block/key=value"; validates. All problems come in one Error(Exit::deck), one per
  /// line, each with file:line and, for an unknown name, the nearest known one.
  static Deck load(const std::vector<std::string>& files,
                   const std::vector<std::string>& overrides);
  /// The same from text (`name` stands for the file name in messages).
  static Deck parse(const std::string& text, const std::string& name,
                    const std::vector<std::string>& overrides = {});

  index_t integer(const std::string& path) const;
  double real(const std::string& path) const;
  bool flag(const std::string& path) const;
  const std::string& text(const std::string& path) const;
  std::vector<std::string> texts(const std::string& path) const;
  std::vector<double> reals(const std::string& path) const;
  std::vector<index_t> integers(const std::string& path) const;
  /// True when the deck (or an override) gave the key; false when it has its default.
  bool given(const std::string& path) const;
  /// Numbers n for which block "<stem>n" appears, ascending.
  std::vector<int> numbered(const std::string& stem) const;

  /// The deck with every default, itself a valid deck (`deck.used`). Keys that <scale>
  /// derives carry the rule as a comment.
  std::string dump() const;
  /// Hash of dump() without those comments.
  std::uint64_t hash() const;

  struct Difference {
    std::string path, before, after;
    OnRestart on_restart;
  };
  /// Keys whose values differ between the deck of a checkpoint and this one.
  std::vector<Difference> differences(const Deck& before) const;

 private:
  struct Value {
    std::string text;
    bool given = false;
    std::string rule;  ///< where <scale> derives the key: how, for the echo
  };
  friend class DeckBuilder;
  const Value& at(const std::string& path) const;
  std::string dump(bool with_rules) const;
  std::map<std::string, Value> values_;
};

}  // namespace capstan
