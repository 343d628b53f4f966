// Learning-rate schedules at their corners, and the published rate of a step.
#include <gtest/gtest.h>

#include <cmath>

#include "deck/scale.hpp"
#include "optim/schedule.hpp"

using namespace capstan;

namespace {

Schedule schedule(Schedule::Shape shape, std::int64_t tokens = 1000) {
  Schedule s;
  s.shape = shape;
  s.tokens = tokens;
  s.warmup_fraction = 0.1;
  s.final_fraction = 0.2;
  return s;
}

TEST(Schedule, LinearHasItsCorners) {
  const Schedule s = schedule(Schedule::Shape::linear);
  EXPECT_DOUBLE_EQ(s.factor(1), 0.01);  // step 1 is not 0
  EXPECT_DOUBLE_EQ(s.factor(50), 0.5);
  EXPECT_DOUBLE_EQ(s.factor(100), 1);
  EXPECT_DOUBLE_EQ(s.factor(550), 0.6);
  EXPECT_DOUBLE_EQ(s.factor(1000), 0.2);
  EXPECT_DOUBLE_EQ(s.factor(5000), 0.2);
}

TEST(Schedule, CosineIsHalfWayInTheMiddle) {
  const Schedule s = schedule(Schedule::Shape::cosine);
  EXPECT_DOUBLE_EQ(s.factor(50), 0.5);
  EXPECT_DOUBLE_EQ(s.factor(100), 1);
  EXPECT_NEAR(s.factor(550), 0.6, 1e-12);
  EXPECT_NEAR(s.factor(325), 0.2 + 0.4 * (1 + std::sqrt(0.5)), 1e-12);
  EXPECT_NEAR(s.factor(999), 0.2, 1e-5);
  EXPECT_DOUBLE_EQ(s.factor(1000), 0.2);
}

TEST(Schedule, WsdStaysThenDecays) {
  Schedule s = schedule(Schedule::Shape::wsd);
  s.decay_fraction = 0.25;
  EXPECT_DOUBLE_EQ(s.factor(50), 0.5);
  EXPECT_DOUBLE_EQ(s.factor(400), 1);
  EXPECT_DOUBLE_EQ(s.factor(750), 1);
  EXPECT_DOUBLE_EQ(s.factor(875), 0.6);
  EXPECT_DOUBLE_EQ(s.factor(1000), 0.2);
  s.decay_fraction = 1;  // decays from the end of the warm-up on
  EXPECT_DOUBLE_EQ(s.factor(550), 0.6);
}

TEST(Schedule, ConstantOnlyWarmsUp) {
  const Schedule s = schedule(Schedule::Shape::constant);
  EXPECT_DOUBLE_EQ(s.factor(50), 0.5);
  EXPECT_DOUBLE_EQ(s.factor(600), 1);
  EXPECT_DOUBLE_EQ(s.factor(2000), 1);
  EXPECT_DOUBLE_EQ(schedule(Schedule::Shape::linear, 0).factor(7), 1);
}

TEST(Schedule, AReaimedDecayIsUnchangedBeforeAndEndsAtTheNewEnd) {
  for (const auto shape :
       {Schedule::Shape::linear, Schedule::Shape::cosine, Schedule::Shape::wsd}) {
    const Schedule before = schedule(shape, 1000);
    Schedule after = schedule(shape, 750);
    after.reaim_from = 500;
    after.planned = 1000;
    for (const std::int64_t seen : {1, 60, 100, 300, 500})
      EXPECT_DOUBLE_EQ(after.factor(seen), before.factor(seen)) << seen;
    const double from = before.factor(500);
    EXPECT_DOUBLE_EQ(after.factor(625), (from + 0.2) / 2);
    EXPECT_DOUBLE_EQ(after.factor(750), 0.2);
    EXPECT_LT(std::fabs(after.factor(501) / before.factor(501) - 1), 0.01);
  }
}

TEST(Schedule, ReadsTheDeck) {
  const Deck deck = Deck::load(
      {std::string(CAPSTAN_SOURCE_DIR) + "/inputs/535b.deck"},
      {"schedule/shape=wsd", "schedule/decay_fraction=0.5", "schedule/tokens=13e12",
       "schedule/reaim_from_tokens=9e12", "schedule/planned_tokens=18e12"});
  const Schedule s = Schedule::from_deck(deck);
  EXPECT_EQ(s.shape, Schedule::Shape::wsd);
  EXPECT_EQ(s.tokens, 13000000000000);
  EXPECT_EQ(s.reaim_from, 9000000000000);
  EXPECT_EQ(s.planned, 18000000000000);
  EXPECT_EQ(s.decay_fraction, 0.5);
}

TEST(Schedule, ThePublishedRateOfAStep) {
  // marin-community/marin#8435: step 58,020 of 390,251 was logged with 0.0028526.
  const std::int64_t per_step = 11264 * 4096;
  Schedule s;
  s.tokens = 390251 * per_step;
  const double peak = published_muonh_rate(
      published_adam_rate(double(s.tokens), 6144, double(per_step)), 0.05);
  EXPECT_NEAR(peak * s.factor(58020 * per_step), 0.0028526, 5e-8);
  EXPECT_EQ(std::floor(0.01 * 390251), 3902);
}

}  // namespace
