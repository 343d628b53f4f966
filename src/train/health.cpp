#include "train/health.hpp"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <sstream>

#include "deck/nearest.hpp"
#include "deck/support.hpp"

namespace capstan {

namespace {

using Act = HealthRule::Act;

const char* const kEvalLoss = "eval_loss";
const char* const kActs[] = {"warn", "checkpoint", "skip", "rollback", "stop"};

bool has(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string metric_problem(const HealthRule& rule,
                           const std::vector<std::string>& columns,
                           const std::vector<std::string>& early) {
  const std::string head = rule.name + "/metric = " + rule.metric;
  if (rule.metric != kEvalLoss && !has(columns, rule.metric)) {
    const std::string near = nearest(rule.metric, columns);
    return head + " is no column of the history" +
           (near.empty() ? "" : "; the nearest is " + near);
  }
  if (rule.act == Act::skip && !has(early, rule.metric))
    return head +
           " is not known before the update; action = skip can watch losses, "
           "gradient and parameter norms";
  if (rule.when == HealthRule::When::off_ladder && rule.band.empty())
    return rule.name + "/condition = off_ladder needs " + rule.name + "/band";
  return "";
}

const double* find(const std::vector<Figure>& row, const std::string& name,
                   double& value) {
  for (const Figure& f : row) {
    if (f.name != name) continue;
    value = f.integer ? double(f.count) : f.value;
    return &value;
  }
  return nullptr;
}

/// A line of history.txt as numbers; the segment comes first.
std::vector<double> numbers_of(const std::string& line) {
  std::vector<double> values;
  const char* at = line.c_str();
  for (;;) {
    char* end = nullptr;
    const double value = std::strtod(at, &end);
    if (end == at) return values;
    values.push_back(value);
    at = end;
  }
}

/// The number after `key=` in a comment line.
double number_after(const std::string& line, const std::string& key) {
  const auto at = line.find(" " + key + "=");
  if (at == std::string::npos) return std::numeric_limits<double>::quiet_NaN();
  return std::strtod(line.c_str() + at + key.size() + 2, nullptr);
}

/// What the rules were shown, in its order.
struct Shown {
  std::int64_t step, tokens;
  std::vector<double> values;  ///< one for each metric, NaN where a row lacks it
  std::vector<bool> there;
};

class HistoryReader {
 public:
  HistoryReader(const std::vector<std::string>& metrics, std::int64_t last)
      : metrics_(metrics), last_(last) {}

  void line(const std::string& text) {
    if (text.rfind("#segment ", 0) == 0) {
      columns_.clear();
      std::istringstream words(text.substr(1));
      for (std::string name; words >> name;) columns_.push_back(name);
    } else if (text.rfind("#start ", 0) == 0) {
      drop_after(std::int64_t(number_after(text, "start_step")));
    } else if (text.rfind("#eval ", 0) == 0) {
      eval(text);
    } else if (!text.empty() && text[0] != '#') {
      row(numbers_of(text));
    }
  }
  const std::vector<Shown>& shown() const { return shown_; }

 private:
  void drop_after(std::int64_t step) {
    while (!shown_.empty() && shown_.back().step > step) shown_.pop_back();
  }
  Shown fresh(double step, double tokens) const {
    return {std::int64_t(step), std::int64_t(tokens),
            std::vector<double>(metrics_.size(), 0),
            std::vector<bool>(metrics_.size(), false)};
  }
  void eval(const std::string& text) {
    Shown s = fresh(number_after(text, "step"), number_after(text, "tokens"));
    for (std::size_t m = 0; m < metrics_.size(); ++m) {
      if (metrics_[m] != kEvalLoss) continue;
      s.values[m] = number_after(text, "loss");
      s.there[m] = true;
    }
    if (s.step <= last_) shown_.push_back(s);
  }
  void row(const std::vector<double>& values) {
    if (values.size() != columns_.size() || values.size() < 3) return;
    Shown s = fresh(values[1], values[2]);
    for (std::size_t m = 0; m < metrics_.size(); ++m) {
      const auto found = std::find(columns_.begin(), columns_.end(), metrics_[m]);
      if (found == columns_.end()) continue;
      s.values[m] = values[std::size_t(found - columns_.begin())];
      s.there[m] = true;
    }
    if (s.step <= last_) shown_.push_back(s);
  }

  std::vector<std::string> metrics_, columns_;
  std::int64_t last_;
  std::vector<Shown> shown_;
};

}  // namespace

Health::Health(const Deck& deck, const std::vector<std::string>& columns,
               const std::vector<std::string>& early, const Comm& world, Log& log)
    : world_(world), log_(log) {
  std::vector<std::string> problems;
  for (const HealthRule& rule : health_rules(deck)) {
    const std::string problem = metric_problem(rule, columns, early);
    if (!problem.empty()) {
      problems.push_back(problem);
      continue;
    }
    try {
      watches_.emplace_back(rule);
    } catch (const Error& error) {
      problems.push_back(rule.name + "/band: " + error.what());
    }
  }
  refuse("health rules", problems);
  skips_in_a_row_.assign(watches_.size(), 0);
}

void Health::refill(const std::string& history, std::int64_t start_step) {
  for (RuleWatch& watch : watches_) watch = RuleWatch(watch.rule());
  skips_in_a_row_.assign(watches_.size(), 0);
  if (!any() || start_step == 0 || world_.rank() != 0) return;
  std::vector<std::string> metrics;
  for (const RuleWatch& watch : watches_) metrics.push_back(watch.rule().metric);
  HistoryReader reader(metrics, start_step);
  std::ifstream file(history);
  for (std::string line; std::getline(file, line);) reader.line(line);
  std::int64_t steps = 0, last = -1;
  for (const Shown& shown : reader.shown()) {
    if (shown.step != last) ++steps;
    last = shown.step;
    for (std::size_t w = 0; w < watches_.size(); ++w)
      if (shown.there[w]) watches_[w].see(shown.step, shown.tokens, shown.values[w]);
  }
  if (steps < start_step)
    log_.warn(
        "health: the history has %lld of the %lld steps before; windows of the "
        "rules fill again",
        static_cast<long long>(steps), static_cast<long long>(start_step));
}

void Health::judge(const RuleWatch& watch, const Alarm& alarm, std::int64_t step,
                   std::int64_t tokens, std::int64_t rollbacks, HealthVerdict& verdict) {
  const HealthRule& rule = watch.rule();
  const std::string why = rule.name + ": " + alarm.text;
  std::string done = kActs[static_cast<int>(rule.act)];
  const bool enough = rule.act == Act::rollback && rollbacks >= rule.limit;
  if (enough)
    done = format("stop, after %lld rollbacks", static_cast<long long>(rollbacks));
  if (rule.act == Act::stop || enough) {
    verdict.stop = true;
    verdict.why = why;
  } else if (rule.act == Act::rollback) {
    const std::int64_t before =
        std::max<std::int64_t>(1, alarm.began - rule.margin_steps);
    if (!verdict.roll_back || before < verdict.before_step) {
      verdict.before_step = before;
      if (!verdict.stop) verdict.why = why;
    }
    verdict.roll_back = true;
    verdict.rate_factor = std::min(verdict.rate_factor, rule.rate_factor);
  } else if (rule.act == Act::checkpoint) {
    verdict.checkpoint = true;
  }
  log_.warn("step %lld: %s; action: %s", static_cast<long long>(step), why.c_str(),
            done.c_str());
  events_.push_back({step, tokens, why + "; " + done});
}

/// Rank 0's verdict on all ranks.
HealthVerdict Health::agreed(HealthVerdict verdict) const {
  std::int64_t flags[5] = {verdict.skip, verdict.checkpoint, verdict.roll_back,
                           verdict.stop, verdict.before_step};
  world_.broadcast_host(flags, 5, 0);
  verdict.skip = flags[0] != 0;
  verdict.checkpoint = flags[1] != 0;
  verdict.roll_back = flags[2] != 0;
  verdict.stop = flags[3] != 0;
  verdict.before_step = flags[4];
  world_.broadcast_host(&verdict.rate_factor, 1, 0);
  if (verdict.skip || verdict.roll_back || verdict.stop)
    verdict.why = world_.broadcast_text(verdict.why, 0);
  return verdict;
}

HealthVerdict Health::before_update(std::int64_t step, std::int64_t tokens,
                                    const std::vector<Figure>& early) {
  const bool watching =
      std::any_of(watches_.begin(), watches_.end(),
                  [](const RuleWatch& w) { return w.rule().act == Act::skip; });
  HealthVerdict verdict;
  if (!watching) return verdict;
  for (std::size_t w = 0; w < watches_.size() && world_.rank() == 0; ++w) {
    const HealthRule& rule = watches_[w].rule();
    double value = 0;
    if (rule.act != Act::skip || !find(early, rule.metric, value)) continue;
    const auto alarm = watches_[w].see(step, tokens, value);
    if (!alarm) {
      skips_in_a_row_[w] = 0;
      continue;
    }
    verdict.why = rule.name + ": " + alarm->text;
    if (++skips_in_a_row_[w] > rule.limit) verdict.stop = true;
    verdict.skip = true;
    const char* done = verdict.stop ? "stop, after too many skips" : "skip";
    log_.warn("step %lld: %s; action: %s", static_cast<long long>(step),
              verdict.why.c_str(), done);
    events_.push_back({step, tokens, verdict.why + "; " + done});
  }
  return agreed(verdict);
}

HealthVerdict Health::after_step(std::int64_t step, std::int64_t tokens,
                                 const std::vector<Figure>& row, const double* eval_loss,
                                 std::int64_t rollbacks) {
  HealthVerdict verdict;
  if (!any()) return verdict;
  for (RuleWatch& watch : watches_) {
    const HealthRule& rule = watch.rule();
    if (world_.rank() != 0 || rule.act == Act::skip) continue;
    double value = 0;
    const double* seen =
        rule.metric == kEvalLoss ? eval_loss : find(row, rule.metric, value);
    if (!seen) continue;
    const auto alarm = watch.see(step, tokens, *seen);
    if (alarm) judge(watch, *alarm, step, tokens, rollbacks, verdict);
  }
  return agreed(verdict);
}

std::vector<Health::Event> Health::take_events() {
  std::vector<Event> out;
  out.swap(events_);
  return out;
}

}  // namespace capstan
