#include "train/stepper.hpp"

#include <cmath>
#include <limits>

namespace capstan {

namespace {

/// The router figures of a step that was skipped: none, in the shape of a report.
RouterReport no_figures(const ModelShape& shape) {
  const auto layers = static_cast<std::size_t>(shape.layers);
  const std::vector<double> none(layers, std::numeric_limits<double>::quiet_NaN());
  RouterReport r;
  r.load.assign(layers * static_cast<std::size_t>(shape.experts), 0);
  r.entropy = r.load_balance = r.z_loss = r.max_over_mean = none;
  r.bias_min = r.bias_max = none;
  r.drops.sender.assign(layers, 0);
  r.drops.receiver = r.drops.spilled = r.drops.sender;
  r.drops.pool_rows = r.drops.pool_factor = none;
  r.drops.bank_rows = r.drops.bank_factor = none;
  return r;
}

}  // namespace

template <class S>
Stepper<S>::Stepper(const Deck& deck, const Grid& grid, Loader& loader,
                    TrainState<S>& state, Context& ctx)
    : grid_(grid),
      loader_(loader),
      state_(state),
      ctx_(ctx),
      pipeline_(state.model, grid, ctx) {
  schedule_ = Schedule::from_deck(deck);
  z_coefficient_ = deck.real("model/z_loss");
  clip_norm_ = deck.real("optimizer/clip_norm");
  skips_allowed_ = deck.text("optimizer/non_finite") == "skip"
                       ? deck.integer("optimizer/max_skips")
                       : 0;
}

/// Counted and padding tokens of the whole step: the loss is a mean over all counted
/// tokens of all ranks, whatever the number of micro-batches.
template <class S>
void Stepper<S>::count_tokens(const std::vector<Batch>& batches,
                              StepReport& report) const {
  std::int64_t counts[2] = {0, 0};
  for (const Batch& batch : batches) {
    for (const std::int32_t target : batch.targets) counts[0] += target >= 0 ? 1 : 0;
    for (const std::int32_t segment : batch.segments) counts[1] += segment < 0 ? 1 : 0;
  }
  grid_.dense.all_reduce_host(counts, 2, Reduce::sum);
  report.counted_tokens = counts[0];
  report.padding_tokens = counts[1];
}

/// The forward passes that find the assignments of the whole step, where the balance term
/// needs them before the first backward pass.
template <class S>
void Stepper<S>::count_assignments(const std::vector<Batch>& batches) {
  RouterState<Acc<S>>& routers = state_.model.routers();
  if (!routers.counts_first(static_cast<index_t>(batches.size()))) return;
  pipeline_.count(batches);
  routers.share_counts(grid_);
}

/// Marks a step that must not be taken, or ends the run. All ranks decide alike.
template <class S>
void Stepper<S>::check_finite(StepReport& report) {
  const double norm = report.gradient.total;
  const bool fits = norm * clip_scale(report) <= largest_gradient_norm<Acc<S>>();
  if (std::isfinite(report.total()) && fits) {
    skips_in_a_row_ = 0;
    return;
  }
  const ParamStore<S>& params = state_.model.params();
  const auto found = non_finite_tensors<S>(params, params.gradients(), grid_);
  std::string names;
  constexpr std::size_t kMost = 12;
  for (std::size_t i = 0; i < found.size() && i < kMost; ++i) names += " " + found[i];
  if (found.size() > kMost) names += format(" and %zu more", found.size() - kMost);
  report.not_finite =
      format("loss %g, gradient norm %g; gradients that are not finite:%s",
             report.total(), norm, names.empty() ? " none" : names.c_str());
  report.skipped = skips_in_a_row_ < skips_allowed_;
  ++skips_in_a_row_;
  if (report.skipped) return;
  const std::string after =
      skips_allowed_ > 0
          ? format(" (after %lld skipped steps)", static_cast<long long>(skips_allowed_))
          : "";
  throw Error(Exit::diverged,
              format("step %lld: %s%s", static_cast<long long>(report.step),
                     report.not_finite.c_str(), after.c_str()));
}

template <class S>
double Stepper<S>::clip_scale(const StepReport& report) const {
  const double norm = report.gradient.total;
  return clip_norm_ > 0 && norm > clip_norm_ ? clip_norm_ / norm : 1.0;
}

template <class S>
StepReport Stepper<S>::gradients() {
  before_ = ctx_.timers.table();
  started_ = ctx_.timers.wall();
  StepReport report;
  Model<S>& model = state_.model;
  std::vector<Batch> batches;
  {
    const Region region(ctx_.timers, "data");
    batches = loader_.step(state_.data_position());
    report.step_tokens = loader_.step_tokens(state_.data_position());
    report.step = state_.step + 1;
    report.tokens = state_.tokens + report.step_tokens;
    count_tokens(batches, report);
    model.begin_step(report.step_tokens - report.padding_tokens);
  }
  count_assignments(batches);
  const double counted =
      static_cast<double>(std::max<std::int64_t>(report.counted_tokens, 1));
  LossSums sums;
  pipeline_.train(batches, 1.0 / counted, sums);
  if (model.params().sharded())
    state_.optimizer.reduce_gradients(ctx_);
  else
    model.reduce_gradients(ctx_);
  {
    const Region region(ctx_.timers, "norms");
    double losses[2] = {sums.cross_entropy, sums.z_loss};
    grid_.dense.all_reduce_host(losses, 2, Reduce::sum);
    grid_.pipeline.all_reduce_host(losses, 2, Reduce::sum);
    report.cross_entropy = losses[0] / counted;
    report.z_loss = z_coefficient_ * losses[1] / counted;
    report.router_terms = model.routers().terms(grid_);
    report.aux = report.router_terms.total();
    report.gradient = gradient_norms<S>(model.params(), grid_);
    report.parameter = master_norms<S>(model.params(), grid_);
  }
  check_finite(report);
  return report;
}

template <class S>
void Stepper<S>::update(StepReport& report) {
  const double factor = schedule_.factor(report.tokens) * state_.rate_scale;
  for (const ParamGroup& group : state_.optimizer.groups()) {
    report.lr.push_back(group.lr * factor);
  }
  if (report.skipped) {
    report.router = no_figures(state_.model.shape());
  } else {
    state_.optimizer.step(factor, clip_scale(report), ctx_);
    {
      const Region region(ctx_.timers, "norms");
      report.update_norm = state_.optimizer.update_norm(grid_);
    }
    report.router = state_.model.routers().end_step(grid_, ctx_);
  }
  state_.step = report.step;
  state_.tokens = report.tokens;
  fence();
  report.seconds = ctx_.timers.wall() - started_;
  for (const auto& [name, entry] : ctx_.timers.table()) {
    const auto old = before_.find(name);
    const double earlier = old == before_.end() ? 0.0 : old->second.seconds;
    if (entry.seconds > earlier) report.phase_seconds[name] = entry.seconds - earlier;
  }
  report.memory_peak_bytes = ctx_.ledger.peak();
}

template <class S>
StepReport Stepper<S>::run() {
  StepReport report = gradients();
  update(report);
  return report;
}

#define CAPSTAN_STEPPER(S) template class Stepper<S>;
CAPSTAN_INSTANTIATE(CAPSTAN_STEPPER)

}  // namespace capstan
