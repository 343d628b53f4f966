// Accept rules as pure functions: published capacities, oracles that hand out rows one by
// one, fairness over senders.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/error.hpp"
#include "base/rng.hpp"
#include "model/moe/accept.hpp"

namespace capstan {
namespace {

/// Counts of `tokens` assignments of each sender over unequal experts.
Counts random_counts(index_t senders, index_t receivers, index_t local, index_t tokens,
                     std::uint64_t seed) {
  const Rng rng(seed, 11);
  Counts c;
  c.senders = senders;
  c.receivers = receivers;
  c.experts = receivers * local;
  c.n.assign(senders * c.experts, 0);
  for (index_t i = 0; i < senders * tokens; ++i) {
    const std::uint64_t bits = rng.bits(static_cast<std::uint64_t>(i));
    const index_t a = static_cast<index_t>(bits % c.experts);
    const index_t b = static_cast<index_t>((bits >> 32) % c.experts);
    ++c.at(i / tokens, std::min(a, b));  // low experts are wanted more
  }
  return c;
}

std::int64_t sum(const Counts& c) {
  return std::accumulate(c.n.begin(), c.n.end(), std::int64_t(0));
}
std::int64_t sum_of_sender(const Counts& c, index_t s) {
  const auto first = c.n.begin() + s * c.experts;
  return std::accumulate(first, first + c.experts, std::int64_t(0));
}

TEST(Capacity, OfThePublishedShape) {
  // marin-community/marin#8435, #8348: 64 ranks of 65,536 tokens, 8 of 384 experts.
  const index_t wanted = 65536 * 8;
  EXPECT_EQ(capacity_rows(1.10, wanted, 64 * 3), 3004);
  EXPECT_EQ(capacity_rows(1.15, wanted, 64 * 3), 3141);
  EXPECT_EQ(capacity_rows(1.15, 64 * wanted, 384 * 3), 33497);
  EXPECT_EQ(capacity_rows(1.33, wanted, 384), 1816);
  EXPECT_EQ(header_rows(3004, 3072), 1);
  EXPECT_EQ(header_rows(3072, 3072), 1);
  EXPECT_EQ(header_rows(3141, 3072), 2);
}

TEST(Capacity, IsTheCeilingOfTheDecimalProduct) {
  EXPECT_EQ(capacity_rows(1.1, 10, 1), 11);  // 11.000000000000002 in doubles
  EXPECT_EQ(capacity_rows(1.1, 30, 3), 11);
  EXPECT_EQ(capacity_rows(1.15, 1000000000, 1), 1150000000);
  EXPECT_EQ(capacity_rows(1.25, 4, 1), 5);
  EXPECT_EQ(capacity_rows(1.0, 7, 2), 4);
  EXPECT_EQ(capacity_rows(1.0, 0, 5), 1);
  EXPECT_EQ(capacity_rows(0.01, 3, 64), 1);
  EXPECT_EQ(capacity_rows(1.15, std::int64_t(1) << 42, 1), 5057753487770);
  EXPECT_DOUBLE_EQ(effective_factor(4, 7, 2), 8.0 / 7.0);
  EXPECT_EQ(effective_factor(1, 0, 5), 0.0);
}

TEST(Accept, CountsBeyond32BitsStayRight) {
  const std::vector<std::int64_t> many = {6400000000, 3, 0};
  EXPECT_EQ(accept_cells(many, 5000000000),
            (std::vector<std::int64_t>{5000000000, 3, 0}));
  Counts c;
  c.senders = 2;
  c.experts = 2;
  c.receivers = 1;
  c.n = {3000000000, 1, 3400000000, 2};
  const Counts kept = accept_ragged(c, 1, 6000000000, DropPolicy::position);
  EXPECT_EQ(kept.n, (std::vector<std::int64_t>{3000000000, 0, 3000000000, 0}));
}

/// ragged, row by row: chunk, expert, sender, row.
Counts ragged_oracle(const Counts& c, index_t chunks, index_t capacity) {
  Counts kept = c;
  std::fill(kept.n.begin(), kept.n.end(), 0);
  for (index_t r = 0; r < c.receivers; ++r) {
    for (index_t chunk = 0; chunk < chunks; ++chunk) {
      index_t used = 0;
      for (index_t e = r * c.local(); e < (r + 1) * c.local(); ++e) {
        if ((e - r * c.local()) / (c.local() / chunks) != chunk) continue;
        for (index_t s = 0; s < c.senders; ++s) {
          for (std::int64_t row = 0; row < c.at(s, e); ++row) {
            if (used == capacity) break;
            ++used;
            ++kept.at(s, e);
          }
        }
      }
    }
  }
  return kept;
}

TEST(Accept, RaggedEqualsARowByRowOracle) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Counts c = random_counts(5, 3, 4, 37, seed);
    for (const index_t chunks : {1, 2, 4}) {
      for (const index_t capacity : {1, 7, 20, 60, 1000}) {
        EXPECT_EQ(accept_ragged(c, chunks, capacity, DropPolicy::position).n,
                  ragged_oracle(c, chunks, capacity).n);
        EXPECT_EQ(accept_ragged(c, chunks, capacity, DropPolicy::weight).n,
                  ragged_oracle(c, chunks, capacity).n);
      }
    }
  }
}

