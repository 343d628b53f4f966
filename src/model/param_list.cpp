#include "model/param_list.hpp"

#include <cstdio>

namespace capstan {
namespace {

using Kind = ParamSpec::Kind;

struct Builder {
  const ModelShape& s;
  std::vector<ParamSpec> list;
  std::string prefix;
  index_t layer = -1;

  ParamSpec& add(const char* name, std::vector<index_t> shape, Kind kind) {
    ParamSpec p;
    p.name = prefix + name;
    p.shape = std::move(shape);
    p.kind = kind;
    p.init_std = kind == Kind::matrix ? s.init_std : 0;
    p.layer = layer;
    list.push_back(std::move(p));
    return list.back();
  }
  /// A matrix all of whose elements work for every token.
  void add_active(const char* name, std::vector<index_t> shape) {
    ParamSpec& p = add(name, std::move(shape), Kind::matrix);
    p.active = p.size();
  }
  void add_expert(const char* name, std::vector<index_t> shape) {
    ParamSpec& p = add(name, std::move(shape), Kind::matrix);
    p.expert = true;
    p.active = p.size() / s.experts * s.top_k;
  }
  void add_norm() {
    add("norm", {s.hidden}, Kind::gain);
    if (!s.has_gates()) return;
    add("gate_down", {s.hidden, s.gate_rank}, Kind::matrix);
    add("gate_up", {s.gate_rank, s.hidden}, Kind::matrix);
  }
  void add_attention() {
    add_norm();
    add_active("w_q", {s.hidden, s.q_width()});
    add_active("w_k", {s.hidden, s.kv_width()});
    add_active("w_v", {s.hidden, s.kv_width()});
    add_active("w_o", {s.q_width(), s.hidden});
    if (s.head_gate) add("head_gate", {s.hidden, s.heads}, Kind::gate_zero);
    if (s.sconv_k) add("sconv_k", {s.sconv_taps, s.kv_width()}, Kind::conv);
    if (s.sconv_attn) add("sconv_out", {s.sconv_taps, s.hidden}, Kind::conv);
  }
  void add_moe() {
    const index_t z = s.latent();
    add_norm();
    add_active("router", {s.hidden, s.experts});
    add("router_bias", {s.experts}, Kind::state);
    if (s.has_latent()) {
      add_active("latent_down", {s.hidden, z});
      add("latent_norm", {z}, Kind::gain);
      add_active("latent_up", {z, s.hidden});
    }
    add_expert("w_gate", {s.experts, z, s.expert_width});
    add_expert("w_up", {s.experts, z, s.expert_width});
    add_expert("w_down", {s.experts, s.expert_width, z});
    if (s.shared_experts > 0) {
      add_active("shared_gate", {s.shared_experts, s.hidden, s.shared_width});
      add_active("shared_up", {s.shared_experts, s.hidden, s.shared_width});
      add_active("shared_down", {s.shared_experts, s.shared_width, s.hidden});
    }
    if (s.sconv_moe) add("sconv_out", {s.sconv_taps, s.hidden}, Kind::conv);
  }
};

}  // namespace

index_t ParamSpec::size() const {
  index_t n = 1;
  for (const index_t extent : shape) n *= extent;
  return n;
}

std::vector<ParamSpec> param_list(const ModelShape& shape) {
  Builder b{shape, {}, "embed/", -1};
  b.add("table", {shape.vocab, shape.hidden}, Kind::matrix);
  b.add_norm();
  for (index_t l = 0; l < shape.layers; ++l) {
    char name[32];
    std::snprintf(name, sizeof name, "layer_%03d/", static_cast<int>(l));
    b.layer = l;
    b.prefix = std::string(name) + "attn/";
    b.add_attention();
    b.prefix = std::string(name) + "moe/";
    b.add_moe();
  }
  b.layer = -1;
  b.prefix = "final/";
  b.add_norm();
  b.prefix = "head/";
  b.add("table", {shape.hidden, shape.vocab}, Kind::matrix);
  return b.list;
}

ParamTotals param_totals(const std::vector<ParamSpec>& list) {
  ParamTotals t;
  for (const auto& p : list) {
    t.total += p.size();
    t.active += p.active;
  }
  return t;
}

}  // namespace capstan
