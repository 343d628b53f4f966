#pragma once
/// \file The nearest known name, for messages.
#include <string>
#include <vector>

namespace capstan {

/// Insertions, deletions, substitutions and swaps of neighbours that turn a into b.
int edit_distance(const std::string& a, const std::string& b);

/// The nearest of `names` (the first of equals), or "" when none is near: within a third
/// of the longer name, at least 1 edit.
std::string nearest(const std::string& name, const std::vector<std::string>& names);

}  // namespace capstan
