// Restart, saving and requests of a run.
#include <algorithm>
#include <cmath>
#include <set>

#include "base/build_info.hpp"
#include "base/signals.hpp"
#include "data/from_deck.hpp"
#include "deck/scale.hpp"
#include "io/publish.hpp"
#include "train/length.hpp"
#include "train/replicas.hpp"

namespace capstan {

namespace {
long long ll(std::int64_t x) {
  return static_cast<long long>(x);
}
}  // namespace

/// Log. A fresh start in a directory with checkpoints is refused: it would
/// mix two runs, and is most likely a forgotten -r.
template <class S>
void Run<S>::start_files(RunDir& dir) {
  std::string newest;
  if (line_.restart.empty() && grid_.world.rank() == 0) {
    const auto found = list_checkpoints(dir.checkpoints());
    if (!found.empty()) newest = found.front();
  }
  newest = grid_.world.broadcast_text(newest, 0);
  if (!newest.empty()) {
    throw Error(Exit::deck,
                "run directory " + dir.path() + " has checkpoints (newest: " + newest +
                    "): go on with -r latest, or choose another directory with -d");
  }
  if (grid_.world.rank() == 0) {
    ctx_.log.open(dir.log());
    dir.close_dead_files(ctx_.log);
  }
  ctx_.log.info("run=%s dir=%s segment=%d ranks=%d grid=%dx%dx%d threads=%d scalar=%s",
                deck_.text("job/name").c_str(), dir.path().c_str(), dir.segment(),
                grid_.world.size(), grid_.n_pipe, grid_.n_data, grid_.n_expert, threads_,
                deck_.text("model/scalar").c_str());
  if (grid_.world.rank() != 0) return;
  for (const std::string& note : scale_notes(deck_)) ctx_.log.warn("%s", note.c_str());
}

template <class S>
void Run<S>::load(const std::string& folder, bool with_optimizer) {
  const auto wanted = state_pieces(state_, grid_, false, with_optimizer);
  // First what the decks say: it explains shapes that do not fit.
  if (with_optimizer) check_restart(readable_checkpoint(line_.restart, folder));
  LoadOptions options;
  options.only_wanted = !with_optimizer;
  const CheckpointInfo info =
      line_.restart == "latest"
          ? load_latest(folder, wanted, grid_.world, ctx_.log, options)
          : load_checkpoint(line_.restart, wanted, grid_.world, options);
  adopt(info);
}

/// The counters of a checkpoint whose tensors have been read.
template <class S>
void Run<S>::adopt(const CheckpointInfo& info) {
  const auto count = [&](const char* name) {  // older checkpoints have none
    return info.attributes.count(name) > 0 ? info.integer(name) : 0;
  };
  optimizer_.refresh_weights(ctx_);
  state_.step = info.integer("step");
  state_.tokens = info.integer("tokens");
  state_.data_offset = count("data_offset");
  state_.rollbacks = count("rollbacks");
  state_.rate_scale =
      info.attributes.count("rate_scale") > 0 ? info.real("rate_scale") : 1.0;
  optimizer_.set_updates(info.integer("optimizer_steps"));
}

/// What differs from the run that wrote the checkpoint: listed, and refused where it
/// would not be the same model or the same data.
template <class S>
void Run<S>::check_restart(const CheckpointInfo& info) const {
  const Deck before = Deck::parse(info.text("deck"), info.path + " (deck)");
  std::string refused;
  for (const Deck::Difference& d : deck_.differences(before)) {
    if (d.on_restart == OnRestart::free) continue;
    const std::string line = d.path + ": " + d.before + " -> " + d.after;
    if (d.on_restart == OnRestart::fixed) {
      refused += "\n  " + line;
    } else {
      ctx_.log.info("restart: changed %s", line.c_str());
    }
  }
  if (!refused.empty()) {
    throw Error(Exit::deck, "these keys may not change at a restart from " + info.path +
                                ":" + refused);
  }
  check_rates(before, info.integer("tokens"));
  const auto difference = [&](const char* what, const std::string& then,
                              const std::string& now) {
    if (then != now)
      ctx_.log.info("restart: %s %s -> %s", what, then.c_str(), now.c_str());
  };
  const auto grid = info.integers("grid");
  difference("grid",
             format("%lldx%lldx%lld", ll(grid.at(0)), ll(grid.at(1)), ll(grid.at(2))),
             format("%dx%dx%d", grid_.n_pipe, grid_.n_data, grid_.n_expert));
  difference("code", info.text("version") + " " + info.text("commit"),
             std::string(build_info().version) + " " + build_info().commit);
  if (info.integer("threads") != threads_) {
    ctx_.log.info(
        "restart: threads %lld -> %d: losses agree to rounding, not bit for bit",
        ll(info.integer("threads")), threads_);
  }
  check_data(before, info);
}

/// The order of the data up to here, and the sources.
template <class S>
void Run<S>::check_data(const Deck& before, const CheckpointInfo& info) const {
  const std::int64_t offset =
      info.attributes.count("data_offset") > 0 ? info.integer("data_offset") : 0;
  const std::int64_t seen = info.integer("tokens") + offset;
  const SamplerSpec then = sampler_spec(before), now = sampler_spec(deck_);
  if (grid_.world.rank() == 0 && order_differs(then, now, seen)) {
    ctx_.log.warn(
        "restart: the mixture before token %lld is not what was trained on: sources go "
        "on "
        "from other places, and sequences may be repeated or skipped",
        ll(seen));
  }
  const auto moved = sampler_.fingerprint_differences(info.text("data_fingerprint"));
  std::string lines;
  for (const std::string& line : moved) lines += "\n  " + line;
  if (moved.empty()) return;
  const auto files = [](const SamplerSpec& spec) {
    std::vector<std::vector<std::string>> out;
    for (const SourceSpec& source : spec.sources) out.push_back(source.files);
    return out;
  };
  if (files(then) == files(now)) {
    throw Error(Exit::file,
                "the data is not what the checkpoint was trained on:" + lines);
  }
  ctx_.log.warn("the data differs from that of the checkpoint:%s", lines.c_str());
}

/// The learning rate of the next step, tensor by tensor, must be what the run before
/// would have used, to 1 %: a schedule made for another length is seldom meant.
template <class S>
void Run<S>::check_rates(const Deck& before, std::int64_t tokens) const {
  const auto old_groups = groups_from_deck(before);
  const auto& groups = optimizer_.groups();
  const std::int64_t seen = tokens + tokens_per_step(deck_);
  const double then = Schedule::from_deck(before).factor(seen);
  const double now = Schedule::from_deck(deck_).factor(seen);
  std::set<std::string> jumps;
  for (const ParamSpec& spec : param_list(model_.shape())) {
    const ParamGroup& old_group = old_groups[group_of(old_groups, spec.name)];
    const ParamGroup& group = groups[group_of(groups, spec.name)];
    const double was = old_group.lr * then, is = group.lr * now;
    if (std::abs(is - was) > 0.01 * was)
      jumps.insert(format("<%s>: %.6g -> %.6g", group.name.c_str(), was, is));
  }
  if (jumps.empty()) return;
  std::string lines;
  for (const std::string& jump : jumps) lines += "\n  " + jump;
  if (deck_.flag("schedule/allow_jump")) {
    if (grid_.world.rank() == 0)
      ctx_.log.warn("restart: the next learning rate jumps:%s", lines.c_str());
    return;
  }
  throw Error(
      Exit::deck,
      "the next learning rate would jump by more than 1 % at this restart:" + lines +
          "\n  schedule/allow_jump = true permits it; "
          "schedule/reaim_from_tokens bends the decay without a jump");
}

template <class S>
void Run<S>::restart(RunDir& dir) {
  if (!line_.restart.empty()) {
    load(dir.checkpoints(), true);
    ctx_.log.info("restart: checkpoint step=%lld tokens=%lld", ll(state_.step),
                  ll(state_.tokens));
  }
  start_step_ = state_.step;
  if (grid_.world.rank() == 0) publish_text(dir.deck_used(), deck_.dump());
}

/// Before the files of a good checkpoint may be replaced: are all copies still one state?
template <class S>
void Run<S>::check_replicas() {
  if (!deck_.flag("checkpoint/check_replicas")) return;
  const auto names = differing_replicas(state_, grid_);
  if (names.empty()) return;
  std::string list;
  for (std::size_t i = 0; i < names.size() && i < 8; ++i) list += "\n  " + names[i];
  throw Error(Exit::diverged,
              format("step %lld: copies of %zu tensors differ between ranks:%s",
                     ll(state_.step), names.size(), list.c_str()));
}

template <class S>
bool Run<S>::save(const RunDir& dir) {
  const Region region(ctx_.timers, "checkpoint");
  const double begin = ctx_.timers.wall();
  check_replicas();
  SaveOptions options;
  options.folder = dir.checkpoints();
  options.keep_last = deck_.integer("checkpoint/keep_last");
  options.keep_every = deck_.integer("checkpoint/keep_every");
  const SaveResult result =
      save_checkpoint(options, state_.step, state_pieces(state_, grid_, true, true),
                      attributes(dir.segment()), grid_.world);
  save_seconds_ = ctx_.timers.wall() - begin;
  if (!result.ok) {
    ctx_.log.warn("checkpoint of step %lld failed: %s; training goes on", ll(state_.step),
                  result.problem.c_str());
    diagnostics_->event(state_.step, state_.tokens, "save_failed", result.problem);
    return false;
  }
  saved_step_ = state_.step;
  ctx_.log.info("checkpoint step=%lld file=%s mib=%.1f seconds=%.2f state_hash=%016llx",
                ll(state_.step), result.path.c_str(), double(result.bytes) / (1 << 20),
                save_seconds_, static_cast<unsigned long long>(result.state_hash));
  diagnostics_->event(state_.step, state_.tokens, "checkpoint", result.path);
  return true;
}

/// Signals to any rank, touched files, the time limit: agreed by all ranks between steps.
template <class S>
typename Run<S>::Requests Run<S>::requests(const RunDir& dir) const {
  const SignalRequests signals = take_requests();
  const double limit = line_.wall_limit_seconds > 0
                           ? line_.wall_limit_seconds
                           : deck_.real("job/wall_limit_seconds");
  // What a stop still needs: a step that may be slower than the others, and a save.
  const double reserve = 2 * longest_step_ + 2 * save_seconds_;
  const double elapsed = run_clock_.seconds();
  std::int32_t flags[4] = {
      signals.stop, signals.checkpoint || dir.take_request("checkpoint"),
      dir.take_request("stop"), limit > 0 && elapsed + reserve > limit};
  grid_.world.all_reduce_host(flags, 4, Reduce::max);
  Requests asked;
  asked.checkpoint = flags[1] != 0;
  asked.stop = flags[0] != 0 || flags[2] != 0 || flags[3] != 0;
  asked.why = flags[0] != 0   ? "signal"
              : flags[2] != 0 ? "stop file"
              : flags[3] != 0 ? "time limit"
                              : "";
  return asked;
}

#define CAPSTAN_RUN_STATE(S)                                          \
  template void Run<S>::start_files(RunDir&);                         \
  template void Run<S>::load(const std::string&, bool);               \
  template void Run<S>::adopt(const CheckpointInfo&);                 \
  template void Run<S>::check_restart(const CheckpointInfo&) const;   \
  template void Run<S>::check_rates(const Deck&, std::int64_t) const; \
  template void Run<S>::restart(RunDir&);                             \
  template void Run<S>::check_replicas();                             \
  template bool Run<S>::save(const RunDir&);                          \
  template typename Run<S>::Requests Run<S>::requests(const RunDir&) const;
CAPSTAN_INSTANTIATE(CAPSTAN_RUN_STATE)

}  // namespace capstan
