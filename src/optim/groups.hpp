#pragma once
/// \file Parameter groups: which tensors share which optimizer settings, and the kinds
/// under which norms are reported.
#include <string>
#include <vector>

#include "deck/deck.hpp"

namespace capstan {

struct ParamGroup {
  std::string name;  ///< "optimizer" or the block's name, "group1"
  std::vector<std::string>
      patterns;  ///< shell patterns on canonical tensor names; empty = all
  double lr = 0, beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0;
  bool decay_matrices_only =
      false;  ///< <optimizer>: decay spares gains, convolutions, gates
};

/// <optimizer> first, then <group1>, <group2>, ... A tensor belongs to the first <groupN>
/// that matches it, else to <optimizer>.
std::vector<ParamGroup> groups_from_deck(const Deck& deck);
/// Index of the group of a tensor.
std::size_t group_of(const std::vector<ParamGroup>& groups, const std::string& tensor);

/// Kinds of parameters in reports: embed, attn, router, latent, experts, shared, norms,
/// head.
const std::vector<std::string>& param_kinds();
std::size_t kind_of(const std::string& tensor);

}  // namespace capstan
