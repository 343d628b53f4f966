#include "deck/scale.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>

#include "deck/key.hpp"
#include "deck/values.hpp"

namespace capstan {
namespace {

using std::string;

/// Layers and racks (of 1024 sequences a step each) of the published widths.
struct Rung {
  index_t hidden, layers, racks;
};
constexpr Rung kRungs[] = {
    {768, 8, 1}, {1024, 12, 2}, {1536, 16, 6}, {2048, 22, 11}, {6144, 48, 11}};

const Rung* rung_of(index_t hidden) {
  for (const Rung& r : kRungs)
    if (r.hidden == hidden) return &r;
  return nullptr;
}

/// Eight digits: the same on every machine, whatever its pow().
string rounded(double x) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.8g", x);
  string why;
  return canonical(parse_real(buffer, why).value_or(x));
}

/// Patterns of the published groups: MuonH, AdamH.
const char* const kMatch[] = {
    "*/w_*, */shared_*, */latent_down, */latent_up, */gate_down, */gate_up",
    "head/table"};

bool is_hyperball(const string& kind) {
  return kind == "muonh" || kind == "adamh";
}

class Derivation {
 public:
  Derivation(const GivenValue& given, const std::vector<int>& groups)
      : given_(given), groups_(groups) {}

  ScaleResult run() {
    hidden_ = integer("scale/hidden");
    if (hidden_ <= 0) return {};
    shape();
    batch_and_length();
    if (result_.problems.empty()) optimizer();
    return std::move(result_);
  }

 private:
  /// The value that will stand: given, else derived, else the default.
  string value(const string& path) const {
    if (const string* text = given_(path)) return *text;
    const auto found = derived_.find(path);
    if (found != derived_.end()) return found->second;
    const Key* key = find_key(path);
    if (!key) throw Error(Exit::internal, "deck key " + path + " is not declared");
    return key->inherits.empty() ? key->fallback : value(key->inherits);
  }
  index_t integer(const string& path) const {
    string why;
    return parse_integer(value(path), why).value_or(0);
  }
  double real(const string& path) const {
    string why;
    return parse_real(value(path), why).value_or(0);
  }
  void put(const string& path, const string& text, const string& rule) {
    derived_[path] = text;
    result_.values.push_back({path, text, rule});
  }
  void put(const string& path, index_t n, const string& rule) {
    put(path, canonical(n), rule);
  }
  void missing(const string& path) {
    if (given_(path)) return;
    result_.problems.push_back({path, path + " is required: width " + canonical(hidden_) +
                                          " is not in the published table"});
  }

  void shape() {
    put("model/hidden", hidden_, "scale/hidden");
    if (const Rung* r = rung_of(hidden_)) {
      put("model/layers", r->layers, "published table");
    } else {
      missing("model/layers");
    }
    put("model/head_dim", 128, "published");
    const index_t head_dim = std::max<index_t>(1, integer("model/head_dim"));
    if (hidden_ % head_dim != 0 && !given_("model/heads")) {
      result_.problems.push_back(
          {"model/heads", "model/head_dim = " + canonical(head_dim) +
                              " does not divide scale/hidden = " + canonical(hidden_)});
      return;
    }
    put("model/heads", hidden_ / head_dim, "hidden / head_dim");
    const index_t heads = std::max<index_t>(1, integer("model/heads"));
    put("model/kv_heads", published_kv_heads(heads, 4), "divisor of heads up to heads/4");
    put("model/kv_heads_global", published_kv_heads(heads, 8),
        "divisor of heads up to heads/8");
    put("model/window", 2048, "published");
    put("model/global_every", 4, "published");
    put("model/init_std", canonical(0.5 / std::sqrt(double(hidden_))),
        "0.5/sqrt(hidden)");
    put("moe/experts", 384, "published");
    put("moe/top_k", 8, "published");
    put("moe/shared_experts", 2, "published");
    for (const char* key : {"moe/expert_width", "moe/shared_width", "moe/latent_width"})
      put(key, std::max<index_t>(1, hidden_ / 2), "hidden / 2");
  }

  /// Elements that work for one token, as published: projections, router, latent, shared
  /// and top_k experts.
  double active() const {
    const auto n = [&](const char* path) { return double(integer(path)); };
    const double d = double(hidden_), h = n("model/head_dim"), z = n("moe/latent_width");
    const double stream = z > 0 ? z : d;
    const double attention = 2 * d * h * (n("model/heads") + n("model/kv_heads"));
    const double moe = d * n("moe/experts") + 2 * d * z +
                       3 * d * n("moe/shared_experts") * n("moe/shared_width") +
                       3 * stream * n("moe/top_k") * n("moe/expert_width");
    return n("model/layers") * (attention + moe);
  }

  void batch_and_length() {
    const Rung* rung = rung_of(hidden_);
    if (rung) {
      put("batch/sequences", 1024 * rung->racks, "1024 for each published rack");
    } else {
      missing("batch/sequences");
    }
    tokens_per_step_ =
        double(integer("batch/sequences")) * double(integer("model/seq_len"));
    if (!result_.problems.empty() || tokens_per_step_ <= 0) return;
    const double wanted = real("scale/tokens_per_active") * active();
    const double steps = std::max(1.0, std::round(wanted / tokens_per_step_));
    put("schedule/tokens", index_t(steps * tokens_per_step_),
        "scale/tokens_per_active x active parameters, whole steps");
    put("schedule/warmup_fraction", "0.01", "published");
    put("schedule/shape", "linear", "published");
    put("schedule/final_fraction", "0.05", "published");
    const index_t planned = integer("schedule/planned_tokens");
    tokens_ = double(planned > 0 ? planned : integer("schedule/tokens"));
    put("eval/every_tokens", integer("schedule/tokens") / 20, "5 % of the run");
    if (rung) put("eval/sequences", 64 * rung->racks, "64 for each published rack");
  }

