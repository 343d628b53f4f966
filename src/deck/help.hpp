#pragma once
/// \file The parameter reference, printed from the tables.
#include <string>

namespace capstan {

/// topic "": the blocks; "model": its keys; "model/window": one key; "all": everything.
/// Error(Exit::deck) with the nearest name for a topic that does not exist.
std::string help_text(const std::string& topic);

}  // namespace capstan
