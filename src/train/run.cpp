#include "train/run.hpp"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/build_info.hpp"
#include "base/hash.hpp"
#include "base/signals.hpp"
#include "blas/gemm.hpp"
#include "data/from_deck.hpp"
#include "io/publish.hpp"
#include "model/flops.hpp"
#include "train/dump.hpp"
#include "train/generate.hpp"
#include "train/length.hpp"

namespace capstan {

namespace {

LoaderSpec loader_spec(const Deck& deck, const Grid& grid) {
  LoaderSpec spec;
  spec.sequences = deck.integer("batch/sequences");
  spec.micro_batches = deck.integer("grid/micro_batches");
  spec.n_dense = grid.n_dense();
  spec.dense_rank = grid.dense_rank();
  return spec;
}

std::string clock_text(double seconds) {
  const long s = std::lround(std::max(0.0, seconds));
  return format("%02ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
}

double value_of(const std::vector<Figure>& row, const std::string& name) {
  for (const Figure& f : row) {
    if (f.name == name) return f.integer ? double(f.count) : f.value;
  }
  throw Error(Exit::internal, "no column is called " + name);
}

long long ll(std::int64_t x) {
  return static_cast<long long>(x);
}

}  // namespace

template <class S>
Run<S>::Run(const Deck& deck, const CommandLine& line, const Grid& grid, int threads,
            Context& ctx)
    : deck_(deck),
      line_(line),
      grid_(grid),
      threads_(threads),
      ctx_(ctx),
      sampler_(sampler_spec(deck)),
      loader_(sampler_, loader_spec(deck, grid)),
      model_(ModelShape::from_deck(deck), grid, tokens_per_step(deck) / grid.n_dense(),
             ctx),
      optimizer_(deck, model_.params(), grid, ctx),
      state_{model_, optimizer_, 0, 0},
      stepper_(deck, grid, loader_, state_, ctx),
      evaluator_(deck, grid, sampler_, ctx),
      total_steps_(total_steps(deck)) {
  ctx.timers.flops_counter = &blas::flops_issued;
  ctx.timers.fence_at_edges = !kOnHost;
  model_.params().initialise(static_cast<std::uint64_t>(deck.integer("job/seed")));
  optimizer_.start(ctx);
  figures_.ranks = grid.world.size();
  figures_.flops_per_token = published_flops(model_.shape()).training();
  figures_.peak_flops = deck.real("topology/peak_gflops") * 1e9;
  for (const ParamGroup& group : optimizer_.groups())
    figures_.group_names.push_back(group.name);
}

template <class S>
Attributes Run<S>::attributes(int segment) const {
  return {{"step", state_.step},
          {"tokens", state_.tokens},
          {"segment", std::int64_t(segment)},
          {"run", deck_.text("job/name")},
          {"deck", deck_.dump()},
          {"deck_hash", hex(deck_.hash())},
          {"version", std::string(build_info().version)},
          {"commit", std::string(build_info().commit)},
          {"grid", std::vector<std::int64_t>{grid_.n_pipe, grid_.n_data, grid_.n_expert}},
          {"ranks", std::int64_t(grid_.world.size())},
          {"threads", std::int64_t(threads_)},
          {"ranks_per_file", std::int64_t(1)},
          {"scalar", deck_.text("model/scalar")},
          {"optimizer_steps", optimizer_.updates()},
          {"data_offset", state_.data_offset},
          {"rollbacks", state_.rollbacks},
          {"rate_scale", state_.rate_scale},
          {"data_fingerprint", sampler_.fingerprint()}};
}

template <class S>
RunFacts Run<S>::facts() const {
  RunFacts facts;
  char host[256] = "unknown";
  gethostname(host, sizeof host - 1);
  facts.name = deck_.text("job/name");
  facts.deck = deck_.dump();
  facts.deck_hash = hex(deck_.hash());
  facts.version = std::string(build_info().version) + " " + build_info().commit;
  facts.host = host;
  facts.start_step = state_.step;
  facts.ranks = grid_.world.size();
  facts.threads = threads_;
  facts.grid = {grid_.n_pipe, grid_.n_data, grid_.n_expert};
  facts.layers = model_.shape().layers;
  facts.experts = model_.shape().experts;
  facts.top_k = model_.shape().top_k;
  return facts;
}

template <class S>
void Run<S>::set_status(const RunDir& dir, const std::string& what) const {
  dir.set_status(format(
      "state=%s step=%lld steps=%lld tokens=%lld loss=%.4f eval_loss=%.4f", what.c_str(),
      ll(state_.step), ll(total_steps_), ll(state_.tokens), last_loss_, last_eval_));
}

/// True when the step took the token count over a multiple of `every`.
template <class S>
bool Run<S>::crossed(index_t every, const StepReport& report) const {
  return every > 0 &&
         report.tokens / every > (report.tokens - report.step_tokens) / every;
}

template <class S>
void Run<S>::evaluate_now(const RunDir&) {
  const EvalReport report = evaluator_.run(stepper_.pipeline());
  last_eval_ = report.loss;
  evaluated_step_ = state_.step;
  ctx_.log.info("eval step=%lld tokens=%lld loss=%.5f", ll(state_.step),
                ll(state_.tokens), report.loss);
  diagnostics_->eval(state_.step, state_.tokens, report.loss);
}

template <class S>
void Run<S>::log_step(const StepReport& report, const std::vector<Figure>& row) const {
  const index_t every = deck_.integer("job/log_every");
  if (report.step % every != 0 && report.step != total_steps_) return;
  const double left = step_seconds_ * double(total_steps_ - report.step);
  const double mfu = value_of(row, "mfu");  // not known without the machine's peak
  const std::string share = std::isfinite(mfu) ? format("mfu=%.4f ", mfu) : "";
  ctx_.log.info(
      "step=%lld tokens=%lld loss=%.5f grad_norm=%.4f lr=%.4g drop=%.4f "
      "tokens_per_second=%.0f %sleft=%s",
      ll(report.step), ll(report.tokens), report.cross_entropy, report.gradient.total,
      report.lr.at(0), value_of(row, "drop_fraction"), value_of(row, "tokens_per_second"),
      share.c_str(), clock_text(left).c_str());
}

/// A step, with a dump of it where the deck asks for one, and its row in the history.
template <class S>
StepReport Run<S>::one_step(const RunDir& dir, std::vector<Figure>& row) {
  StepReport report;
  if (state_.step + 1 == deck_.integer("job/dump_step")) {
    Dump<S> dump(model_, grid_, tokens_per_step(deck_));
    report = stepper_.gradients();
    optimizer_.gather_gradients(ctx_);
    const std::string path = dir.diag("dump", ll(report.step));
    dump.write(path, deck_, loader_, state_.data_position(), report);
    ctx_.log.info("dump step=%lld file=%s", ll(report.step), path.c_str());
  } else {
    report = stepper_.gradients();
  }
  judge_update(report);
  stepper_.update(report);
  const Region region(ctx_.timers, "diagnostics");
  step_seconds_ =
      step_seconds_ == 0 ? report.seconds : 0.9 * step_seconds_ + 0.1 * report.seconds;
  longest_step_ = std::max(longest_step_, report.seconds);
  last_loss_ = report.cross_entropy;
  if (report.skipped) {
    if (grid_.world.rank() == 0)
      ctx_.log.warn("step %lld skipped: %s", ll(report.step), report.not_finite.c_str());
    diagnostics_->event(report.step, report.tokens, "skip", report.not_finite);
  }
  row = history_row(report, figures_, grid_.world);
  diagnostics_->step(report, row);
  log_step(report, row);
  return report;
}

/// What does not belong to a step: the status line, at most once a second, and requests.
template <class S>
typename Run<S>::Requests Run<S>::between_steps(const RunDir& dir) {
  const Region region(ctx_.timers, "diagnostics");
  const double now = run_clock_.seconds();
  if (now - last_status_ > 1) {
    set_status(dir, "running");
    last_status_ = now;
  }
  return requests(dir);
}

template <class S>
void Run<S>::start_diagnostics(const RunDir& dir) {
  diagnostics_ =
      std::make_unique<Diagnostics>(dir, facts(), deck_.flag("diagnostics/history"),
                                    deck_.integer("diagnostics/experts_every"), ctx_);
}

template <class S>
Exit Run<S>::train() {
  health_ = std::make_unique<Health>(deck_, column_names(figures_), early_names(),
                                     grid_.world, ctx_.log);
  RunDir dir(line_.run_dir, grid_.world);
  start_files(dir);
  restart(dir);
  health_->refill(dir.history(), state_.step);
  gemm_peak_gflops_ = measure_gemm_peak<S>();
  start_diagnostics(dir);
  diagnostics_->event(state_.step, state_.tokens, state_.step > 0 ? "restart" : "start",
                      format("segment %d", dir.segment()));
  Requests asked;
  std::vector<Figure> row;
  bool first = true;
  while (state_.step < total_steps_ && !asked.stop) {
    const StepReport report = one_step(dir, row);
    if (first) {  // the first step sizes buffers: not what timing.txt is about
      ctx_.timers.reset();
      stepper_.pipeline().reset_time();
    }
    first = false;
    const bool evaluated = crossed(deck_.integer("eval/every_tokens"), report);
    if (evaluated) evaluate_now(dir);
    asked = between_steps(dir);
    const HealthVerdict verdict =
        health_->after_step(report.step, report.tokens, row,
                            evaluated ? &last_eval_ : nullptr, state_.rollbacks);
    if (heed(dir, verdict)) continue;
    if (!health_stop_.empty()) break;
    const bool due = crossed(deck_.integer("checkpoint/every_tokens"), report);
    if (due || asked.checkpoint || verdict.checkpoint) {
      save(dir);
      write_times(dir);
    }
  }
  return finish(dir, asked);
}

/// timing.txt so far, of all steps but the segment's first. A full disk is no error.
template <class S>
void Run<S>::write_times(const RunDir& dir) {
  const std::int64_t steps = std::max<std::int64_t>(0, state_.step - start_step_ - 1);
  const std::string pipeline =
      pipeline_line(stepper_.pipeline().time(), model_.stage().layers, grid_);
  try {
    write_timing(dir.timing(), dir.segment(), steps, steps * tokens_per_step(deck_),
                 gemm_peak_gflops_, threads_, ctx_.timers, ctx_.ledger, pipeline,
                 grid_.world);
  } catch (const Error& error) {
    if (error.code() != Exit::file) throw;
    ctx_.log.warn("no timing table: %s", error.what());
  }
}

template <class S>
Exit Run<S>::finish(const RunDir& dir, const Requests& asked) {
  if (!health_stop_.empty()) return finish_stopped(dir);
  const bool done = state_.step >= total_steps_;
  const bool saved = saved_step_ == state_.step || save(dir);
  if (done && deck_.flag("eval/at_end") && evaluated_step_ != state_.step)
    evaluate_now(dir);
  write_times(dir);
  if (!done) {
    diagnostics_->event(state_.step, state_.tokens, "stop", asked.why);
    ctx_.log.info("stopped: %s; restart with -r latest", asked.why.c_str());
  }
  diagnostics_->close();
  set_status(dir, done ? "done" : "interrupted");
  if (!saved) return Exit::file;
  return done ? Exit::done : Exit::interrupted;
}

/// The end by a rule. Nothing is saved: this state is what the rule objects to.
template <class S>
Exit Run<S>::finish_stopped(const RunDir& dir) {
  write_times(dir);
  diagnostics_->event(state_.step, state_.tokens, "stop", health_stop_);
  ctx_.log.info("stopped by a health rule: %s; the checkpoints are older",
                health_stop_.c_str());
  diagnostics_->close();
  set_status(dir, "stopped");
  return Exit::diverged;
}

template <class S>
Exit Run<S>::evaluate() {
  load(line_.run_dir + "/ckpt", false);
  if (!evaluator_.available()) {
    throw Error(Exit::deck, "no sequence is held out: raise data/valid_fraction");
  }
  const EvalReport report = evaluator_.run(stepper_.pipeline());
  ctx_.log.info("eval step=%lld tokens=%lld loss=%.6f counted_tokens=%lld",
                ll(state_.step), ll(state_.tokens), report.loss, ll(report.tokens));
  return Exit::done;
}

template <class S>
Exit Run<S>::sample() {
  load(line_.run_dir + "/ckpt", false);
  GenerateSpec spec;
  spec.seed = static_cast<std::uint64_t>(deck_.integer("job/seed"));
  const std::string text =
      generate<S>(stepper_.pipeline(), model_.shape().seq_len, line_.prompt, spec);
  ctx_.log.info("%s", text.c_str());
  return Exit::done;
}

#define CAPSTAN_RUN(S) template class Run<S>;
CAPSTAN_INSTANTIATE(CAPSTAN_RUN)

}  // namespace capstan