  /// lr, betas and eps of a block by the kind that will stand there.
  void rates(const string& block) {
    const bool hyperball = is_hyperball(value(block + "/kind"));
    if (hyperball) {
      const double cap = real("scale/lr_cap");
      const bool binds = adam_ * 13 / 3 > cap;
      put(block + "/lr", rounded(published_muonh_rate(adam_, cap)),
          binds
              ? "scale/lr_cap binds: 13/3 of the Adam rate is " + rounded(adam_ * 13 / 3)
              : "13/3 of the Adam rate");
    } else {
      put(block + "/lr", rounded(adam_),
          "0.087571 tokens^-0.3461 hidden^-0.3448 sqrt(tokens per step)");
    }
    if (value(block + "/kind").rfind("muon", 0) == 0) {
      put(block + "/betas", "0.95, 0.95", "momentum as published");
    } else {
      put(block + "/betas", "0.9, " + rounded(published_beta2(tokens_per_step_)),
          "0.999^(tokens per step / 131072), within 0.95 and 0.9999");
    }
    put(block + "/eps", rounded(published_eps(tokens_, tokens_per_step_)),
        "9.676e-18 sqrt(steps)");
  }

  /// Whether <groupN> may stand for a published group: its tensors are not given, or
  /// are the published ones.
  bool is_published_group(int n) const {
    if (n > 2) return false;
    const string* match = given_("group" + std::to_string(n) + "/match");
    return !match || *match == kMatch[n - 1];
  }

  void optimizer() {
    if (tokens_ <= 0 || tokens_per_step_ <= 0) return;
    adam_ = real("scale/lr_multiplier") *
            published_adam_rate(tokens_, double(hidden_), tokens_per_step_);
    const string* kind = given_("optimizer/kind");
    const bool own = (kind && *kind != "adam") ||
                     std::any_of(groups_.begin(), groups_.end(),
                                 [&](int n) { return !is_published_group(n); });
    std::vector<int> groups = groups_;
    if (!own) {
      put("optimizer/kind", "adam", "published");
      put("group1/match", kMatch[0], "published");
      put("group1/kind", "muonh", "published");
      put("group2/match", kMatch[1], "published");
      put("group2/kind", "adamh", "published");
      groups = {1, 2};
    }
    rates("optimizer");
    for (const int n : groups) rates("group" + std::to_string(n));
  }

  const GivenValue& given_;
  const std::vector<int>& groups_;
  std::map<string, string> derived_;
  ScaleResult result_;
  index_t hidden_ = 0;
  double tokens_per_step_ = 0, tokens_ = 0, adam_ = 0;
};

}  // namespace

double published_adam_rate(double tokens, double hidden, double tokens_per_step) {
  return 0.087571 * std::pow(tokens, -0.3461) * std::pow(hidden, -0.3448) *
         std::sqrt(tokens_per_step);
}

double published_muonh_rate(double adam_rate, double cap) {
  return std::min(adam_rate * 13 / 3, cap);
}

double published_beta2(double tokens_per_step) {
  return std::clamp(std::pow(0.999, tokens_per_step / 131072), 0.95, 0.9999);
}

double published_eps(double tokens, double tokens_per_step) {
  return 9.676e-18 * std::sqrt(tokens / tokens_per_step);
}

index_t published_kv_heads(index_t heads, index_t part) {
  for (index_t n = heads / part; n > 1; --n)
    if (heads % n == 0) return n;
  return 1;
}

ScaleResult derive_scale(const GivenValue& given, const std::vector<int>& groups) {
  return Derivation(given, groups).run();
}

std::vector<string> scale_notes(const Deck& deck) {
  std::vector<string> notes;
  const index_t hidden = deck.integer("scale/hidden");
  if (hidden <= 0) return notes;
  if (hidden < 512 || hidden > 2048)
    notes.push_back("scale/hidden = " + canonical(hidden) +
                    ": the learning-rate rule was fitted for widths of 512 to 2048");
  const double ratio = deck.real("scale/tokens_per_active");
  if (ratio < 30 || ratio > 600)
    notes.push_back("scale/tokens_per_active = " + canonical(ratio) +
                    ": the learning-rate rule was fitted for 30 to 600");
  const double per_step =
      double(deck.integer("batch/sequences")) * double(deck.integer("model/seq_len"));
  const double tokens = double(deck.integer("schedule/tokens"));
  if (tokens > 0 && tokens < 1600 * per_step)
    notes.push_back(
        "fewer than 1600 steps: the learning-rate rule is known to be up to "
        "twice too low there (scale/lr_multiplier)");
  const double adam = deck.real("scale/lr_multiplier") *
                      published_adam_rate(tokens, double(hidden), per_step);
  if (tokens > 0 && adam * 13 / 3 > deck.real("scale/lr_cap"))
    notes.push_back("scale/lr_cap = " + canonical(deck.real("scale/lr_cap")) +
                    " binds: the rule says " + rounded(adam * 13 / 3));
  return notes;
}

}  // namespace capstan
