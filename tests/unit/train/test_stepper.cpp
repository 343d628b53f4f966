// Steps that are not finite: nothing moves, the tensors are named, training goes on or
// ends as the deck says.
#include <gtest/gtest.h>

#include <cmath>

#include "data/from_deck.hpp"
#include "train/stepper.hpp"
#include "train/tiny.hpp"
#include "unit/check.hpp"

using namespace capstan;
using namespace capstan::test;

namespace {

/// A run of the tiny deck on random tokens, without files.
struct Training {
  explicit Training(const std::vector<std::string>& more)
      : deck(make_deck(more, tokens)),
        ctx(0, true),
        sampler(sampler_spec(deck)),
        loader(sampler, loader_spec()),
        model(ModelShape::from_deck(deck), grid,
              deck.integer("batch/sequences") * deck.integer("model/seq_len"), ctx),
        optimizer(deck, model.params(), grid, ctx),
        state{model, optimizer},
        stepper(deck, grid, loader, state, ctx) {
    model.params().initialise(1);
    optimizer.start(ctx);
  }
  static Deck make_deck(const std::vector<std::string>& more,
                        const RandomTokens& tokens) {
    std::vector<std::string> keys = {"optimizer/kind=adam", "optimizer/weight_decay=0",
                                     "group1/match=*/w_*", "group1/kind=muonh"};
    keys.insert(keys.end(), more.begin(), more.end());
    const std::string file = std::string(CAPSTAN_SOURCE_DIR) + "/inputs/tests/tiny.deck";
    return tiny_deck(Deck::load({file}, keys), 1, tokens.prefix());
  }
  LoaderSpec loader_spec() const {
    LoaderSpec spec;
    spec.sequences = deck.integer("batch/sequences");
    return spec;
  }
  Values masters() const { return values(state.model.params().masters()); }
  Values moments() {
    Values all;
    for (auto& slot : optimizer.slots()) {
      const Values one = values(slot.first);
      all.insert(all.end(), one.begin(), one.end());
    }
    return all;
  }
  /// Sets an element of the head, and returns what it was.
  double poke(double value) {
    const auto head =
        model.params().part(model.params().masters(), model.params().slot("head/table"));
    double old = 0;
    copy_to_host<double>(head.data() + 7, &old, 1);
    copy_to_device<double>(&value, head.data() + 7, 1);
    return old;
  }

  RandomTokens tokens;
  Deck deck;
  Context ctx;
  Grid grid;
  Sampler sampler;
  Loader loader;
  Model<double> model;
  Optimizer<double> optimizer;
  TrainState<double> state;
  Stepper<double> stepper;
};

}  // namespace

TEST(NotFinite, StopsByDefaultAndNamesTheTensors) {
  Training run({});
  run.stepper.run();
  run.poke(NAN);
  const Values before = run.moments();
  try {
    run.stepper.run();
    FAIL() << "went on";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Exit::diverged);
    EXPECT_NE(std::string(error.what()).find(": embed/table "), std::string::npos)
        << error.what();
    EXPECT_NE(std::string(error.what()).find("step 2"), std::string::npos);
  }
  EXPECT_EQ(run.moments(), before);
}

TEST(NotFinite, SkipLeavesEverythingAndGoesOn) {
  Training run({"optimizer/non_finite=skip"});
  EXPECT_FALSE(run.stepper.run().skipped);
  const Values before = run.masters(), moments = run.moments();
  const double old = run.poke(INFINITY);
  const StepReport report = run.stepper.run();
  EXPECT_TRUE(report.skipped);
  EXPECT_NE(report.not_finite.find(": embed/table "), std::string::npos);
  EXPECT_EQ(
      report.router.load.size(),
      static_cast<std::size_t>(run.model.shape().layers * run.model.shape().experts));
  run.poke(old);
  EXPECT_EQ(run.masters(), before);
  EXPECT_EQ(run.moments(), moments);
  EXPECT_EQ(run.optimizer.updates(), 1);
  EXPECT_EQ(run.state.step, 2);  // its data is not seen again
  EXPECT_EQ(run.state.tokens, 2 * report.step_tokens);
  const StepReport next = run.stepper.run();
  EXPECT_FALSE(next.skipped);
  EXPECT_TRUE(std::isfinite(next.cross_entropy));
  EXPECT_NE(run.masters(), before);
}

TEST(NotFinite, TooManySkipsInARowStop) {
  Training run({"optimizer/non_finite=skip", "optimizer/max_skips=2"});
  const double old = run.poke(NAN);
  EXPECT_TRUE(run.stepper.run().skipped);
  run.poke(old);
  EXPECT_FALSE(run.stepper.run().skipped);  // the count starts again
  run.poke(NAN);
  EXPECT_TRUE(run.stepper.run().skipped);
  EXPECT_TRUE(run.stepper.run().skipped);
  EXPECT_THROW(run.stepper.run(), Error);
}

TEST(NotFinite, AGradientWhoseSquareOverflowsIsOne) {
  EXPECT_GT(std::numeric_limits<float>::max(),
            largest_gradient_norm<float>() * largest_gradient_norm<float>());
  EXPECT_GT(std::numeric_limits<double>::max(),
            largest_gradient_norm<double>() * largest_gradient_norm<double>());
}
