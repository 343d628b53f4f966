#pragma once
/// \file Decks and error texts for the tests of the deck floor.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "deck/deck.hpp"

namespace capstan::test {

/// The least sound deck.
inline const std::string kLeast =
    "<model>\nhidden = 64\nlayers = 2\nheads = 4\nhead_dim = 16\nvocab = 320\nseq_len = "
    "32\n"
    "<moe>\nexperts = 8\ntop_k = 2\nexpert_width = 32\n"
    "<batch>\nsequences = 4\n";

inline std::string input(const std::string& name) {
  return std::string(CAPSTAN_SOURCE_DIR) + "/inputs/" + name;
}

/// The report of a deck that must be refused; "" (and a failure) when it is not.
inline std::string report(const std::string& text,
                          const std::vector<std::string>& overrides = {}) {
  try {
    Deck::parse(text, "x.deck", overrides);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::deck);
    return e.what();
  }
  ADD_FAILURE() << "accepted: " << text;
  return "";
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// Number of problems in a report.
inline int problems(const std::string& text) {
  int lines = 0;
  for (const char c : text) lines += c == '\n' ? 1 : 0;
  return lines;
}

}  // namespace capstan::test
