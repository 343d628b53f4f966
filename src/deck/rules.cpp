#include "deck/rules.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>

namespace capstan {
namespace {

using std::string;

string number(index_t n) {
  return std::to_string(n);
}

/// "path = value" of an integer key.
string show(const Deck& d, const string& path) {
  return path + " = " + number(d.integer(path));
}

/// `whole` must be a multiple of `part`; 0 of `part` means that it takes `whole`'s value.
Rule divides(const string& whole, const string& part) {
  return {{whole, part},
          [=](const Deck& d, const string&) -> string {
            const index_t n = d.integer(part);
            if (n == 0 || d.integer(whole) % n == 0) return "";
            return show(d, whole) + " is not a multiple of " + show(d, part);
          },
          ""};
}

Rule plain(std::vector<string> keys, std::function<string(const Deck&)> problem) {
  return {std::move(keys), [=](const Deck& d, const string&) { return problem(d); }, ""};
}

string rope_problem(const Deck& d) {
  const double dims =
      d.real("model/rope_fraction") * static_cast<double>(d.integer("model/head_dim"));
  const double pairs = dims / 2;
  if (std::abs(pairs - std::round(pairs)) < 1e-9) return "";
  return "model/rope_fraction x " + show(d, "model/head_dim") +
         " is not an even whole number of dims";
}

string global_heads_problem(const Deck& d) {
  index_t stored = d.integer("model/kv_heads");
  if (stored == 0) stored = d.integer("model/heads");
  if (d.integer("model/kv_heads_global") <= stored) return "";
  return show(d, "model/kv_heads_global") + " exceeds the stored " + number(stored) +
         " of model/kv_heads (global layers use the first of them)";
}

string sconv_problem(const Deck& d) {
  auto sites = d.texts("model/sconv");
  std::sort(sites.begin(), sites.end());
  if (std::adjacent_find(sites.begin(), sites.end()) != sites.end())
    return "model/sconv names a site twice";
  const bool none = std::find(sites.begin(), sites.end(), "none") != sites.end();
  return none && sites.size() > 1 ? "model/sconv says none and a site" : "";
}

string top_k_problem(const Deck& d) {
  if (d.integer("moe/top_k") <= d.integer("moe/experts")) return "";
  return show(d, "moe/top_k") + " exceeds " + show(d, "moe/experts");
}

string aux_problem(const Deck& d) {
  const bool aux = d.text("moe/balance") == "aux", weight = d.real("moe/aux_loss") > 0;
  if (aux && !weight) return "moe/balance = aux needs moe/aux_loss > 0";
  if (weight && !aux) return "moe/aux_loss is not 0, but only moe/balance = aux uses it";
  return "";
}

string batch_problem(const Deck& d) {
  const index_t n = d.integer("batch/sequences");
  const index_t part =
      d.integer("grid/data") * d.integer("grid/expert") * d.integer("grid/micro_batches");
  if (n % part == 0) return "";
  const index_t below = n / part * part;
  const string near =
      (below > 0 ? number(below) + " or " : string()) + number(below + part);
  return "batch/sequences = " + number(n) +
         " is not a multiple of data x expert x micro_batches = " + number(part) +
         "; nearest: " + near;
}

string split_problem(const Deck& d) {
  const index_t domain = d.integer("topology/nvlink_ranks");
  if (domain == 0 || d.flag("grid/allow_split") || domain % d.integer("grid/expert") == 0)
    return "";
  return show(d, "grid/expert") + " crosses domains of " +
         show(d, "topology/nvlink_ranks") + "; grid/allow_split = true permits it";
}

string stages_problem(const Deck& d) {
  const index_t stages = d.integer("grid/pipe") * d.integer("grid/stages_per_rank");
  if (stages <= d.integer("model/layers")) return "";
  return "grid/pipe x grid/stages_per_rank = " + number(stages) + " exceeds " +
         show(d, "model/layers");
}

string split_layers_problem(const Deck& d) {
  const auto given = d.integers("grid/layers_per_stage");
  if (given.empty()) return "";
  const index_t sum = std::accumulate(given.begin(), given.end(), index_t(0));
  const index_t stages = static_cast<index_t>(given.size());
  if (stages == d.integer("grid/pipe") && sum == d.integer("model/layers")) return "";
  return "grid/layers_per_stage gives " + number(stages) + " stages " + number(sum) +
         " layers, but " + show(d, "grid/pipe") + " and " + show(d, "model/layers");
}

string waves_problem(const Deck& d) {
  const index_t waves = d.integer("moe/waves"), ranks = d.integer("grid/expert");
  const index_t local = d.integer("moe/experts") / ranks;
  if (d.integer("moe/experts") % ranks != 0 || local % waves == 0) return "";
  return show(d, "moe/waves") + " does not divide the " + number(local) +
         " experts of a rank";
}

string reference_problem(const Deck& d) {
  if (d.text("moe/transport") != "reference" || d.integer("grid/expert") == 1) return "";
  return "moe/transport = reference has every expert on every rank: it needs grid/expert "
         "= "
         "1, not " +
         number(d.integer("grid/expert"));
}

/// Mean rows of one of `parts` equal shares of a rank's assignments, times the factor.
string share_problem(const Deck& d, const string& factor, index_t share_of_rank,
                     const char* of_what) {
  const index_t ranks =
      d.integer("grid/data") * d.integer("grid/expert") * d.integer("grid/micro_batches");
  const double tokens = static_cast<double>(d.integer("batch/sequences")) *
                        static_cast<double>(d.integer("model/seq_len")) /
                        static_cast<double>(ranks);
  const double rows = d.real(factor) * tokens *
                      static_cast<double>(d.integer("moe/top_k")) /
                      static_cast<double>(share_of_rank);
  if (rows >= 1) return "";
  char text[160];
  std::snprintf(text, sizeof text,
                "%s = %g of %.0f tokens x top_k gives %s of %.3g rows, less than one",
                factor.c_str(), d.real(factor), tokens, of_what, rows);
  return text;
}

string capacity_problem(const Deck& d) {
  const string& transport = d.text("moe/transport");
  const index_t ranks = d.integer("grid/expert"), experts = d.integer("moe/experts");
  const index_t local = std::max<index_t>(1, experts / ranks),
                waves = d.integer("moe/waves");
  if (transport == "cells" || transport == "spill")
    return share_problem(d, "moe/capacity_send", experts, "cells");
  if (transport == "ragged")
    return share_problem(d, "moe/capacity_receive", waves, "chunks");
  if (transport == "waterfill")
    return share_problem(d, "moe/capacity_receive", local, "experts");
  if (transport != "pooled_wave") return "";
  if (local > 256) {
    return "moe/transport = pooled_wave has room for 256 experts of a rank in its bf16 "
           "headers; moe/experts / grid/expert = " +
           number(local);
  }
  const string sender =
      share_problem(d, "moe/capacity_send", ranks * waves, "pools of a wave");
  return sender.empty()
             ? share_problem(d, "moe/capacity_receive", local * waves, "banks of a wave")
             : sender;
}

string window_problem(const Deck& d) {
  if (d.integer("data/window_tokens") >= d.integer("model/seq_len")) return "";
  return show(d, "data/window_tokens") + " is less than " + show(d, "model/seq_len");
}

string weights_problem(const Deck& d, const string& block) {
  const auto files = d.texts(block + "/files").size();
  const auto weights = d.reals(block + "/weights").size();
  if (weights == 0 || weights == files) return "";
  return block + "/weights has " + std::to_string(weights) + " numbers for " +
         std::to_string(files) + " files";
}

string range_problem(const Deck& d, const string& block) {
  const index_t last = d.integer(block + "/last_tokens");
  if (last == 0 || last > d.integer(block + "/first_tokens")) return "";
  return show(d, block + "/last_tokens") + " is not after " +
         show(d, block + "/first_tokens");
}

string reaim_problem(const Deck& d) {
  const index_t from = d.integer("schedule/reaim_from_tokens");
  const index_t planned = d.integer("schedule/planned_tokens");
  if (from == 0)
    return planned == 0 ? "" : "schedule/planned_tokens needs schedule/reaim_from_tokens";
  if (planned <= from)
    return "schedule/reaim_from_tokens = " + number(from) +
           " needs schedule/planned_tokens, the length before, beyond it";
  if (d.integer("schedule/tokens") <= from)
    return show(d, "schedule/tokens") + " is not after " +
           show(d, "schedule/reaim_from_tokens");
  return "";
}

bool decays(const string& kind) {
  return kind == "adamw" || kind == "muon";
}

/// A weight decay that would do nothing. (A group's that equals the one of <optimizer>
/// may be inherited: a dump gives every key.)
string decay_problem(const Deck& d, const string& block) {
  const string path = block + "/weight_decay";
  if (!d.given(path) || d.real(path) == 0 || decays(d.text(block + "/kind"))) return "";
  return path + " has no effect on kind = " + d.text(block + "/kind") +
         "; adamw and muon have weight decay";
}

string group_decay_problem(const Deck& d, const string& block) {
  const bool inherited =
      d.real(block + "/weight_decay") == d.real("optimizer/weight_decay");
  return inherited ? "" : decay_problem(d, block);
}

string default_decay_problem(const Deck& d) {
  for (const int n : d.numbered("group"))
    if (decays(d.text("group" + std::to_string(n) + "/kind"))) return "";  // inherited
  return decay_problem(d, "optimizer");
}

}  // namespace

const std::vector<Rule>& deck_rules() {
  static const std::vector<Rule> rules = {
      divides("model/heads", "model/kv_heads"),
      divides("model/heads", "model/kv_heads_global"),
      plain({"model/kv_heads_global", "model/kv_heads", "model/heads"},
            global_heads_problem),
      plain({"model/rope_fraction", "model/head_dim"}, rope_problem),
      plain({"model/sconv"}, sconv_problem),
      plain({"moe/top_k", "moe/experts"}, top_k_problem),
      plain({"moe/aux_loss", "moe/balance"}, aux_problem),
      divides("moe/experts", "grid/expert"),
      plain({"batch/sequences", "grid/data", "grid/expert", "grid/micro_batches"},
            batch_problem),
      plain({"grid/expert", "topology/nvlink_ranks", "grid/allow_split"}, split_problem),
      plain({"grid/pipe", "grid/stages_per_rank", "model/layers"}, stages_problem),
      plain({"grid/layers_per_stage", "grid/pipe", "model/layers"}, split_layers_problem),
      plain({"moe/waves", "moe/experts", "grid/expert"}, waves_problem),
      plain({"moe/transport", "grid/expert"}, reference_problem),
      plain({"moe/transport", "moe/capacity_send", "moe/capacity_receive", "moe/experts",
             "moe/top_k", "moe/waves", "batch/sequences", "model/seq_len", "grid/data",
             "grid/expert", "grid/micro_batches"},
            capacity_problem),
      plain({"data/window_tokens", "model/seq_len"}, window_problem),
      plain({"data/files", "data/weights"},
            [](const Deck& d) { return weights_problem(d, "data"); }),
      plain({"schedule/reaim_from_tokens", "schedule/planned_tokens", "schedule/tokens"},
            reaim_problem),
      plain({"optimizer/weight_decay", "optimizer/kind"}, default_decay_problem),
      {{"*/weight_decay", "*/kind", "optimizer/weight_decay"},
       group_decay_problem,
       "group"},
      {{"*/files", "*/weights"}, weights_problem, "mixture"},
      {{"*/last_tokens", "*/first_tokens"}, range_problem, "mixture"},
  };
  return rules;
}

string rule_path(const string& key, const string& block) {
  return key.rfind("*/", 0) == 0 ? block + key.substr(1) : key;
}

}  // namespace capstan
