#pragma once
/// \file Who is kept when there is not room for all: capacities and accept rules, as pure
/// functions of counts and ids. The transports call them for one rank, a rehearsal for
/// all ranks of a big grid in one process. Rules after marin-community/marin#8435, #7780,
/// #8348, #9043 and #8311.
#include <cstdint>
#include <vector>

namespace capstan {

using index_t = std::int64_t;

/// How assignments reach their experts.
enum class Transport {
  reference,
  cells,
  spill,
  pooled_wave,
  ragged,
  waterfill,
  dropless
};

/// Which assignments are kept where a sender must choose: the first in token order, or
/// those of largest combine weight. `rotate` keeps the first in token order and has
/// receivers share out their room evenly over senders, where they would serve the first
/// senders first.
enum class DropPolicy { position, weight, rotate };

struct TransportSpec {
  Transport kind = Transport::dropless;
  double capacity_send = 1.15, capacity_receive = 1.15;  ///< multiples of the mean load
  index_t waves = 1;
  DropPolicy policy = DropPolicy::position;
  bool drops() const {
    return kind != Transport::dropless && kind != Transport::reference;
  }
};

/// Choices after the top K on which `spill` retries a dropped assignment.
inline constexpr index_t kSpillChoices = 3;
/// Local experts whose number + 1 a bf16 header of `pooled_wave` holds exactly.
inline constexpr index_t kMaxHeaderExperts = 256;

/// The ceiling of factor * rows / parts, at least 1. The factor is taken as the decimal
/// number that was written: 1.1 of 10 rows is 11, not 12.
index_t capacity_rows(double factor, index_t rows, index_t parts);
/// The factor that the rounding really gave: capacity * parts / rows (0 without rows).
double effective_factor(index_t capacity, index_t rows, index_t parts);

/// Matrices of counts are [senders, experts], row-major; expert e lives on receiver
/// e div (experts / receivers).
struct Counts {
  index_t senders = 1, experts = 1, receivers = 1;
  std::vector<std::int64_t> n;
  std::int64_t at(index_t s, index_t e) const { return n[s * experts + e]; }
  std::int64_t& at(index_t s, index_t e) { return n[s * experts + e]; }
  index_t local() const { return experts / receivers; }
};

/// `cells`: each count, at most `capacity`. Works on one row as on many.
std::vector<std::int64_t> accept_cells(const std::vector<std::int64_t>& counts,
                                       index_t capacity);

/// Rows wanted of each expert, by all senders.
std::vector<std::int64_t> wanted_rows(const Counts& counts);
/// Shares room[e] rows of each expert e out over the senders that want them:
/// first-sender- first, or (rotate) evenly, what does not divide going to one sender
/// after the other from sender e mod senders on.
Counts share_rooms(const Counts& counts, const std::vector<std::int64_t>& room,
                   bool rotate);

/// `ragged`: the experts of a receiver come in `chunks` equal parts, each with `capacity`
/// rows: granted to the chunk's experts in order until they are used up, within an expert
/// by share_rooms.
Counts accept_ragged(const Counts& counts, index_t chunks, index_t capacity,
                     DropPolicy policy);

/// `waterfill`: each expert has `floor` rows; what its receiver's other experts leave of
/// theirs goes to its overflowing ones in order, as far as it reaches.
Counts accept_waterfill(const Counts& counts, index_t floor, DropPolicy policy);

/// `pooled_wave` at the sender: assignment r (in token order) of a pool goes to this
/// place.
struct PoolPlace {
  index_t wave, slot;
};
inline PoolPlace pool_place(index_t r, index_t waves) {
  return {r % waves, r / waves};
}
/// Full-width rows that hold the ids of a pool.
inline index_t header_rows(index_t pool, index_t width) {
  return (pool + width - 1) / width;
}

/// `pooled_wave` at the receiver: which pool slots of one wave get rows of the experts.
struct Bank {
  std::vector<std::int32_t> arrange;  ///< arrived row of each row in expert order
  std::vector<std::int32_t> restore;  ///< its inverse; -1 = unused or dropped
  std::vector<index_t> offsets;       ///< [local + 1] rows of each local expert
  std::int64_t dropped = 0;
};
/// Sender s's pool lies at arrived rows first[s] .. first[s] + pool[s] - 1; ids [arrived]
/// = local expert + 1, 0 = unused. Each expert has `capacity` rows; pool slot 0 of every
/// sender is served first, then slot 1, and so on. Error(Exit::internal) for an id that
/// no local expert has.
Bank grant_bank(const std::vector<std::int32_t>& ids, const std::vector<index_t>& first,
                const std::vector<index_t>& pool, index_t local, index_t capacity);

}  // namespace capstan
