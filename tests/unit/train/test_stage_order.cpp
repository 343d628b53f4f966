// The schedule alone: played on clocks, it finishes, keeps its promise of memory, and is
// idle as long as the formula says.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "train/stage_order.hpp"

using namespace capstan;

namespace {

/// What came of playing all stages, where a forward pass takes 1 and a backward pass 2.
struct Played {
  double end = 0;
  double busy = 0;                 ///< of one stage
  std::vector<index_t> in_flight;  ///< most at a time, of every stage
  bool stuck = false;
};

/// A pass starts when its stage is free and its message is there: activations of the
/// stage before, gradients of the stage behind.
Played play(index_t stages, index_t m) {
  std::vector<std::vector<StagePass>> order;
  for (index_t s = 0; s < stages; ++s)
    order.push_back(one_forward_one_backward(stages, s, m));
  constexpr double kNever = -1;
  const auto table = std::vector<std::vector<double>>(static_cast<std::size_t>(stages),
                                                      std::vector<double>(m, kNever));
  auto forward = table, backward = table;
  std::vector<std::size_t> next(static_cast<std::size_t>(stages), 0);
  std::vector<double> clock(static_cast<std::size_t>(stages), 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (index_t s = 0; s < stages; ++s) {
      if (next[s] == order[s].size()) continue;
      const StagePass work = order[s][next[s]];
      double ready = 0;
      if (work.forward && s > 0) ready = forward[s - 1][work.micro_batch];
      if (!work.forward)
        ready = s < stages - 1 ? backward[s + 1][work.micro_batch]
                               : forward[s][work.micro_batch];
      if (ready == kNever) continue;
      clock[s] = std::max(clock[s], ready) + (work.forward ? 1 : 2);
      (work.forward ? forward : backward)[s][work.micro_batch] = clock[s];
      ++next[s];
      moved = true;
    }
  }
  Played out;
  out.busy = 3.0 * double(m);
  for (index_t s = 0; s < stages; ++s) {
    out.stuck = out.stuck || next[s] < order[s].size();
    out.end = std::max(out.end, clock[s]);
    index_t now = 0, most = 0;
    for (const StagePass& work : order[s]) {
      now += work.forward ? 1 : -1;
      most = std::max(most, now);
    }
    out.in_flight.push_back(most);
  }
  return out;
}

}  // namespace

TEST(StageOrder, EveryPassOnceForwardFirstInOrder) {
  for (const index_t stages : {1, 2, 3, 4, 7})
    for (const index_t m : {1, 2, 4, 5, 12})
      for (index_t s = 0; s < stages; ++s) {
        index_t forward = 0, backward = 0;
        for (const StagePass& work : one_forward_one_backward(stages, s, m)) {
          EXPECT_EQ(work.micro_batch, work.forward ? forward++ : backward++);
          EXPECT_LE(backward, forward);
        }
        EXPECT_EQ(forward, m);
        EXPECT_EQ(backward, m);
      }
}

TEST(StageOrder, OneForwardOneBackwardWrittenOut) {
  std::string text;
  for (const StagePass& work : one_forward_one_backward(4, 1, 4))
    text += (work.forward ? " F" : " B") + std::to_string(work.micro_batch);
  EXPECT_EQ(text, " F0 F1 F2 B0 F3 B1 B2 B3");
}

TEST(StageOrder, HoldsWhatItPromises) {
  for (const index_t stages : {1, 2, 3, 4, 7})
    for (const index_t m : {1, 2, 4, 5, 12}) {
      const Played played = play(stages, m);
      EXPECT_FALSE(played.stuck) << stages << " " << m;
      for (index_t s = 0; s < stages; ++s) {
        EXPECT_EQ(played.in_flight[s], std::min(m, stages - s));
        EXPECT_EQ(played.in_flight[s], most_in_flight(stages, s, m));
      }
    }
}

TEST(StageOrder, IsIdleAsTheFormulaSays) {
  for (const index_t stages : {1, 2, 3, 4, 7})
    for (const index_t m : {1, 2, 4, 5, 12}) {
      const Played played = play(stages, m);
      EXPECT_NEAR(1 - played.busy / played.end, bubble_fraction(stages, m), 1e-12)
          << stages << " " << m;
    }
  EXPECT_EQ(bubble_fraction(1, 3), 0);
  EXPECT_EQ(bubble_fraction(4, 9), 0.25);
}