/// waterfill, row by row: every expert's floor first, then the rest of the bank in order.
Counts waterfill_oracle(const Counts& c, index_t floor) {
  Counts kept = c;
  std::fill(kept.n.begin(), kept.n.end(), 0);
  for (index_t r = 0; r < c.receivers; ++r) {
    std::vector<std::int64_t> rows(c.local());  // granted to each expert
    index_t used = 0;
    for (int pass = 0; pass < 2; ++pass) {
      for (index_t i = 0; i < c.local(); ++i) {
        std::int64_t wanted = 0;
        for (index_t s = 0; s < c.senders; ++s) wanted += c.at(s, r * c.local() + i);
        while (rows[i] < wanted && used < floor * c.local() &&
               (pass == 1 || rows[i] < floor)) {
          ++rows[i];
          ++used;
        }
      }
    }
    for (index_t i = 0; i < c.local(); ++i) {
      const index_t e = r * c.local() + i;
      for (index_t s = 0; s < c.senders; ++s) {
        for (; rows[i] > 0 && kept.at(s, e) < c.at(s, e); --rows[i]) ++kept.at(s, e);
      }
    }
  }
  return kept;
}

TEST(Accept, WaterfillEqualsARowByRowOracle) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Counts c = random_counts(4, 3, 5, 41, seed);
    for (const index_t floor : {1, 5, 11, 30, 500})
      EXPECT_EQ(accept_waterfill(c, floor, DropPolicy::position).n,
                waterfill_oracle(c, floor).n);
  }
}

TEST(Accept, WaterfillLendsRoomWithinAReceiverOnly) {
  Counts c;
  c.senders = 1;
  c.experts = 4;
  c.receivers = 2;
  c.n = {15, 2, 13, 13};
  // The first receiver's second expert lends 8 of its 10 rows, of which 5 are needed.
  EXPECT_EQ(accept_waterfill(c, 10, DropPolicy::position).n,
            (std::vector<std::int64_t>{15, 2, 10, 10}));
}

TEST(Accept, RotateKeepsAsManyAndIsEven) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Counts c = random_counts(7, 2, 4, 50, seed);
    for (const index_t capacity : {1, 9, 40, 90}) {
      const Counts even = accept_ragged(c, 2, capacity, DropPolicy::rotate);
      EXPECT_EQ(sum(even), sum(accept_ragged(c, 2, capacity, DropPolicy::position)));
      for (index_t e = 0; e < c.experts; ++e) {
        std::int64_t least = INT64_MAX, most = 0;  // of those that want more
        for (index_t s = 0; s < c.senders; ++s) {
          ASSERT_LE(even.at(s, e), c.at(s, e));
          if (even.at(s, e) < c.at(s, e)) {
            least = std::min(least, even.at(s, e));
            most = std::max(most, even.at(s, e));
          }
        }
        // Nobody who was cut has two fewer than another who was cut, and nobody has more
        // than one above those who were cut.
        if (least == INT64_MAX) continue;
        EXPECT_LE(most - least, 1);
        for (index_t s = 0; s < c.senders; ++s) EXPECT_LE(even.at(s, e), least + 1);
      }
    }
  }
}

/// Drops of each sender over many draws of equal loads.
std::vector<double> drops_by_sender(DropPolicy policy, bool waterfill) {
  std::vector<double> drops(8, 0.0);
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const Counts c = random_counts(8, 2, 4, 64, seed);
    const Counts kept =
        waterfill ? accept_waterfill(c, 64, policy) : accept_ragged(c, 2, 128, policy);
    for (index_t s = 0; s < 8; ++s)
      drops[s] += double(sum_of_sender(c, s) - sum_of_sender(kept, s));
  }
  return drops;
}

