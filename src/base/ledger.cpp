#include "base/ledger.hpp"

#include <algorithm>

namespace capstan {

void Ledger::add(const std::string& name, index_t bytes) {
  // At a falling edge the shares of the last peak are frozen before anything changes.
  entries_[name].now += bytes;
  now_ += bytes;
  if (now_ > peak_) {
    peak_ = now_;
    at_peak_stale_ = true;
  }
}

void Ledger::sub(const std::string& name, index_t bytes) {
  if (at_peak_stale_) note_peak();
  Entry& entry = entries_[name];
  require(bytes <= entry.now, "ledger: more bytes given back than were taken");
  entry.now -= bytes;
  now_ -= bytes;
}

void Ledger::note_peak() {
  for (auto& [name, entry] : entries_) entry.at_peak = entry.now;
  at_peak_stale_ = false;
}

std::map<std::string, index_t> Ledger::at_peak() const {
  std::map<std::string, index_t> out;
  for (const auto& [name, entry] : entries_) {
    const index_t bytes = at_peak_stale_ ? entry.now : entry.at_peak;
    if (bytes > 0) out[name] = bytes;
  }
  return out;
}

/// The first free slab that is large enough, so that equal steps find equal slabs; else a
/// new one.
std::size_t Arena::find_slab(index_t bytes) {
  for (std::size_t i = 0; i < slabs_.size(); ++i)
    if (slabs_[i].free && slabs_[i].size() >= bytes) return i;
  Slab slab;
  slab.memory =
      View1<char>(Kokkos::view_alloc(std::string("arena"), Kokkos::WithoutInitializing),
                  std::max(bytes, slab_bytes_));
  slabs_.push_back(slab);
  return slabs_.size() - 1;
}

void* Arena::take(const char* name, index_t bytes) {
  const index_t rounded = (std::max<index_t>(bytes, 1) + 255) / 256 * 256;
  Lane& lane = lanes_[lane_];
  if (lane.slabs.empty() || lane.used + rounded > slabs_[lane.slabs.back()].size()) {
    const std::size_t slab = find_slab(rounded);
    slabs_[slab].free = false;
    lane.slabs.push_back(slab);
    lane.used = 0;
  }
  void* p = slabs_[lane.slabs.back()].memory.data() + lane.used;
  lane.used += rounded;
  lane.held += rounded;
  lane.taken.push_back({name, rounded});
  ledger_.add(name, rounded);
  return p;
}

void Arena::use_lane(std::size_t lane) {
  if (lane >= lanes_.size()) lanes_.resize(lane + 1);
  lane_ = lane;
}

Arena::Mark Arena::mark() const {
  const Lane& lane = lanes_[lane_];
  return {lane_, lane.slabs.size(), lane.used, lane.taken.size()};
}

void Arena::release(const Mark& m) {
  Lane& lane = lanes_.at(m.lane);
  require(m.depth <= lane.taken.size(), "arena: marks released out of order");
  while (lane.taken.size() > m.depth) {
    ledger_.sub(lane.taken.back().name, lane.taken.back().bytes);
    lane.held -= lane.taken.back().bytes;
    lane.taken.pop_back();
  }
  while (lane.slabs.size() > m.slabs) {
    slabs_[lane.slabs.back()].free = true;
    lane.slabs.pop_back();
  }
  lane.used = m.used;
}

index_t Arena::capacity() const {
  index_t total = 0;
  for (const Slab& slab : slabs_) total += slab.size();
  return total;
}

}  // namespace capstan
