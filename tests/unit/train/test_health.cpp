// Rules on series of numbers whose verdict is known.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <limits>

#include "train/health.hpp"

namespace capstan {
namespace {

using When = HealthRule::When;
using Act = HealthRule::Act;

HealthRule rule(When when, double threshold, Act act = Act::warn) {
  HealthRule r;
  r.name = "health1";
  r.metric = "loss";
  r.when = when;
  r.threshold = threshold;
  r.act = act;
  return r;
}

/// Steps (from 1) at which the rule raises an alarm.
std::vector<int> alarms(RuleWatch& watch, const std::vector<double>& values,
                        int first = 1) {
  std::vector<int> steps;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const int step = first + int(i);
    if (watch.see(step, 10 * step, values[i])) steps.push_back(step);
  }
  return steps;
}

std::vector<int> alarms(const HealthRule& r, const std::vector<double>& values) {
  RuleWatch watch(r);
  return alarms(watch, values);
}

using Steps = std::vector<int>;

TEST(HealthRule, AboveFiresOnceUntilItHasBeenFalse) {
  EXPECT_EQ(alarms(rule(When::above, 2), {1, 2, 3, 4, 1, 5, 2.5}), (Steps{3, 6}));
  EXPECT_EQ(alarms(rule(When::below, 2), {3, 1, 1, 2, 1}), (Steps{2, 5}));
}

TEST(HealthRule, HoldsForSoManySteps) {
  HealthRule r = rule(When::above, 2);
  r.for_steps = 3;
  RuleWatch watch(r);
  std::optional<Alarm> alarm;
  for (int step = 1; step <= 6; ++step) {
    alarm = watch.see(step, step, step >= 4 || step == 2 ? 3.0 : 1.0);
    EXPECT_EQ(bool(alarm), step == 6) << step;
  }
  EXPECT_EQ(alarm->began, 4);
  EXPECT_NE(alarm->text.find("above 2 for 3 values"), std::string::npos) << alarm->text;
}

TEST(HealthRule, SkipFiresAtEveryStep) {
  EXPECT_EQ(alarms(rule(When::above, 2, Act::skip), {1, 3, 4, 1, 5}), (Steps{2, 3, 5}));
}

TEST(HealthRule, NotFiniteIsBeyondAndEntersNoWindow) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(alarms(rule(When::above, 2), {1, nan, 1, inf}), (Steps{2, 4}));
  EXPECT_EQ(alarms(rule(When::below, 2), {3, nan, 3}), Steps{});
  HealthRule z = rule(When::zscore, 3);
  z.window_steps = 4;
  EXPECT_EQ(alarms(z, {1, 2, 1, 2, nan, 1, 2, 1, 9}), (Steps{5, 9}));
}

TEST(HealthRule, LeastOfTheWindow) {
  HealthRule r = rule(When::above_least, 1);
  r.window_steps = 3;
  // 3.9 against 3; at the end the 3 has left the window.
  EXPECT_EQ(alarms(r, {5, 4, 3, 3.9, 4.1, 4, 4, 4, 4, 4, 4.9}), (Steps{5}));
}

TEST(HealthRule, DistanceFromTheMean) {
  HealthRule r = rule(When::zscore, 2);
  r.window_steps = 4;  // 0 and 2: mean 1, deviation 1
  EXPECT_EQ(alarms(r, {0, 2, 0, 9}), Steps{}) << "the window is not full";
  EXPECT_EQ(alarms(r, {0, 2, 0, 2, 2.9}), Steps{});
  EXPECT_EQ(alarms(r, {0, 2, 0, 2, 3.1}), (Steps{5}));
  EXPECT_EQ(alarms(r, {0, 2, 0, 2, -3.1}), Steps{}) << "it looks upwards";
  r.least_rise = 5;
  EXPECT_EQ(alarms(r, {0, 2, 0, 2, 3.1, 7}), (Steps{6}));
  r = rule(When::zscore, -2);
  r.window_steps = 4;
  EXPECT_EQ(alarms(r, {0, 2, 0, 2, -1.1}), (Steps{5}));
}

