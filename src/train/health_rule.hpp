#pragma once
/// \file One rule that watches a series of numbers: when it fires. What is done then, and
/// where the numbers come from, is in train/health.hpp.
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "deck/deck.hpp"

namespace capstan {

/// The band of a ladder: between rows a straight line in tokens.
class LadderBand {
 public:
  /// Reads what postprocess/ladder.py wrote. Error(Exit::file).
  static LadderBand read(const std::string& path);
  /// From text of that form (`name` for messages).
  static LadderBand parse(const std::string& text, const std::string& name);
  /// (low, high) after `tokens`; nothing before the first row and after the last.
  std::optional<std::pair<double, double>> at(double tokens) const;

 private:
  struct Row {
    double tokens, low, high;
  };
  std::vector<Row> rows_;  ///< tokens ascend
};

struct HealthRule {
  enum class When { above, below, above_least, zscore, slope, sum_above, off_ladder };
  enum class Act { warn, checkpoint, skip, rollback, stop };
  std::string name;  ///< health3
  std::string metric;
  When when = When::above;
  Act act = Act::warn;
  double threshold = 0, least_rise = 0;
  std::int64_t window_steps = 100, for_steps = 1, from_tokens = 0;
  std::int64_t margin_steps = 0, limit = 3;
  double rate_factor = 1;
  std::string band;
};

/// The rules of a deck, in the order of their numbers.
std::vector<HealthRule> health_rules(const Deck& deck);

/// A firing: `began` is the first step of the trouble.
struct Alarm {
  std::int64_t began = 0;
  std::string text;  ///< "grad_norm = 3.2 is above 2"
};

/// The state of one rule. A pure function of the values shown to it, in their order.
class RuleWatch {
 public:
  explicit RuleWatch(HealthRule rule);
  /// One value, after step `step` which ends at `tokens`; the alarm that it raises.
  /// HealthRule::Act::skip raises one for every value beyond the condition, the others
  /// for the first after for_steps in a row.
  std::optional<Alarm> see(std::int64_t step, std::int64_t tokens, double value);
  const HealthRule& rule() const { return rule_; }

 private:
  /// Why the value is beyond the condition; "" when it is not.
  std::string beyond(std::int64_t tokens, double value) const;
  std::string beyond_mean(double value) const;
  std::string beyond_slope() const;
  bool holds_window_of_all() const;
  void keep(double value);

  HealthRule rule_;
  LadderBand band_;
  std::deque<double> window_;
  std::vector<std::pair<std::int64_t, double>> pending_;  ///< (step, value) in a row
  bool fired_ = false;  ///< and the condition has not been false since
};

}  // namespace capstan
