#include "train/columns.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace capstan {

namespace {

const double kNone = std::numeric_limits<double>::quiet_NaN();

class Row {
 public:
  void integer(const std::string& name, const std::string& unit, const std::string& doc,
               std::int64_t value) {
    columns.push_back({name, unit, doc, true, 0, value});
  }
  void real(const std::string& name, const std::string& unit, const std::string& doc,
            double value) {
    columns.push_back({name, unit, doc, false, value, 0});
  }
  std::vector<Figure> columns;
};

double mean(const std::vector<double>& v) {
  return v.empty() ? kNone : std::accumulate(v.begin(), v.end(), 0.0) / double(v.size());
}
double most(const std::vector<double>& v) {
  return v.empty() ? kNone : *std::max_element(v.begin(), v.end());
}
double least(const std::vector<double>& v) {
  return v.empty() ? kNone : *std::min_element(v.begin(), v.end());
}

void loss_columns(const StepReport& r, Row& row) {
  row.integer("step", "1", "number of the step, from 1", r.step);
  row.integer("tokens", "tokens", "tokens seen up to and including this step", r.tokens);
  row.real("loss", "nats", "mean cross-entropy of counted tokens", r.cross_entropy);
  row.real("loss_total", "nats", "what the gradients are of", r.total());
  row.real("z_loss", "nats", "logit z-loss, with its coefficient", r.z_loss);
  row.real("aux_loss", "nats", "router losses in the objective, weighted", r.aux);
}

void rate_columns(const StepReport& r, const RunFigures& figures, Row& row) {
  row.real("lr", "1", "learning rate of the first group", r.lr.at(0));
  for (std::size_t g = 1; g < r.lr.size(); ++g) {
    row.real("lr_" + figures.group_names.at(g), "1", "learning rate of this group",
             r.lr[g]);
  }
}

void norm_columns(const StepReport& r, Row& row) {
  row.real("grad_norm", "1", "norm of the gradient before clipping", r.gradient.total);
  for (std::size_t k = 0; k < r.gradient.by_kind.size(); ++k) {
    row.real("grad_norm_" + param_kinds()[k], "1", "the same of one kind of parameter",
             r.gradient.by_kind[k]);
  }
  row.real("param_norm", "1", "norm of the masters before the update", r.parameter.total);
  for (std::size_t k = 0; k < r.parameter.by_kind.size(); ++k) {
    row.real("param_norm_" + param_kinds()[k], "1", "the same of one kind of parameter",
             r.parameter.by_kind[k]);
  }
}

void update_columns(const StepReport& r, Row& row) {
  row.real("update_ratio", "1", "norm of the step's update / param_norm",
           r.update_norm / r.parameter.total);
  row.integer("skipped_steps", "1",
              "1 = no update: a loss or gradient was not finite (optimizer/non_finite)",
              r.skipped ? 1 : 0);
}

/// counts / assignments of all layers.
double part(const std::vector<std::int64_t>& counts, const RouterReport& r) {
  const auto sum = std::accumulate(counts.begin(), counts.end(), std::int64_t(0));
  return double(sum) / double(std::max<std::int64_t>(1, r.assignments));
}

void drop_columns(const RouterReport& r, Row& row) {
  const DropReport& d = r.drops;
  row.real("drop_fraction", "1", "dropped / assignments",
           part(d.sender, r) + part(d.receiver, r));
  row.real("drop_sender_fraction", "1", "dropped because a sender's capacity was full",
           part(d.sender, r));
  row.real("drop_receiver_fraction", "1",
           "dropped because a receiver's capacity was full", part(d.receiver, r));
  const auto sum = [](const std::vector<std::int64_t>& counts) {
    return std::accumulate(counts.begin(), counts.end(), std::int64_t(0));
  };
  const double arrived = double(r.assignments - sum(d.sender));
  row.real("drop_receiver_of_received", "1", "dropped by receivers / arrived there",
           double(sum(d.receiver)) / std::max(1.0, arrived));
  row.real("spilled_fraction", "1", "kept by a later choice than the top K",
           part(d.spilled, r));
  row.real("pool_rows", "rows", "capacity of a sender's pool or cell; 0 = no limit",
           mean(d.pool_rows));
  row.real("capacity_effective", "1", "pool_rows over the mean load, after rounding",
           mean(d.pool_factor));
  row.real("bank_rows", "rows", "capacity of a receiver's bank or chunk; 0 = no limit",
           mean(d.bank_rows));
  row.real("bank_effective", "1", "bank_rows over the mean load, after rounding",
           mean(d.bank_factor));
}

void router_columns(const StepReport& r, Row& row) {
  row.integer("assignments", "1", "token-expert assignments of valid tokens, all layers",
              r.router.assignments);
  drop_columns(r.router, row);
  row.real("padding_skipped", "1", "part of the step's tokens that was padding",
           double(r.padding_tokens) / double(std::max<std::int64_t>(1, r.step_tokens)));
  row.real("routing_entropy", "nats", "entropy of assignment fractions, mean over layers",
           mean(r.router.entropy));
  row.real("load_balancing_loss", "1", "ideal = top_k; logged only",
           mean(r.router.load_balance));
  row.real("balance_loss", "1",
           "balance term of the objective before its weight; ideal = 1; nan without",
           mean(r.router.balance_loss));
  row.real("router_z_loss", "1", "mean squared logsumexp of router logits, unweighted",
           mean(r.router.z_loss));
  row.real("load_max_over_mean", "1", "fullest expert / mean expert, worst layer",
           most(r.router.max_over_mean));
  row.real("router_margin_min", "1", "least logit less its token's threshold; qb only",
           least(r.router.margin_min));
  row.real("router_margin_max", "1", "greatest of them", most(r.router.margin_max));
  row.real("router_bias_min", "1", "least router bias in use", least(r.router.bias_min));
  row.real("router_bias_max", "1", "greatest router bias in use",
           most(r.router.bias_max));
}

void speed_columns(const StepReport& r, const RunFigures& figures, const Comm& world,
                   Row& row) {
  const auto& names = phase_names();
  std::vector<double> seconds(names.size() + 1, 0.0);
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto found = r.phase_seconds.find(names[i]);
    if (found != r.phase_seconds.end()) seconds[i] = found->second;
  }
  seconds.back() = r.seconds;
  world.all_reduce_host(seconds.data(), index_t(seconds.size()), Reduce::sum);
  for (double& s : seconds) s /= world.size();
  const std::int64_t peak = world.all_reduce_value(r.memory_peak_bytes, Reduce::max);
  const double wall = seconds.back(), rate = double(r.step_tokens) / wall;
  double unaccounted = wall;
  row.real("tokens_per_second", "tokens/s", "tokens of the step / step_seconds", rate);
  row.real("mfu", "1", "flops_published / step_seconds / peak of all ranks",
           figures.peak_flops > 0
               ? rate * figures.flops_per_token / (figures.peak_flops * figures.ranks)
               : kNone);
  row.real("step_seconds", "seconds", "wall time of the step, mean over ranks", wall);
  for (std::size_t i = 0; i < names.size(); ++i) {
    unaccounted -= seconds[i];
    row.real("seconds_" + names[i], "seconds", "exclusive time, mean over ranks",
             seconds[i]);
  }
  row.real("seconds_unaccounted", "seconds", "step_seconds less all the phases",
           unaccounted);
  row.real("memory_peak_mib", "mib", "highest memory of any rank so far, by the ledger",
           double(peak) / (1 << 20));
}

}  // namespace