TEST(HealthRule, ASpikeDoesNotMoveItsOwnMeasure) {
  HealthRule r = rule(When::zscore, 3);
  r.window_steps = 4;
  r.for_steps = 3;
  EXPECT_EQ(alarms(r, {0, 2, 0, 2, 9, 9, 9}), (Steps{7}));
  EXPECT_EQ(alarms(r, {0, 2, 0, 2, 9, 9, 1, 9, 9, 9}), Steps{})
      << "two spikes of two have raised the deviation";
}

TEST(HealthRule, SlopeAndSum) {
  HealthRule r = rule(When::slope, 0.4);
  r.window_steps = 3;
  EXPECT_EQ(alarms(r, {5, 1, 1.3, 1.6, 2.1, 2.6}), (Steps{6}));  // (2.6 - 1.6) / 2 = 0.5
  r.threshold = -0.4;
  EXPECT_EQ(alarms(r, {1, 1, 0.9, 0.1, 0}), (Steps{4}));
  HealthRule sum = rule(When::sum_above, 2);
  sum.window_steps = 4;
  EXPECT_EQ(alarms(sum, {1, 0, 1, 1, 0, 0, 0, 0, 1, 1, 1}), (Steps{4, 11}));
}

TEST(HealthRule, NothingBeforeItsTokens) {
  HealthRule r = rule(When::above, 2);
  r.from_tokens = 30;  // 10 a step
  EXPECT_EQ(alarms(r, {9, 9, 9, 1, 9}), (Steps{3, 5}));
}

TEST(LadderBand, StraightBetweenRowsAndNothingOutside) {
  const LadderBand band = LadderBand::parse(
      "#band target=x\nfraction tokens loss low high\n0.5 100 3 2 4\n1 200 2.5 1 3\n",
      "b");
  EXPECT_FALSE(band.at(99));
  EXPECT_FALSE(band.at(201));
  EXPECT_DOUBLE_EQ(band.at(100)->first, 2);
  EXPECT_DOUBLE_EQ(band.at(150)->first, 1.5);
  EXPECT_DOUBLE_EQ(band.at(150)->second, 3.5);
  EXPECT_DOUBLE_EQ(band.at(200)->second, 3);
  EXPECT_THROW(LadderBand::parse("", "b"), Error);
  EXPECT_THROW(LadderBand::parse("0.5 100 3 4 2\n", "b"), Error);
  EXPECT_THROW(LadderBand::parse("0.5 100 3 2 4\n1 90 2 1 3\n", "b"), Error);
}

/// A deck of rules on a small run.
Deck deck_of(const std::string& rules) {
  return Deck::parse(
      "<model>\nhidden=8\nlayers=1\nheads=1\nhead_dim=8\nvocab=16\nseq_len=8\n"
      "<moe>\nexperts=2\ntop_k=1\nexpert_width=8\n<batch>\nsequences=1\n" +
          rules,
      "test");
}

const std::vector<std::string> kColumns = {"step", "tokens", "loss", "grad_norm", "mfu"};
const std::vector<std::string> kEarly = {"step", "tokens", "loss", "grad_norm"};

struct Watched {
  explicit Watched(const std::string& rules)
      : deck(deck_of(rules)), health(deck, kColumns, kEarly, world, log) {}
  HealthVerdict step(std::int64_t n, double loss, const double* eval = nullptr,
                     std::int64_t rollbacks = 0) {
    return health.after_step(n, 10 * n, {{"loss", "", "", false, loss, 0}}, eval,
                             rollbacks);
  }
  Comm world = Comm::self();
  Log log{0, true};
  Deck deck;
  Health health;
};

TEST(Health, UnknownMetricsAreListedWithTheNearest) {
  try {
    Watched watched(
        "<health1>\nmetric=grad_nrm\ncondition=above\n"
        "<health2>\nmetric=mfu\ncondition=below\naction=skip\n"
        "<health3>\nmetric=loss\ncondition=off_ladder\nband=/no/where\n"
        "<health4>\nmetric=eval_loss\ncondition=off_ladder\n");
    FAIL();
  } catch (const Error& error) {
    const std::string what = error.what();
    for (const char* part :
         {"health1/metric = grad_nrm", "nearest is grad_norm", "health2/metric = mfu",
          "known before the update", "health3/band", "health4/band"})
      EXPECT_NE(what.find(part), std::string::npos) << part << "\n" << what;
    EXPECT_EQ(error.code(), Exit::deck);
  }
}

