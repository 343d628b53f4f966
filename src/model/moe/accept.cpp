#include "model/moe/accept.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.hpp"

namespace capstan {

index_t capacity_rows(double factor, index_t rows, index_t parts) {
  const long double exact = static_cast<long double>(factor) *
                            static_cast<long double>(rows) /
                            static_cast<long double>(parts);
  const long double nearest = std::round(exact);
  // A double is off the decimal number by about 1e-16 of it.
  const bool whole = std::fabs(exact - nearest) <= 1e-14L * std::max(1.0L, exact);
  return std::max<index_t>(1, static_cast<index_t>(whole ? nearest : std::ceil(exact)));
}

double effective_factor(index_t capacity, index_t rows, index_t parts) {
  if (rows == 0) return 0;
  return static_cast<double>(capacity) * static_cast<double>(parts) /
         static_cast<double>(rows);
}

std::vector<std::int64_t> accept_cells(const std::vector<std::int64_t>& counts,
                                       index_t capacity) {
  std::vector<std::int64_t> accepted(counts);
  for (std::int64_t& n : accepted) n = std::min<std::int64_t>(n, capacity);
  return accepted;
}

std::vector<std::int64_t> wanted_rows(const Counts& counts) {
  std::vector<std::int64_t> wanted(counts.experts, 0);
  for (index_t s = 0; s < counts.senders; ++s)
    for (index_t e = 0; e < counts.experts; ++e) wanted[e] += counts.at(s, e);
  return wanted;
}

namespace {

/// The largest equal share of the senders' wants that fits, and one more for some.
void share_evenly(const Counts& counts, index_t expert, std::int64_t room,
                  Counts& accepted) {
  const index_t senders = counts.senders;
  std::vector<std::int64_t> wants(senders);
  for (index_t s = 0; s < senders; ++s) wants[s] = counts.at(s, expert);
  std::sort(wants.begin(), wants.end());
  std::int64_t level = 0, left = room;
  for (index_t i = 0; i < senders; ++i) {
    level = left / (senders - i);
    if (wants[i] > level) break;
    left -= wants[i];
  }
  std::int64_t given = 0;
  for (index_t s = 0; s < senders; ++s) {
    accepted.at(s, expert) = std::min(counts.at(s, expert), level);
    given += accepted.at(s, expert);
  }
  for (index_t i = 0; i < senders && given < room; ++i) {
    const index_t s = (expert + i) % senders;
    if (accepted.at(s, expert) == counts.at(s, expert)) continue;
    ++accepted.at(s, expert);
    ++given;
  }
}

}  // namespace

Counts share_rooms(const Counts& counts, const std::vector<std::int64_t>& room,
                   bool rotate) {
  Counts accepted = counts;
  std::vector<std::int64_t> left(room);
  // Row by row, as the matrix lies in memory.
  for (index_t s = 0; s < counts.senders; ++s) {
    for (index_t e = 0; e < counts.experts; ++e) {
      const std::int64_t n = std::min(counts.at(s, e), left[e]);
      accepted.at(s, e) = n;
      left[e] -= n;
    }
  }
  if (!rotate) return accepted;
  const std::vector<std::int64_t> wanted = wanted_rows(counts);
  for (index_t e = 0; e < counts.experts; ++e)
    if (room[e] < wanted[e]) share_evenly(counts, e, room[e], accepted);
  return accepted;
}

Counts accept_ragged(const Counts& counts, index_t chunks, index_t capacity,
                     DropPolicy policy) {
  std::vector<std::int64_t> room = wanted_rows(counts);
  const index_t per_chunk = counts.local() / chunks;
  for (index_t first = 0; first < counts.experts; first += per_chunk) {
    std::int64_t left = capacity;
    for (index_t e = first; e < first + per_chunk; ++e) {
      room[e] = std::min(left, room[e]);
      left -= room[e];
    }
  }
  return share_rooms(counts, room, policy == DropPolicy::rotate);
}

Counts accept_waterfill(const Counts& counts, index_t floor, DropPolicy policy) {
  std::vector<std::int64_t> room = wanted_rows(counts);
  const index_t local = counts.local();
  for (index_t first = 0; first < counts.experts; first += local) {
    std::int64_t slack = 0;
    for (index_t e = first; e < first + local; ++e)
      slack += std::max<std::int64_t>(0, floor - room[e]);
    for (index_t e = first; e < first + local; ++e) {
      const std::int64_t over = std::max<std::int64_t>(0, room[e] - floor);
      const std::int64_t extra = std::min(over, slack);
      slack -= extra;
      room[e] += extra - over;
    }
  }
  return share_rooms(counts, room, policy == DropPolicy::rotate);
}

Bank grant_bank(const std::vector<std::int32_t>& ids, const std::vector<index_t>& first,
                const std::vector<index_t>& pool, index_t local, index_t capacity) {
  Bank bank;
  const std::size_t senders = first.size();
  std::vector<std::int32_t> granted;  // arrived rows, in the order of their grants
  std::vector<index_t> rows(local, 0);
  bank.restore.assign(ids.size(), -1);
  const index_t longest = pool.empty() ? 0 : *std::max_element(pool.begin(), pool.end());
  for (index_t j = 0; j < longest; ++j) {
    for (std::size_t s = 0; s < senders; ++s) {
      if (j >= pool[s]) continue;
      const std::int32_t id = ids[first[s] + j];
      if (id == 0) continue;
      require(id > 0 && id <= local, "pooled_wave: a header names no local expert");
      if (rows[id - 1] >= capacity) {
        ++bank.dropped;
        continue;
      }
      ++rows[id - 1];
      granted.push_back(static_cast<std::int32_t>(first[s] + j));
    }
  }
  bank.offsets.assign(local + 1, 0);
  std::partial_sum(rows.begin(), rows.end(), bank.offsets.begin() + 1);
  std::vector<index_t> next(bank.offsets.begin(), bank.offsets.end() - 1);
  bank.arrange.resize(granted.size());
  for (const std::int32_t row : granted) {
    const index_t to = next[ids[row] - 1]++;
    bank.arrange[to] = row;
    bank.restore[row] = static_cast<std::int32_t>(to);
  }
  return bank;
}

}  // namespace capstan
