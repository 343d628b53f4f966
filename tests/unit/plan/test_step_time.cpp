/// \file The step's time: counts by hand, and the published settings of the reference
/// run.
#include <gtest/gtest.h>

#include "plan/step_time.hpp"

namespace capstan {
namespace {

const std::string kInputs = std::string(CAPSTAN_SOURCE_DIR) + "/inputs/";

Deck stack(const std::vector<std::string>& names,
           const std::vector<std::string>& overrides = {}) {
  std::vector<std::string> paths;
  for (const auto& name : names) paths.push_back(kInputs + name);
  return Deck::load(paths, overrides);
}

double phase(const StepTime& time, const std::string& name) {
  for (const PhaseTime& p : time.phases)
    if (p.name == name) return p.seconds;
  return 0;
}

double tokens_per_second(const Deck& deck) {
  const Plan p = make_plan(deck);
  return double(p.tokens_per_step) / predict_step(deck, p).seconds();
}

const std::string kRack = "machines/gb200_nvl72.deck";

}  // namespace

TEST(StepTime, CountsOfTheLaunchByHand) {
  const Deck deck = stack({"535b.deck", kRack}, {"topology/storage_gbs=100"});
  const Plan p = make_plan(deck);
  const StepTime t = predict_step(deck, p);
  // 65,536 tokens, 8 choices, capacity 1.15, 63 of 64 leave, 3,072 bf16, 48 layers, six
  // journeys: there and back in forward, in its repetition, in backward.
  const double rows = 65536.0 * 8 * 1.15 * 63 / 64;
  EXPECT_NEAR(t.exchange_bytes, rows * 3072 * 2 * 48 * 6, 1e3);
  // Three waves: a third is not hidden.
  EXPECT_NEAR(phase(t, "exchange"), t.exchange_bytes / 3 / 900e9, 1e-9);
  EXPECT_NEAR(phase(t, "gemm"), p.issued.gemm() / (2.5e15 * 0.342), 1e-9);
  // Sums between 11 racks of an expert's rows and of a 64th of the rest, in float.
  const double experts = 384.0 * 48 * 3 * 3072 * 3072;
  const double all = double(p.parameters.total);
  EXPECT_NEAR(t.reduce_bytes / (2 * 10.0 / 11 * all / 64 * 4), 1, 1e-3);
  EXPECT_GT(all, experts);
  // Published without separate masters: 4.29 TB.
  EXPECT_NEAR(t.checkpoint_bytes / 4.29e12, 1, 0.005);
  EXPECT_NEAR(t.checkpoint_seconds, t.checkpoint_bytes / 100e9, 1e-6);
}

TEST(StepTime, PublishedSettings) {
  // The first is what gemm_efficiency was calibrated on; the others are predictions.
  EXPECT_NEAR(tokens_per_second(stack({"535b.deck", kRack})) / 2.51e6, 1, 0.01);
  const auto rack = [](const std::string& seq, const std::string& n) {
    return tokens_per_second(
        stack({"535b.deck", "535b/3_ragged_81716.deck", kRack},
              {"grid/data=1", "model/seq_len=" + seq, "batch/sequences=" + n}));
  };
  const double base = rack("4096", "1024");
  EXPECT_NEAR(rack("8192", "512") / base, 1 - 0.016, 0.01);
  EXPECT_NEAR(rack("16384", "256") / base, 1 - 0.031, 0.015);
}

TEST(StepTime, BubbleOfAPipeline) {
  const std::vector<std::string> keys = {"topology/peak_gflops=100",
                                         "topology/memory_gbs=20", "grid/expert=1",
                                         "grid/pipe=2", "grid/micro_batches=8"};
  const Deck deck = stack({"quickstart.deck"}, keys);
  const StepTime t = predict_step(deck, make_plan(deck));
  const double work = phase(t, "gemm") + phase(t, "attention") + phase(t, "elementwise");
  EXPECT_GT(work, 0);
  EXPECT_NEAR(phase(t, "bubble"), work / 8, 1e-12);
  EXPECT_EQ(t.exchange_bytes, 0);
}

TEST(StepTime, NothingIsSaidWithoutRates) {
  const Deck deck = stack({"quickstart.deck"});
  const Plan p = make_plan(deck);
  const StepTime t = predict_step(deck, p);
  EXPECT_TRUE(t.phases.empty());
  EXPECT_EQ(step_time_text(p, t).find("step_seconds"), std::string::npos);
}

TEST(Fit, RacksOfTheReferenceRun) {
  struct Case {
    const char *data, *micro, *largest;
  };
  // The global batch stays: fewer racks cut it into more micro-batches. One rack is
  // decided by the router logits of the whole step.
  for (const Case& c : {Case{"1", "22", "router_logits"},
                        {"2", "11", "gradients"},
                        {"4", "4", "gradients"},
                        {"11", "1", "carry"}}) {
    const Deck deck =
        stack({"535b.deck", kRack}, {std::string("grid/data=") + c.data,
                                     std::string("grid/micro_batches=") + c.micro});
    const Plan p = make_plan(deck);
    EXPECT_TRUE(p.fits()) << c.data;
    const std::string text = plan_text(deck, p);
    EXPECT_NE(text.find(std::string("largest=") + c.largest), std::string::npos)
        << c.data << " racks: " << text.substr(0, 2000);
  }
  const Plan tight =
      make_plan(stack({"535b.deck", kRack}, {"memory/optimizer=replicated", "grid/data=1",
                                             "grid/micro_batches=11"}));
  EXPECT_FALSE(tight.fits());
}

}  // namespace capstan
