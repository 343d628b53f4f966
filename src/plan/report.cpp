#include <algorithm>
#include <cstdarg>
#include <cstdio>

#include "deck/scale.hpp"
#include "deck/support.hpp"
#include "plan/plan.hpp"
#include "plan/step_time.hpp"

namespace capstan {
namespace {

__attribute__((format(printf, 2, 3))) void put(std::string& out, const char* pattern,
                                               ...) {
  char line[512];
  std::va_list args;
  va_start(args, pattern);
  std::vsnprintf(line, sizeof line, pattern, args);
  va_end(args);
  out += line;
}

long long ll(index_t n) {
  return static_cast<long long>(n);
}
double mib(index_t bytes) {
  return static_cast<double>(bytes) / (1 << 20);
}

void put_summary(std::string& out, const Plan& p) {
  put(out, "PLAN: parameters_total=%lld parameters_active=%lld\n", ll(p.parameters.total),
      ll(p.parameters.active));
  put(out,
      "PLAN: flops_published per token: forward=%.6g forward_without_head=%.6g "
      "training=%.6g\n",
      p.flops.forward(), p.flops.forward_without_head, p.flops.training());
  put(out,
      "PLAN: flops_issued per rank and step: gemm=%.6g attention=%.6g newton_schulz=%.6g "
      "per_token=%.6g\n",
      p.issued.gemm() / double(p.n_pipe), p.issued.tiles() / double(p.n_pipe),
      p.newton_schulz / double(p.n_pipe),
      p.issued.total() * double(p.n_data * p.n_expert) / double(p.tokens_per_step));
  const index_t tokens = p.steps * p.tokens_per_step;
  put(out,
      "PLAN: tokens_per_step=%lld steps=%lld tokens=%lld flops_published_total=%.6g\n",
      ll(p.tokens_per_step), ll(p.steps), ll(tokens),
      static_cast<double>(tokens) * p.flops.training());
  put(out,
      "PLAN: ranks=%lld pipe=%lld data=%lld expert=%lld experts_per_rank=%lld "
      "tokens_per_rank_and_micro_batch=%lld\n",
      ll(p.ranks()), ll(p.n_pipe), ll(p.n_data), ll(p.n_expert),
      ll(p.shape.experts / p.n_expert), ll(p.rank_micro_tokens));
}

/// Does it fit, and what takes most: one line for scripts, in GB = 1e9 bytes.
void put_fit(std::string& out, const Plan& p) {
  if (p.device_memory <= 0 && p.host_memory <= 0) return;
  const MemoryLine sum = p.used();
  auto lines = p.memory;
  std::stable_sort(lines.begin(), lines.end(), [](const auto& a, const auto& b) {
    return a.device + a.host > b.device + b.host;
  });
  std::string largest;
  for (std::size_t i = 0; i < std::min<std::size_t>(3, lines.size()); ++i)
    largest += (i ? "," : "") + lines[i].name;
  put(out,
      "PLAN: fits=%s device_gb=%.2f device_memory_gb=%.2f host_gb=%.2f "
      "host_memory_gb=%.2f largest=%s\n",
      p.fits() ? "yes" : "no", double(sum.device) / 1e9, p.device_memory / 1e9,
      double(sum.host) / 1e9, p.host_memory / 1e9, largest.c_str());
}

void put_memory(std::string& out, const Plan& p) {
  put(out, "\nMemory of the fullest rank in MiB, experts evenly loaded:\n");
  put(out, "  %-16s %14s %14s\n", "name", "device_mib", "host_mib");
  for (const auto& line : p.memory) {
    put(out, "  %-16s %14.1f %14.1f\n", line.name.c_str(), mib(line.device),
        mib(line.host));
  }
  const MemoryLine sum = p.used();
  put(out, "  %-16s %14.1f %14.1f\n", "sum", mib(sum.device), mib(sum.host));
  put_fit(out, p);
}

void put_grid(std::string& out, const Plan& p) {
  constexpr index_t kRows = 16;
  put(out, "\nGrid: rank = (pipe * %lld + data) * %lld + expert\n", ll(p.n_data),
      ll(p.n_expert));
  const index_t rows = p.n_pipe * p.n_data;
  const auto split = split_layers(p.shape, p.n_pipe);
  for (index_t row = 0; row < rows; ++row) {
    if (rows > kRows && row >= kRows - 1 && row < rows - 1) {
      if (row == kRows - 1) put(out, "  ...\n");
      continue;
    }
    const index_t pipe = row / p.n_data;
    const LayerRange layers = split[static_cast<std::size_t>(pipe)];
    put(out, "  pipe %lld data %lld: ranks %lld to %lld, layers %lld to %lld\n", ll(pipe),
        ll(row % p.n_data), ll(row * p.n_expert), ll((row + 1) * p.n_expert - 1),
        ll(layers.first), ll(layers.last - 1));
  }
  put(out, "  dense tensors: %lld replicas; experts: %lld on a rank, %lld replicas\n",
      ll(p.n_data * p.n_expert), ll(p.shape.experts / p.n_expert), ll(p.n_data));
}

/// What each stage has to do and to hold.
void put_stages(std::string& out, const Deck& deck, const Plan& p) {
  if (p.n_pipe == 1) return;
  const auto list = param_list(p.shape);
  const StageCosts costs = stage_costs(p.shape);
  double whole = costs.embedding + costs.head;
  for (const double c : costs.layer) whole += c;
  const double idle = double(p.n_pipe - 1) / double(p.micro_batches + p.n_pipe - 1);
  put(out, "\nPLAN: stages=%lld micro_batches=%lld bubble_formula=%.4f\n", ll(p.n_pipe),
      ll(p.micro_batches), idle);
  put(out, "  %5s %7s %6s %11s %10s %20s\n", "stage", "first", "layers", "cost_share",
      "in_flight", "parameters_per_rank");
  for (index_t s = 0; s < p.n_pipe; ++s) {
    const Stage stage = stage_of(p.shape, p.n_pipe, s);
    double cost = (stage.first ? costs.embedding : 0) + (stage.last ? costs.head : 0);
    for (index_t l = stage.layers.first; l < stage.layers.last; ++l)
      cost += costs.layer[static_cast<std::size_t>(l)];
    const StageParams params = stage_params(deck, list, stage);
    put(out, "  %5lld %7lld %6lld %11.4f %10lld %20lld\n", ll(s), ll(stage.layers.first),
        ll(stage.layers.count()), cost / whole,
        ll(std::min(p.micro_batches, p.n_pipe - s)), ll(params.dense + params.expert));
  }
}

}  // namespace

std::string plan_text(const Deck& deck, const Plan& plan) {
  std::string out;
  put_summary(out, plan);
  put_memory(out, plan);
  out += step_time_text(plan, predict_step(deck, plan));
  put_grid(out, plan);
  put_stages(out, deck, plan);
  for (const auto& note : scale_notes(deck)) out += "\nNote: " + note + "\n";
  const auto notes = unsupported(deck);
  put(out, "PLAN: runnable=%s\n", notes.empty() ? "yes" : "no");
  if (!notes.empty()) out += "\nThis version can plan this deck, but not run it:\n";
  for (const auto& note : notes) out += "  " + note + "\n";
  return out;
}

}  // namespace capstan
