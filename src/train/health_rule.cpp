#include "train/health_rule.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <sstream>

#include "base/log.hpp"
#include "io/publish.hpp"

namespace capstan {

namespace {

using When = HealthRule::When;
using Act = HealthRule::Act;

When when_of(const std::string& name) {
  if (name == "above") return When::above;
  if (name == "below") return When::below;
  if (name == "above_least") return When::above_least;
  if (name == "zscore") return When::zscore;
  if (name == "slope") return When::slope;
  if (name == "sum_above") return When::sum_above;
  return When::off_ladder;
}

Act act_of(const std::string& name) {
  if (name == "warn") return Act::warn;
  if (name == "checkpoint") return Act::checkpoint;
  if (name == "skip") return Act::skip;
  if (name == "rollback") return Act::rollback;
  return Act::stop;
}

}  // namespace

LadderBand LadderBand::read(const std::string& path) {
  return parse(read_text(path), path);
}

LadderBand LadderBand::parse(const std::string& text, const std::string& name) {
  LadderBand band;
  std::istringstream lines(text);
  std::string line;
  while (std::getline(lines, line)) {
    if (line.empty() || line[0] == '#' || line.rfind("fraction ", 0) == 0) continue;
    std::istringstream words(line);
    double fraction = 0, loss = 0;
    Row row{};
    const bool good =
        bool(words >> fraction >> row.tokens >> loss >> row.low >> row.high) &&
        row.low <= row.high &&
        (band.rows_.empty() || band.rows_.back().tokens < row.tokens);
    if (!good) throw Error(Exit::file, name + " is no band of a ladder: " + line);
    band.rows_.push_back(row);
  }
  if (band.rows_.empty())
    throw Error(Exit::file, name + " is no band of a ladder: empty");
  return band;
}

std::optional<std::pair<double, double>> LadderBand::at(double tokens) const {
  if (rows_.empty() || tokens < rows_.front().tokens || tokens > rows_.back().tokens)
    return std::nullopt;
  const auto after = std::find_if(rows_.begin(), rows_.end(),
                                  [&](const Row& row) { return row.tokens >= tokens; });
  if (after == rows_.begin()) return std::pair(after->low, after->high);
  const auto before = after - 1;
  const double part = (tokens - before->tokens) / (after->tokens - before->tokens);
  return std::pair(before->low + part * (after->low - before->low),
                   before->high + part * (after->high - before->high));
}

std::vector<HealthRule> health_rules(const Deck& deck) {
  std::vector<HealthRule> rules;
  for (const int n : deck.numbered("health")) {
    HealthRule rule;
    rule.name = "health" + std::to_string(n);
    const std::string block = rule.name + "/";
    rule.metric = deck.text(block + "metric");
    rule.when = when_of(deck.text(block + "condition"));
    rule.act = act_of(deck.text(block + "action"));
    rule.threshold = deck.real(block + "threshold");
    rule.least_rise = deck.real(block + "least_rise");
    rule.window_steps = deck.integer(block + "window_steps");
    rule.for_steps = deck.integer(block + "for_steps");
    rule.from_tokens = deck.integer(block + "from_tokens");
    rule.margin_steps = deck.integer(block + "margin_steps");
    rule.rate_factor = deck.real(block + "rate_factor");
    rule.limit = deck.integer(block + "limit");
    rule.band = deck.text(block + "band");
    rules.push_back(rule);
  }
  return rules;
}

RuleWatch::RuleWatch(HealthRule rule) : rule_(std::move(rule)) {
  if (rule_.when == When::off_ladder) band_ = LadderBand::read(rule_.band);
}

/// True where the window is of all values, not only of those that were not beyond.
bool RuleWatch::holds_window_of_all() const {
  return rule_.when == When::slope || rule_.when == When::sum_above;
}

void RuleWatch::keep(double value) {
  if (!std::isfinite(value)) return;
  window_.push_back(value);
  if (std::int64_t(window_.size()) > rule_.window_steps) window_.pop_front();
}

std::string RuleWatch::beyond_mean(double value) const {
  if (std::int64_t(window_.size()) < rule_.window_steps) return "";
  const double n = double(window_.size());
  const double mean = std::accumulate(window_.begin(), window_.end(), 0.0) / n;
  double squares = 0;
  for (const double x : window_) squares += (x - mean) * (x - mean);
  const double deviation = std::sqrt(squares / n);
  const double distance =
      std::max(rule_.least_rise, std::abs(rule_.threshold) * deviation);
  const double rise = rule_.threshold < 0 ? mean - value : value - mean;
  if (std::isfinite(value) && rise <= distance) return "";
  return format("is %g from the mean %.6g of %d values, beyond %.4g", value - mean, mean,
                int(window_.size()), distance);
}

std::string RuleWatch::beyond_slope() const {
  if (std::int64_t(window_.size()) < rule_.window_steps) return "";
  const double n = double(window_.size()), middle = (n - 1) / 2;
  double products = 0, squares = 0;
  for (std::size_t i = 0; i < window_.size(); ++i) {
    products += (double(i) - middle) * window_[i];
    squares += (double(i) - middle) * (double(i) - middle);
  }
  const double slope = products / squares;
  const bool out =
      rule_.threshold < 0 ? slope < rule_.threshold : slope > rule_.threshold;
  if (!out) return "";
  return format("has slope %.4g over %d values, beyond %g", slope, int(window_.size()),
                rule_.threshold);
}

std::string RuleWatch::beyond(std::int64_t tokens, double value) const {
  const bool finite = std::isfinite(value);
  const double limit = rule_.threshold;
  switch (rule_.when) {
    case When::above:
      return finite && value <= limit ? "" : format("is above %g", limit);
    case When::below:
      return finite && value < limit ? format("is below %g", limit) : "";
    case When::above_least: {
      if (window_.empty()) return "";
      const double least = *std::min_element(window_.begin(), window_.end());
      if (finite && value <= least + limit) return "";
      return format("is above the least of %d values, %.6g, by more than %g",
                    int(window_.size()), least, limit);
    }
    case When::zscore:
      return beyond_mean(value);
    case When::slope:
      return beyond_slope();
    case When::sum_above: {
      const double sum = std::accumulate(window_.begin(), window_.end(), 0.0);
      if (sum <= limit) return "";
      return format("sums to %g over %d values, above %g", sum, int(window_.size()),
                    limit);
    }
    case When::off_ladder: {
      const auto span = band_.at(double(tokens));
      if (!span) return "";
      if (value >= span->first - limit && value <= span->second + limit) return "";
      return format("is off the band of the ladder, %.4f to %.4f", span->first,
                    span->second);
    }
  }
  throw Error(Exit::internal, "health: a condition without a meaning");
}

std::optional<Alarm> RuleWatch::see(std::int64_t step, std::int64_t tokens,
                                    double value) {
  if (tokens < rule_.from_tokens) return std::nullopt;
  if (holds_window_of_all()) keep(value);
  const std::string why = beyond(tokens, value);
  if (why.empty()) {
    if (!holds_window_of_all()) {
      for (const auto& held : pending_) keep(held.second);
      keep(value);
    }
    pending_.clear();
    fired_ = false;
    return std::nullopt;
  }
  // After the alarm a level that stays is the new measure, so that the rule can end.
  if (fired_ && !holds_window_of_all()) keep(value);
  const bool again = rule_.act == Act::skip;
  if (fired_ && !again) return std::nullopt;
  pending_.emplace_back(step, value);
  if (std::int64_t(pending_.size()) < rule_.for_steps) return std::nullopt;
  Alarm alarm;
  alarm.began = pending_.front().first;
  if (rule_.when == When::slope || rule_.when == When::sum_above)
    alarm.began -= std::int64_t(window_.size()) - 1;
  alarm.text = rule_.metric + format(" = %.6g ", value) + why;
  if (rule_.for_steps > 1) alarm.text += format(" for %d values", int(pending_.size()));
  if (again) return alarm;
  fired_ = true;
  if (!holds_window_of_all())
    for (const auto& held : pending_) keep(held.second);
  pending_.clear();
  return alarm;
}

}  // namespace capstan