const std::vector<std::string>& phase_names() {
  // clang-format off
  static const std::vector<std::string> names = {
      "data", "embedding", "norm", "attention_gemm", "attention_heads", "attention_core",
      "router", "latent", "dispatch_plan", "exchange", "exchange_wait", "permute",
      "experts_gemm", "swiglu", "shared_experts", "residual", "head", "reduce_gradients",
      "pipeline_wait", "norms", "optimizer", "newton_schulz", "gather_weights",
      "balance"};
  // clang-format on
  return names;
}

namespace {
std::vector<std::string> names_of(const std::vector<Figure>& row) {
  std::vector<std::string> names;
  for (const Figure& f : row) names.push_back(f.name);
  return names;
}

/// A report in which every list has its length.
StepReport blank_report(const RunFigures& figures) {
  StepReport report;
  report.lr.assign(std::max<std::size_t>(1, figures.group_names.size()), 0.0);
  report.gradient.by_kind.assign(param_kinds().size(), 0.0);
  report.parameter.by_kind = report.gradient.by_kind;
  return report;
}
}  // namespace

std::vector<Figure> early_row(const StepReport& report) {
  Row row;
  loss_columns(report, row);
  norm_columns(report, row);
  return row.columns;
}

std::vector<std::string> early_names() {
  return names_of(early_row(blank_report({})));
}

std::vector<std::string> column_names(const RunFigures& figures) {
  return names_of(history_row(blank_report(figures), figures, Comm::self()));
}

std::vector<Figure> history_row(const StepReport& report, const RunFigures& figures,
                                const Comm& world) {
  Row row;
  loss_columns(report, row);
  rate_columns(report, figures, row);
  norm_columns(report, row);
  update_columns(report, row);
  router_columns(report, row);
  speed_columns(report, figures, world, row);
  return row.columns;
}

}  // namespace capstan
