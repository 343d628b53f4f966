#pragma once
/// \file Named memory ledger and the arena of a training step.
#include <map>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/types.hpp"

namespace capstan {

/// Bytes of device memory by name: now, and each name's share at the moment of the
/// highest total.
class Ledger {
 public:
  void add(const std::string& name, index_t bytes);
  void sub(const std::string& name, index_t bytes);
  index_t now() const { return now_; }
  index_t peak() const { return peak_; }
  /// Bytes by name at the peak.
  std::map<std::string, index_t> at_peak() const;

 private:
  struct Entry {
    index_t now = 0, at_peak = 0;
  };
  void note_peak();
  std::map<std::string, Entry> entries_;
  index_t now_ = 0, peak_ = 0;
  bool at_peak_stale_ = false;
};

/// A zeroed View that lives as long as it is held; its bytes stay in the ledger under
/// `name`.
template <class T>
View1<T> make1(Ledger& ledger, const std::string& name, index_t n) {
  ledger.add(name, n * static_cast<index_t>(sizeof(T)));
  return View1<T>(name, n);
}
template <class T>
View2<T> make2(Ledger& ledger, const std::string& name, index_t n0, index_t n1) {
  ledger.add(name, n0 * n1 * static_cast<index_t>(sizeof(T)));
  return View2<T>(name, n0, n1);
}
template <class T>
View3<T> make3(Ledger& ledger, const std::string& name, index_t n0, index_t n1,
               index_t n2) {
  ledger.add(name, n0 * n1 * n2 * static_cast<index_t>(sizeof(T)));
  return View3<T>(name, n0, n1, n2);
}

/// Stack of temporary Views: forward pushes what backward needs, backward pops it, and
/// nothing is allocated once the first step has sized the slabs. Contents of a taken View
/// are undefined. It has lanes, each a stack of its own, for micro-batches whose passes
/// overlap; slabs that a lane has given back serve every lane.
class Arena {
 public:
  struct Mark {
    std::size_t lane = 0, slabs = 0;
    index_t used = 0;
    std::size_t depth = 0;
  };
  explicit Arena(Ledger& ledger, index_t slab_bytes = index_t(64) << 20)
      : ledger_(ledger), slab_bytes_(slab_bytes), lanes_(1) {}
  Arena(const Arena&) = delete;

  template <class T>
  View1<T> take1(const char* name, index_t n) {
    return View1<T>(static_cast<T*>(take(name, n * sizeof(T))), n);
  }
  template <class T>
  View2<T> take2(const char* name, index_t n0, index_t n1) {
    return View2<T>(static_cast<T*>(take(name, n0 * n1 * sizeof(T))), n0, n1);
  }
  template <class T>
  View3<T> take3(const char* name, index_t n0, index_t n1, index_t n2) {
    return View3<T>(static_cast<T*>(take(name, n0 * n1 * n2 * sizeof(T))), n0, n1, n2);
  }
  /// From here on Views are taken from this lane (0 at the start; made when new).
  void use_lane(std::size_t lane);
  std::size_t lane() const { return lane_; }
  /// Bytes that are taken from the current lane.
  index_t held() const { return lanes_[lane_].held; }
  /// Of the current lane.
  Mark mark() const;
  /// Gives back everything that was taken from the mark's lane after it. Marks of a lane
  /// are released in reverse order.
  void release(const Mark& m);
  /// Bytes of all slabs.
  index_t capacity() const;

 private:
  struct Taken {
    const char* name;
    index_t bytes;
  };
  struct Slab {
    View1<char> memory;
    bool free = false;
    index_t size() const { return static_cast<index_t>(memory.extent(0)); }
  };
  struct Lane {
    std::vector<std::size_t> slabs;
    index_t used = 0;  ///< bytes of the last of them
    index_t held = 0;
    std::vector<Taken> taken;
  };
  void* take(const char* name, index_t bytes);
  std::size_t find_slab(index_t bytes);
  Ledger& ledger_;
  index_t slab_bytes_;
  std::vector<Slab> slabs_;
  std::vector<Lane> lanes_;
  std::size_t lane_ = 0;
};

/// Gives back at the end of a block what was taken in it.
class ArenaScope {
 public:
  explicit ArenaScope(Arena& arena) : arena_(arena), mark_(arena.mark()) {}
  ~ArenaScope() { arena_.release(mark_); }
  ArenaScope(const ArenaScope&) = delete;

 private:
  Arena& arena_;
  Arena::Mark mark_;
};

}  // namespace capstan
