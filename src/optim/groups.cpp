#include "optim/groups.hpp"

#include <fnmatch.h>

#include <algorithm>

#include "kernels/newton_schulz.hpp"

namespace capstan {

namespace {
ParamGroup read_group(const Deck& deck, const std::string& block) {
  ParamGroup group;
  group.name = block;
  group.lr = deck.real(block + "/lr");
  const std::vector<double> betas = deck.reals(block + "/betas");
  group.beta1 = betas.at(0);
  group.beta2 = betas.at(1);
  group.eps = deck.real(block + "/eps");
  group.kind = optimizer_kind(deck.text(block + "/kind"));
  const bool decays =
      group.kind == OptimizerKind::adamw || group.kind == OptimizerKind::muon;
  group.weight_decay = decays ? deck.real(block + "/weight_decay") : 0.0;
  return group;
}

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}
}  // namespace

OptimizerKind optimizer_kind(const std::string& name) {
  if (name == "adamw") return OptimizerKind::adamw;
  if (name == "adam") return OptimizerKind::adam;
  if (name == "adamh") return OptimizerKind::adamh;
  if (name == "muonh") return OptimizerKind::muonh;
  if (name == "muon") return OptimizerKind::muon;
  throw Error(Exit::internal, "no optimizer is called " + name);
}

std::vector<ParamGroup> groups_from_deck(const Deck& deck) {
  std::vector<ParamGroup> groups = {read_group(deck, "optimizer")};
  groups[0].decay_matrices_only = true;
  for (const int n : deck.numbered("group")) {
    const std::string block = "group" + std::to_string(n);
    groups.push_back(read_group(deck, block));
    groups.back().patterns = deck.texts(block + "/match");
  }
  return groups;
}

std::size_t group_of(const std::vector<ParamGroup>& groups, const std::string& tensor) {
  for (std::size_t g = 1; g < groups.size(); ++g) {
    const auto& patterns = groups[g].patterns;
    const bool matches = std::any_of(
        patterns.begin(), patterns.end(),
        [&](const std::string& p) { return fnmatch(p.c_str(), tensor.c_str(), 0) == 0; });
    if (matches) return g;
  }
  return 0;
}

std::vector<std::string> group_problems(const Deck& deck,
                                        const std::vector<ParamSpec>& list) {
  std::vector<std::string> out;
  const auto groups = groups_from_deck(deck);
  for (const ParamSpec& spec : list) {
    const ParamGroup& group = groups[group_of(groups, spec.name)];
    if (moments_of(group.kind) == 2 && !keeps_norm(group.kind)) continue;
    if (spec.kind == ParamSpec::matrix || spec.kind == ParamSpec::state) continue;
    const bool zero = spec.kind == ParamSpec::gate_zero;
    out.push_back(spec.name + " is in <" + group.name +
                  ">, kind = " + deck.text(group.name + "/kind") +
                  (zero ? ", but starts at zero" : ", but is no matrix"));
  }
  return out;
}

double orthogonalisation_flops(const Deck& deck, const std::vector<ParamSpec>& list,
                               index_t n_expert) {
  double sum = 0;
  const auto groups = groups_from_deck(deck);
  for (const ParamSpec& spec : list) {
    if (!orthogonalises(groups[group_of(groups, spec.name)].kind)) continue;
    const std::size_t axes = spec.shape.size();
    if (axes < 2) continue;
    BatchShape m{1, spec.shape[axes - 2], spec.shape[axes - 1]};
    m.count = spec.size() / m.size() / (spec.expert ? n_expert : 1);
    sum += newton_schulz_flops(m);
  }
  return sum;
}

const std::vector<std::string>& param_kinds() {
  static const std::vector<std::string> kinds = {"embed",   "attn",   "router", "latent",
                                                 "experts", "shared", "norms",  "head"};
  return kinds;
}

std::size_t kind_of(const std::string& tensor) {
  const auto index = [](const char* name) {
    const auto& kinds = param_kinds();
    return static_cast<std::size_t>(std::find(kinds.begin(), kinds.end(), name) -
                                    kinds.begin());
  };
  if (tensor == "embed/table") return index("embed");
  if (tensor == "head/table") return index("head");
  if (contains(tensor, "norm") || contains(tensor, "/gate_")) return index("norms");
  if (contains(tensor, "/router")) return index("router");
  if (contains(tensor, "/latent_")) return index("latent");
  if (contains(tensor, "/shared_")) return index("shared");
  if (contains(tensor, "moe/w_")) return index("experts");
  if (contains(tensor, "moe/sconv")) return index("latent");
  return index("attn");
}

}  // namespace capstan
