// What a run does when its health rules demand something.
#include <filesystem>

#include "io/publish.hpp"
#include "train/run.hpp"

namespace capstan {

namespace {

namespace fs = std::filesystem;

long long ll(std::int64_t x) {
  return static_cast<long long>(x);
}

/// The step in a checkpoint's name, step_NNNNNNNN.
std::int64_t step_of(const std::string& path) {
  const std::string name = fs::path(path).filename().string();
  return std::strtoll(name.c_str() + name.find('_') + 1, nullptr, 10);
}

/// Removes checkpoints of steps after `step`: they hold the trouble, and the run will
/// reach those steps again. The name goes first, so that none is seen half removed.
void drop_newer(const std::string& folder, std::int64_t step, Log& log) {
  for (const std::string& path : list_checkpoints(folder)) {
    if (step_of(path) <= step) continue;
    std::error_code failed;
    fs::rename(path, path + kPart, failed);
    if (!failed) fs::remove_all(path + kPart, failed);
    if (failed) log.warn("cannot remove %s: %s", path.c_str(), failed.message().c_str());
  }
}

}  // namespace

/// Rules that may leave the update out, between gradients and update.
template <class S>
void Run<S>::judge_update(StepReport& report) {
  if (report.skipped || !health_->any()) return;
  const HealthVerdict verdict =
      health_->before_update(report.step, report.tokens, early_row(report));
  if (!verdict.skip) return;
  report.skipped = true;
  report.not_finite = verdict.why;
  if (verdict.stop) health_stop_ = verdict.why;
}

/// Records what the rules found and does what they demand besides saving. True after a
/// roll back: the step that was made is gone.
template <class S>
bool Run<S>::heed(RunDir& dir, const HealthVerdict& verdict) {
  for (const Health::Event& e : health_->take_events())
    diagnostics_->event(e.step, e.tokens, "health", e.text);
  if (verdict.stop) health_stop_ = verdict.why;
  if (!health_stop_.empty() || !verdict.roll_back) return false;
  roll_back(dir, verdict);
  return true;
}

/// Fills the state from the newest intact checkpoint before `step`; its path.
/// Error(Exit::diverged) when there is none.
template <class S>
std::string Run<S>::load_before(const std::string& folder, std::int64_t step) {
  std::string list;
  if (grid_.world.rank() == 0) {
    for (const std::string& path : list_checkpoints(folder))
      if (step_of(path) < step) list += path + "\n";
  }
  list = grid_.world.broadcast_text(list, 0);
  const auto wanted = state_pieces(state_, grid_, false, true);
  for (std::size_t at = 0; at < list.size();) {
    const std::size_t end = list.find('\n', at);
    const std::string path = list.substr(at, end - at);
    at = end + 1;
    try {
      adopt(load_checkpoint(path, wanted, grid_.world, LoadOptions()));
      return path;
    } catch (const Error& error) {
      if (error.code() != Exit::file) throw;
      ctx_.log.warn("rollback: %s", error.what());
    }
  }
  throw Error(Exit::diverged,
              format("no intact checkpoint in %s is older than step %lld: cannot roll "
                     "back",
                     folder.c_str(), ll(step)));
}

/// Back to a checkpoint from before the trouble, and on with data after all that has been
/// read. The next segment begins: its rows replace those of the steps that are gone. The
/// checkpoint is saved again at once, because a restart must not read the same data.
template <class S>
void Run<S>::roll_back(RunDir& dir, const HealthVerdict& verdict) {
  const std::int64_t step = state_.step, rollbacks = state_.rollbacks + 1;
  const std::int64_t position = state_.data_position();
  const double scale = state_.rate_scale * verdict.rate_factor;
  const std::string path = load_before(dir.checkpoints(), verdict.before_step);
  state_.rollbacks = rollbacks;
  state_.rate_scale = scale;
  const std::int64_t first = state_.data_position();
  state_.data_offset = position - state_.tokens;
  saved_step_ = evaluated_step_ = -1;
  diagnostics_->close();
  diagnostics_.reset();
  dir.next_segment();
  if (grid_.world.rank() == 0) {
    drop_newer(dir.checkpoints(), state_.step, ctx_.log);
    ctx_.log.open(dir.log());
  }
  start_diagnostics(dir);
  health_->refill(dir.history(), state_.step);
  const std::string text =
      format("from step %lld to %lld, data of tokens %lld to %lld skipped, rates x %g; ",
             ll(step), ll(state_.step), ll(first), ll(position), scale) +
      verdict.why;
  diagnostics_->event(state_.step, state_.tokens, "rollback", text);
  ctx_.log.info("rollback %lld: %s (%s)", ll(rollbacks), text.c_str(), path.c_str());
  save(dir);
}

#define CAPSTAN_RUN_HEALTH(S)                                                 \
  template void Run<S>::judge_update(StepReport&);                            \
  template bool Run<S>::heed(RunDir&, const HealthVerdict&);                  \
  template std::string Run<S>::load_before(const std::string&, std::int64_t); \
  template void Run<S>::roll_back(RunDir&, const HealthVerdict&);
CAPSTAN_INSTANTIATE(CAPSTAN_RUN_HEALTH)

}  // namespace capstan