TEST(Health, ActionsAndLimits) {
  Watched watched(
      "<health1>\nmetric=loss\ncondition=above\nthreshold=3\naction=rollback\n"
      "margin_steps=2\nlimit=2\n<health2>\nmetric=loss\ncondition=above\nthreshold=5\n"
      "action=stop\n<health3>\nmetric=loss\ncondition=below\nthreshold=1\n"
      "action=checkpoint\n<health4>\nmetric=eval_loss\ncondition=above_least\n");
  EXPECT_TRUE(watched.step(1, 0.5).checkpoint);
  HealthVerdict verdict = watched.step(7, 4, nullptr, 1);
  EXPECT_TRUE(verdict.roll_back && !verdict.stop && !verdict.checkpoint);
  EXPECT_EQ(verdict.before_step, 5);
  EXPECT_EQ(verdict.why, "health1: loss = 4 is above 3");
  EXPECT_FALSE(watched.step(8, 2).roll_back);
  verdict = watched.step(9, 4, nullptr, 2);  // the third would be one too many
  EXPECT_TRUE(verdict.stop && !verdict.roll_back);
  EXPECT_TRUE(watched.step(10, 6).stop);
  EXPECT_EQ(watched.health.take_events().size(), 4u);
  const double evals[] = {2, 1, 1.5};
  for (const double& eval : evals) watched.step(11, 2, &eval);
  const auto events = watched.health.take_events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].text,
            "health4: eval_loss = 1.5 is above the least of 2 values, 1, by more than 0; "
            "warn");
}

TEST(Health, SkipsInARowAreLimited) {
  Watched watched(
      "<health1>\nmetric=grad_norm\ncondition=above\nthreshold=3\n"
      "action=skip\nlimit=2\n");
  const auto see = [&](std::int64_t n, double norm) {
    return watched.health.before_update(n, n, {{"grad_norm", "", "", false, norm, 0}});
  };
  EXPECT_FALSE(see(1, 1).skip);
  for (int twice = 0; twice < 2; ++twice) {
    EXPECT_TRUE(see(2, 4).skip);
    EXPECT_TRUE(see(3, 4).skip);
    EXPECT_FALSE(see(4, 1).skip);
  }
  see(5, 4);
  see(6, 4);
  EXPECT_TRUE(see(7, 4).stop);
}

TEST(Health, ARestartHasTheSameWindows) {
  const std::string rules =
      "<health1>\nmetric=loss\ncondition=zscore\nthreshold=2\nwindow_steps=4\n"
      "for_steps=2\n<health2>\nmetric=eval_loss\ncondition=above_least\nthreshold=1\n";
  const std::string path = ::testing::TempDir() + "/capstan_health_history.txt";
  // Segment 2 replaces what came after step 4.
  std::ofstream(path) << "#segment step tokens loss mfu\n#start segment=1 start_step=0\n"
                      << "1 1 10 0 nan\n1 2 20 2 nan\n#eval step=2 tokens=20 loss=3\n"
                      << "1 3 30 0 nan\n1 4 40 2 nan\n1 5 50 9 nan\n1 6 60 9 nan\n"
                      << "#event step=6 tokens=60 kind=health text=x\n"
                      << "#segment step tokens grad_norm loss\n"
                      << "#start segment=2 start_step=4\n2 5 50 1 8\n2 6 60 1 0.5\n";
  Watched whole(rules), restarted(rules);
  const double losses[] = {0, 2, 0, 2, 8}, eval = 3, later = 4.5;
  for (int n = 1; n <= 5; ++n) whole.step(n, losses[n - 1], n == 2 ? &eval : nullptr);
  restarted.health.refill(path, 5);
  for (Watched* watched : {&whole, &restarted}) {
    watched->step(6, 8, &later);
    const auto events = watched->health.take_events();
    ASSERT_EQ(events.size(), 2u);
    EXPECT_EQ(
        events[0].text,
        "health1: loss = 8 is 7 from the mean 1 of 4 values, beyond 2 for 2 values; "
        "warn");
    EXPECT_EQ(events[0].step, 6);
  }
  std::remove(path.c_str());
}

}  // namespace
}  // namespace capstan
