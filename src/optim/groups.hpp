#pragma once
/// \file Parameter groups: which tensors share which optimizer settings, and the kinds
/// under which norms are reported.
#include <string>
#include <vector>

#include "deck/deck.hpp"
#include "model/param_list.hpp"

namespace capstan {

enum class OptimizerKind { adamw, adam, adamh, muonh, muon };

OptimizerKind optimizer_kind(const std::string& name);
/// muonh and muon: momentum that Newton-Schulz orthogonalises.
inline bool orthogonalises(OptimizerKind k) {
  return k == OptimizerKind::muonh || k == OptimizerKind::muon;
}
/// muonh and adamh: every matrix keeps the norm that it started with.
inline bool keeps_norm(OptimizerKind k) {
  return k == OptimizerKind::muonh || k == OptimizerKind::adamh;
}
/// Moments that it keeps for each element.
inline int moments_of(OptimizerKind k) {
  return orthogonalises(k) ? 1 : 2;
}

struct ParamGroup {
  std::string name;  ///< "optimizer" or the block's name, "group1"
  std::vector<std::string>
      patterns;  ///< shell patterns on canonical tensor names; empty = all
  OptimizerKind kind = OptimizerKind::adamw;
  double lr = 0, beta1 = 0, beta2 = 0, eps = 0;
  double weight_decay = 0;  ///< 0 for kinds without
  bool decay_matrices_only =
      false;  ///< <optimizer>: decay spares gains, convolutions, gates
};

/// <optimizer> first, then <group1>, <group2>, ... A tensor belongs to the first <groupN>
/// that matches it, else to <optimizer>.
std::vector<ParamGroup> groups_from_deck(const Deck& deck);
/// Index of the group of a tensor.
std::size_t group_of(const std::vector<ParamGroup>& groups, const std::string& tensor);

/// What the groups of a deck cannot do with these tensors, one line each: only matrices
/// can be orthogonalised or keep their norm, and none that starts at zero.
std::vector<std::string> group_problems(const Deck& deck,
                                        const std::vector<ParamSpec>& list);

/// Operations of Newton-Schulz in one step of a rank that has 1 / n_expert of the routed
/// experts and everything else.
double orthogonalisation_flops(const Deck& deck, const std::vector<ParamSpec>& list,
                               index_t n_expert);

/// Kinds of parameters in reports: embed, attn, router, latent, experts, shared, norms,
/// head.
const std::vector<std::string>& param_kinds();
std::size_t kind_of(const std::string& tensor);

}  // namespace capstan
