#pragma once
/// \file `capstan -v`: a deck built at tiny size, with every switch as it stands, and one
/// step of it on the ranks at hand.
#include "train/run.hpp"

namespace capstan {

/// The deck with its extents shrunk (widths, layers, heads, experts, vocabulary, context,
/// batch) as far as the rules between keys and `ranks` ranks allow; switches, optimizer
/// and schedule stay. Grid: the deck's where it has `ranks` ranks, else as many of them
/// as divide the experts on the expert axis. `tokens` is the token file to train on; ids
/// below model/vocab of the result.
Deck tiny_deck(const Deck& deck, int ranks, const std::string& tokens);

/// A token file of random ids in a folder of its own, gone with the object.
class RandomTokens {
 public:
  /// Error(Exit::file) when the folder for temporary files cannot be written.
  RandomTokens();
  ~RandomTokens();
  RandomTokens(const RandomTokens&) = delete;
  std::string prefix() const { return folder_ + "/random"; }
  /// Ids are below this.
  static constexpr index_t kVocab = 64;

 private:
  std::string folder_;
};

}  // namespace capstan
