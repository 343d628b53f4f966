#pragma once
/// \file What a deck may say but this version cannot run yet, and what a run needs
/// besides a sound deck. Checked before running, not for -n and -m. Shrinks as features
/// arrive.
#include <string>
#include <vector>

#include "deck/deck.hpp"

namespace capstan {

/// Features of the deck that no code serves yet, one line each.
std::vector<std::string> unsupported(const Deck& deck);

/// What is missing for training: length of the run, data files. One line each.
std::vector<std::string> missing_for_run(const Deck& deck);

/// Error(Exit::deck) with every line of the given lists, if any.
void refuse(const std::string& title, const std::vector<std::string>& lines);

}  // namespace capstan
