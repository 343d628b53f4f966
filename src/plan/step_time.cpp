#include "plan/step_time.hpp"

#include <algorithm>

#include "base/log.hpp"
#include "model/param_list.hpp"
#include "optim/groups.hpp"

namespace capstan {

namespace {

/// The machine in SI units, of one rank.
struct Rates {
  double gemm, attention;          ///< operations/s that are reached
  double memory, nvlink, network;  ///< bytes/s, the links each way
  double host;                     ///< bytes/s between device and host memory
  double storage;                  ///< bytes/s of all ranks together
};

Rates rates_of(const Deck& deck) {
  const auto giga = [&](const char* key) {
    return deck.real(std::string("topology/") + key) * 1e9;
  };
  Rates r;
  r.gemm = giga("peak_gflops") * deck.real("topology/gemm_efficiency");
  r.attention = giga("peak_gflops") * deck.real("topology/attention_efficiency");
  r.memory = giga("memory_gbs");
  r.nvlink = giga("nvlink_gbs");
  r.network = giga("network_gbs");
  r.host = giga("host_gbs");
  r.storage = giga("storage_gbs");
  return r;
}

double weight_bytes(const Deck& deck) {
  const std::string& scalar = deck.text("model/scalar");
  return scalar == "double" ? 8 : scalar == "bf16" ? 2 : 4;
}

/// Times that rows travel there and back in a step: forward, its repetition, backward.
double journeys(Recompute recompute) {
  return recompute == Recompute::none ? 4 : 6;
}

/// Bytes that a rank sends to the other ranks of its expert group in a step. Static
/// shapes send their capacity, the other transports what there is.
double exchange_bytes(const Deck& deck, const Plan& p) {
  const ModelShape& s = p.shape;
  const double tokens =
      double(p.rank_micro_tokens) * double(deck.integer("grid/micro_batches"));
  const bool capacity =
      s.transport.kind == Transport::pooled_wave || s.transport.kind == Transport::cells;
  const double rows =
      tokens * double(s.top_k) * (capacity ? s.transport.capacity_send : 1.0);
  const double away = double(p.n_expert - 1) / double(p.n_expert);
  return rows * away * double(s.latent()) * weight_bytes(deck) * double(s.layers) /
         double(p.n_pipe) * journeys(s.recompute);
}

/// Elements of the gradients: dense ones of a rank, and of its experts.
StageParams largest_stage(const Deck& deck, const Plan& p) {
  StageParams most;
  const auto list = param_list(p.shape);
  for (index_t stage = 0; stage < p.n_pipe; ++stage) {
    const StageParams found =
        stage_params(deck, list, stage_of(p.shape, p.n_pipe, stage));
    if (found.dense + found.expert > most.dense + most.expert) most = found;
  }
  return most;
}

/// Bytes that a rank sends for the sums over a ring of n: 2 (n - 1) / n of its part.
double ring(double bytes, index_t n) {
  return 2.0 * double(n - 1) / double(n) * bytes;
}

/// Reads and writes of activations by everything that is no matrix product, in passes
/// over [tokens, hidden] and over [tokens top_k, latent] of a layer. An estimate.
double elementwise_bytes(const Deck& deck, const Plan& p) {
  const ModelShape& s = p.shape;
  const double tokens =
      double(p.rank_micro_tokens) * double(deck.integer("grid/micro_batches"));
  const double passes = s.recompute == Recompute::full ? 4 : 3;
  const double layer = 24.0 * double(s.hidden) + 10.0 * double(s.top_k * s.latent());
  return tokens * layer * passes * weight_bytes(deck) * double(s.layers) /
         double(p.n_pipe);
}

/// Operations of Newton-Schulz on a rank: of all matrices that it has, or of its share of
/// them where the state is dealt out over the replicas.
double newton_schulz_work(const Deck& deck, const Plan& p) {
  if (deck.text("memory/optimizer") == "replicated") return p.newton_schulz;
  const auto list = param_list(p.shape);
  // Dense ones have n_data x n_expert replicas; of an expert n_data, on one of n_expert
  // ranks: either way the whole is dealt out over all ranks.
  return orthogonalisation_flops(deck, list, 1) / double(p.n_data * p.n_expert);
}

double checkpoint_bytes(const Deck& deck, const Plan& p) {
  const auto groups = groups_from_deck(deck);
  const double element = deck.text("model/scalar") == "double" ? 8 : 4;
  double bytes = 0;
  for (const ParamSpec& spec : param_list(p.shape)) {
    const index_t moments = moments_of(groups[group_of(groups, spec.name)].kind);
    bytes += double(spec.size()) * double(1 + moments) * element;
  }
  return bytes;
}

}  // namespace

double StepTime::seconds() const {
  double sum = 0;
  for (const PhaseTime& phase : phases) sum += phase.seconds;
  return sum;
}

StepTime predict_step(const Deck& deck, const Plan& p) {
  StepTime out;
  const Rates r = rates_of(deck);
  out.checkpoint_bytes = checkpoint_bytes(deck, p);
  if (r.storage > 0) out.checkpoint_seconds = out.checkpoint_bytes / r.storage;
  if (r.gemm <= 0 || r.memory <= 0) return out;
  const auto add = [&](const char* name, double work, double rate) {
    if (work > 0 && rate > 0) out.phases.push_back({name, work / rate});
  };
  const double stages = double(p.n_pipe);
  const bool shared = deck.text("memory/optimizer") != "replicated";
  add("gemm", p.issued.gemm() / stages, r.gemm);
  add("attention", p.issued.tiles() / stages, r.attention);
  add("elementwise", elementwise_bytes(deck, p), r.memory);
  const double computing = out.seconds();
  add("newton_schulz", newton_schulz_work(deck, p) / stages, r.gemm);
  out.exchange_bytes = exchange_bytes(deck, p);
  // With W waves all but one part of W travels while another is computed.
  const double hidden = double(std::max<index_t>(1, p.shape.transport.waves));
  const index_t domain = deck.integer("topology/nvlink_ranks");
  const bool split = domain > 0 && p.n_expert > domain;
  add("exchange", out.exchange_bytes / hidden, split ? r.network : r.nvlink);
  const StageParams grads = largest_stage(deck, p);
  const double sum = deck.text("model/scalar") == "double" ? 8 : 4;
  const double dense = double(grads.dense) * sum, expert = double(grads.expert) * sum;
  add("reduce_inside", ring(dense, p.n_expert), r.nvlink);
  // Between domains each rank sums its share of the dense gradients and its experts'.
  out.reduce_bytes = ring(dense / double(p.n_expert) + expert, p.n_data);
  add("reduce_across", out.reduce_bytes, r.network > 0 ? r.network : r.nvlink);
  const MemoryLine used = p.used();
  add("optimizer_host", 2.0 * double(used.host), r.host);
  if (used.host == 0)
    add("optimizer", 3.0 * (dense + expert) / double(shared ? p.n_data : 1), r.memory);
  add("bubble", computing * double(p.n_pipe - 1),
      double(deck.integer("grid/micro_batches")));
  return out;
}

std::string step_time_text(const Plan& p, const StepTime& t) {
  std::string out = format("PLAN: checkpoint_gb=%.2f", t.checkpoint_bytes / 1e9);
  if (t.checkpoint_seconds > 0)
    out += format(" checkpoint_seconds=%.1f", t.checkpoint_seconds);
  out += "\n";
  const double seconds = t.seconds();
  if (seconds <= 0) return out;
  const double rate = double(p.tokens_per_step) / seconds;
  const double days = seconds * double(p.steps) / 86400;
  out += format(
      "PLAN: step_seconds=%.4g tokens_per_second=%.4g mfu=%.4f days=%.4g "
      "rank_hours=%.4g\n",
      seconds, rate, rate * p.flops.training() / (p.peak_flops * double(p.ranks())), days,
      days * 24 * double(p.ranks()));
  out += format("PLAN: bytes_sent per rank and step: exchange=%.4g reduce_across=%.4g\n",
                t.exchange_bytes, t.reduce_bytes);
  out +=
      "\nTime of a step, predicted (MFU: published FLOPs, head included, forward and\n"
      "backward without recomputation, over the peak of all ranks):\n";
  for (const PhaseTime& phase : t.phases)
    out += format("  %-16s %10.4g s %7.1f %%\n", phase.name.c_str(), phase.seconds,
                  100 * phase.seconds / seconds);
  return out;
}

}  // namespace capstan
