#include "model/shape.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace capstan {
namespace {

Recompute recompute_of(const std::string& word) {
  if (word == "moe") return Recompute::moe;
  return word == "full" ? Recompute::full : Recompute::none;
}

Balance balance_of(const std::string& word) {
  if (word == "qb") return Balance::qb;
  if (word == "aux") return Balance::aux;
  return word == "sign" ? Balance::sign : Balance::none;
}

AuxScope scope_of(const std::string& word) {
  if (word == "micro_batch") return AuxScope::micro_batch;
  return word == "sequence" ? AuxScope::sequence : AuxScope::global;
}

TransportSpec transport_of(const Deck& deck) {
  static const std::pair<const char*, Transport> kinds[] = {
      {"reference", Transport::reference},
      {"cells", Transport::cells},
      {"spill", Transport::spill},
      {"ragged", Transport::ragged},
      {"pooled_wave", Transport::pooled_wave},
      {"waterfill", Transport::waterfill}};
  TransportSpec spec;
  for (const auto& [word, kind] : kinds)
    if (deck.text("moe/transport") == word) spec.kind = kind;
  spec.capacity_send = deck.real("moe/capacity_send");
  spec.capacity_receive = deck.real("moe/capacity_receive");
  spec.waves = deck.integer("moe/waves");
  const std::string& policy = deck.text("moe/drop_policy");
  if (policy == "weight") spec.policy = DropPolicy::weight;
  if (policy == "rotate") spec.policy = DropPolicy::rotate;
  return spec;
}

bool has(const std::vector<std::string>& words, const char* word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

void read_model(const Deck& deck, ModelShape& s) {
  s.hidden = deck.integer("model/hidden");
  s.layers = deck.integer("model/layers");
  s.head_dim = deck.integer("model/head_dim");
  s.heads = deck.integer("model/heads");
  s.kv_heads = deck.integer("model/kv_heads");
  if (s.kv_heads == 0) s.kv_heads = s.heads;
  s.kv_heads_global = deck.integer("model/kv_heads_global");
  if (s.kv_heads_global == 0) s.kv_heads_global = s.kv_heads;
  s.vocab = deck.integer("model/vocab");
  s.seq_len = deck.integer("model/seq_len");
  s.window = deck.integer("model/window");
  s.global_every = deck.integer("model/global_every");
  s.rope_theta = deck.real("model/rope_theta");
  s.rope_dims = std::llround(deck.real("model/rope_fraction") * s.head_dim);
  s.qk_norm = deck.flag("model/qk_norm");
  s.qk_eps = deck.real("model/qk_eps");
  s.qk_multiplier = deck.real("model/qk_multiplier");
  s.xsa = deck.flag("model/xsa");
  s.head_gate = deck.flag("model/head_gate");
  s.gate_rank = deck.integer("model/gate_rank");
  const auto sites = deck.texts("model/sconv");
  s.sconv_k = has(sites, "k");
  s.sconv_attn = has(sites, "attn");
  s.sconv_moe = has(sites, "moe");
  s.norm_eps = deck.real("model/norm_eps");
  s.init_std = deck.real("model/init_std");
  if (s.init_std == 0) s.init_std = 0.5 / std::sqrt(static_cast<double>(s.hidden));
  s.z_loss = deck.real("model/z_loss");
  s.recompute = recompute_of(deck.text("model/recompute"));
}

void read_moe(const Deck& deck, ModelShape& s) {
  s.experts = deck.integer("moe/experts");
  s.top_k = deck.integer("moe/top_k");
  s.shared_experts = deck.integer("moe/shared_experts");
  s.expert_width = deck.integer("moe/expert_width");
  s.shared_width = deck.integer("moe/shared_width");
  if (s.shared_width == 0) s.shared_width = s.expert_width;
  s.latent_width = deck.integer("moe/latent_width");
  s.softmax = deck.text("moe/score") == "softmax";
  s.score_sum = deck.real("moe/score_sum");
  s.router_bf16_out = deck.text("moe/router_precision") == "bf16_out";
  s.balance = balance_of(deck.text("moe/balance"));
  s.qb_bins = deck.integer("moe/qb_bins");
  s.aux_loss = deck.real("moe/aux_loss");
  s.aux_scope = scope_of(deck.text("moe/aux_scope"));
  s.router_z_loss = deck.real("moe/router_z_loss");
  s.transport = transport_of(deck);
  s.sign_rate = deck.real("moe/sign_rate");
}

}  // namespace

ModelShape ModelShape::from_deck(const Deck& deck) {
  ModelShape s;
  read_model(deck, s);
  read_moe(deck, s);
  s.layers_per_stage = deck.integers("grid/layers_per_stage");
  return s;
}

}  // namespace capstan
