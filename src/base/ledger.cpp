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

void* Arena::take(const char* name, index_t bytes) {
  const index_t rounded = (std::max<index_t>(bytes, 1) + 255) / 256 * 256;
  while (slab_ < slabs_.size() &&
         used_ + rounded > static_cast<index_t>(slabs_[slab_].extent(0))) {
    ++slab_;
    used_ = 0;
  }
  if (slab_ == slabs_.size()) {
    const index_t size = std::max(rounded, slab_bytes_);
    slabs_.emplace_back(
        Kokkos::view_alloc(std::string("arena"), Kokkos::WithoutInitializing), size);
    used_ = 0;
  }
  void* p = slabs_[slab_].data() + used_;
  used_ += rounded;
  taken_.push_back({name, rounded});
  ledger_.add(name, rounded);
  return p;
}

void Arena::release(const Mark& m) {
  require(m.depth <= taken_.size(), "arena: marks released out of order");
  while (taken_.size() > m.depth) {
    ledger_.sub(taken_.back().name, taken_.back().bytes);
    taken_.pop_back();
  }
  slab_ = m.slab;
  used_ = m.used;
}

index_t Arena::capacity() const {
  index_t total = 0;
  for (const auto& slab : slabs_) total += static_cast<index_t>(slab.extent(0));
  return total;
}

}  // namespace capstan