TEST(Accept, FirstSenderFirstFavoursThemAndRotateNobody) {
  for (const bool waterfill : {false, true}) {
    const auto ordered = drops_by_sender(DropPolicy::position, waterfill);
    const auto even = drops_by_sender(DropPolicy::rotate, waterfill);
    // The published bias: the last sender pays, here by more than three times the first.
    EXPECT_GT(ordered[7], 3 * ordered[0]);
    EXPECT_TRUE(std::is_sorted(ordered.begin(), ordered.end()));
    const double mean = std::accumulate(even.begin(), even.end(), 0.0) / 8;
    EXPECT_NEAR(mean, std::accumulate(ordered.begin(), ordered.end(), 0.0) / 8, 1e-9);
    for (const double d : even) EXPECT_NEAR(d, mean, 0.08 * mean);
  }
}

/// Pools of one wave of `senders` senders with random ids, a few slots unused.
struct Pools {
  std::vector<std::int32_t> ids;
  std::vector<index_t> first, pool;
};
Pools random_pools(index_t senders, index_t slots, index_t local, std::uint64_t seed,
                   bool equal) {
  const Rng rng(seed, 12);
  Pools p;
  for (index_t s = 0; s < senders; ++s) {
    p.first.push_back(static_cast<index_t>(p.ids.size()));
    p.pool.push_back(equal ? slots : slots - s % 3);
    for (index_t j = 0; j < p.pool.back() + 1; ++j) {  // and one header row
      const std::uint64_t bits = rng.bits(p.ids.size());
      const bool used = j < p.pool.back() && (equal || bits % 5 != 0);
      p.ids.push_back(used ? 1 + static_cast<std::int32_t>((bits >> 8) % local) : 0);
    }
  }
  return p;
}

TEST(Bank, IsGrantedSlotBySlotThenSenderBySender) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const index_t local = 3, capacity = 7;
    const Pools p = random_pools(5, 9, local, seed, false);
    const Bank bank = grant_bank(p.ids, p.first, p.pool, local, capacity);
    std::vector<index_t> rows(local, 0);
    std::vector<std::vector<std::int32_t>> of_expert(local);
    std::int64_t dropped = 0;
    for (index_t j = 0; j < 9; ++j) {
      for (index_t s = 0; s < 5; ++s) {
        const std::int32_t id = j < p.pool[s] ? p.ids[p.first[s] + j] : 0;
        if (id == 0) continue;
        if (rows[id - 1] < capacity) {
          ++rows[id - 1];
          of_expert[id - 1].push_back(static_cast<std::int32_t>(p.first[s] + j));
        } else {
          ++dropped;
        }
      }
    }
    EXPECT_EQ(bank.dropped, dropped);
    std::vector<std::int32_t> arrange;
    for (const auto& list : of_expert)
      arrange.insert(arrange.end(), list.begin(), list.end());
    EXPECT_EQ(bank.arrange, arrange);
    for (std::size_t row = 0; row < p.ids.size(); ++row) {
      const auto at = std::find(arrange.begin(), arrange.end(), std::int32_t(row));
      EXPECT_EQ(bank.restore[row], at == arrange.end() ? -1 : at - arrange.begin());
    }
    for (index_t e = 0; e < local; ++e)
      EXPECT_EQ(bank.offsets[e + 1] - bank.offsets[e], rows[e]);
  }
}

TEST(Bank, FavoursNoSender) {
  std::vector<double> drops(8, 0.0);
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const Pools p = random_pools(8, 480, 4, seed, true);
    const Bank bank = grant_bank(p.ids, p.first, p.pool, 4, 900);
    for (index_t s = 0; s < 8; ++s)
      for (index_t j = 0; j < 480; ++j)
        drops[s] += bank.restore[p.first[s] + j] < 0 ? 1 : 0;
  }
  const double mean = std::accumulate(drops.begin(), drops.end(), 0.0) / 8;
  for (const double d : drops) EXPECT_NEAR(d, mean, 0.06 * mean);
}

TEST(Bank, RefusesIdsOfNoExpert) {
  for (const std::int32_t id : {-1, 4})
    EXPECT_THROW(grant_bank({id}, {0}, {1}, 3, 5), Error);
  EXPECT_EQ(grant_bank({0, 0}, {0}, {2}, 3, 5).offsets.back(), 0);
}

TEST(Pool, PlacesGoRoundTheWaves) {
  EXPECT_EQ(pool_place(7, 3).wave, 1);
  EXPECT_EQ(pool_place(7, 3).slot, 2);
}

}  // namespace
}  // namespace capstan
