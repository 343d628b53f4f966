// The memory ledger and the arena.
#include <gtest/gtest.h>

#include "base/ledger.hpp"

namespace capstan {
namespace {

using Shares = std::map<std::string, index_t>;

TEST(Ledger, CountsNowAndPeakWithSharesByName) {
  Ledger ledger;
  ledger.add("weights", 100);
  ledger.add("scores", 50);
  ledger.sub("scores", 50);
  ledger.add("logits", 30);  // below the peak: shares of the peak stay
  EXPECT_EQ(ledger.now(), 130);
  EXPECT_EQ(ledger.peak(), 150);
  EXPECT_EQ(ledger.at_peak(), (Shares{{"weights", 100}, {"scores", 50}}));
  ledger.add("logits", 40);
  EXPECT_EQ(ledger.peak(), 170);
  EXPECT_EQ(ledger.at_peak(), (Shares{{"weights", 100}, {"logits", 70}}));
}

TEST(Ledger, SharesAddUpToThePeak) {
  Ledger ledger;
  const char* names[] = {"a", "b", "c"};
  for (int i = 0; i < 50; ++i) {
    ledger.add(names[i % 3], 10 + i * 7 % 11);
    if (i % 4 == 3) ledger.sub(names[i % 3], 10);
    index_t sum = 0;
    for (const auto& [name, bytes] : ledger.at_peak()) sum += bytes;
    ASSERT_EQ(sum, ledger.peak()) << "after " << i;
  }
}

TEST(Ledger, GivingBackMoreThanTakenIsAnError) {
  Ledger ledger;
  ledger.add("a", 10);
  EXPECT_THROW(ledger.sub("a", 11), Error);
  EXPECT_THROW(ledger.sub("unknown", 1), Error);
}

TEST(Ledger, MakesZeroedViewsThatItCounts) {
  Ledger ledger;
  const auto v = make2<float>(ledger, "w", 3, 5);
  EXPECT_EQ(ledger.now(), 60);
  for (const float x : to_host<float>(flat(v))) EXPECT_EQ(x, 0);
}

TEST(Arena, TakenViewsDoNotOverlapAndAreAligned) {
  Ledger ledger;
  Arena arena(ledger, 4096);
  const auto a = arena.take1<float>("a", 3);
  const auto b = arena.take2<double>("b", 2, 5);
  const auto c = arena.take3<std::int32_t>("c", 2, 2, 2);
  const auto at = [](const auto& v) {
    return reinterpret_cast<std::uintptr_t>(v.data());
  };
  for (const std::uintptr_t p : {at(a), at(b), at(c)}) EXPECT_EQ(p % 64, 0u);
  EXPECT_GE(at(b), at(a) + 12);
  EXPECT_GE(at(c), at(b) + 80);
  EXPECT_EQ(b.extent(1), 5u);
  EXPECT_EQ(c.size(), 8u);
}

TEST(Arena, ReleaseGivesBackInReverseOrder) {
  Ledger ledger;
  Arena arena(ledger, 4096);
  const auto first = arena.take1<char>("keep", 100);
  const Arena::Mark mark = arena.mark();
  const auto second = arena.take1<char>("drop", 100);
  {
    ArenaScope scope(arena);
    arena.take1<char>("inner", 1000);
    EXPECT_EQ(ledger.now(), 256 + 256 + 1024);
  }
  EXPECT_EQ(ledger.now(), 512);
  arena.release(mark);
  EXPECT_EQ(ledger.now(), 256);
  const auto again = arena.take1<char>("again", 10);
  EXPECT_EQ(again.data(), second.data());
  EXPECT_NE(again.data(), first.data());
  EXPECT_EQ(ledger.at_peak(), (Shares{{"keep", 256}, {"drop", 256}, {"inner", 1024}}));
}

TEST(Arena, MarksReleasedOutOfOrderAreAnError) {
  Ledger ledger;
  Arena arena(ledger, 4096);
  const Arena::Mark outer = arena.mark();
  arena.take1<char>("a", 1);
  const Arena::Mark inner = arena.mark();
  arena.release(outer);
  EXPECT_THROW(arena.release(inner), Error);
}

TEST(Arena, GrowsBySlabsAndKeepsWhatWasTaken) {
  Ledger ledger;
  Arena arena(ledger, 1024);
  const auto small = arena.take1<float>("small", 10);
  fill(small, 3.0f);
  EXPECT_EQ(arena.capacity(), 1024);
  const auto large = arena.take1<float>("large", 1000);  // more than a slab
  fill(large, 1.0f);
  EXPECT_EQ(arena.capacity(), 1024 + 4096);
  for (const float x : to_host<float>(small)) EXPECT_EQ(x, 3.0f);
}

TEST(Arena, TakesNoMemoryAfterTheFirstPass) {
  Ledger ledger;
  Arena arena(ledger, 1024);
  std::vector<void*> first, later;
  index_t capacity = 0;
  for (int pass = 0; pass < 4; ++pass) {
    std::vector<void*>& places = pass == 0 ? first : later;
    places.clear();
    ArenaScope scope(arena);
    for (const index_t n : {700, 300, 900, 10, 5000, 200, 1}) {
      places.push_back(arena.take1<char>("a", n).data());
      ArenaScope inner(arena);
      places.push_back(arena.take1<char>("b", n / 2).data());
    }
    if (pass == 0) {
      capacity = arena.capacity();
    } else {
      EXPECT_EQ(arena.capacity(), capacity);
      EXPECT_EQ(later, first);
    }
  }
  EXPECT_EQ(ledger.now(), 0);
}

TEST(Arena, LanesAreStacksOfTheirOwn) {
  Ledger ledger;
  Arena arena(ledger, 1024);
  arena.use_lane(1);
  const auto one = arena.take1<float>("one", 100);
  fill(one, 1.0f);
  arena.use_lane(2);
  const Arena::Mark second = arena.mark();
  fill(arena.take1<float>("two", 100), 2.0f);
  arena.use_lane(1);
  const Arena::Mark above = arena.mark();
  fill(arena.take1<float>("three", 50), 3.0f);
  EXPECT_EQ(arena.held(), 512 + 256);
  arena.release(second);  // first in, first out: another lane's
  EXPECT_EQ(arena.held(), 512 + 256);
  arena.release(above);
  EXPECT_EQ(ledger.now(), 512);
  for (const float x : to_host<float>(one)) EXPECT_EQ(x, 1.0f);
}

TEST(Arena, LanesShareTheSlabsThatAreFree) {
  Ledger ledger;
  Arena arena(ledger, 1024);
  // Ten micro-batches, at most three in flight, each with scratch on top of what it
  // keeps: as much memory as three that keep and one that works.
  std::vector<Arena::Mark> flying(3);
  for (int i = 0; i < 10; ++i) {
    arena.use_lane(i % 3);
    if (i >= 3) arena.release(flying[i % 3]);
    flying[i % 3] = arena.mark();
    arena.take1<char>("kept", 900);
    const ArenaScope scope(arena);
    for (int scratch = 0; scratch < 4; ++scratch) arena.take1<char>("scratch", 900);
  }
  EXPECT_EQ(arena.capacity(), (3 + 4) * 1024);
  EXPECT_EQ(ledger.peak(), (3 + 4) * 1024);
}

}  // namespace
}  // namespace capstan
