#pragma once
/// \file Timer regions: seconds by name, exclusive of inner regions, so that they add up
/// to the wall time and what is left is "unaccounted".
#include <chrono>
#include <map>
#include <string>
#include <vector>

namespace capstan {

class Timers {
 public:
  struct Entry {
    double seconds = 0;
    long calls = 0;
    double flops = 0;  ///< operations issued inside the region
  };
  /// Stops the running region (if any) and starts `name`; end() goes back to it. On a GPU
  /// the caller sets fence_at_edges so that a region holds the kernels that it launched.
  void begin(const char* name);
  void end();
  /// Exclusive seconds by region since construction or the last reset().
  const std::map<std::string, Entry>& table() const { return table_; }
  /// Wall seconds since construction or the last reset().
  double wall() const;
  void reset();
  bool fence_at_edges = false;
  /// Counter of operations issued so far by the process; what it gains inside a region is
  /// the region's. nullptr = operations are not counted.
  double (*flops_counter)() = nullptr;
  /// Adds operations that the counter does not see (attention tiles) to the running
  /// region.
  void add_flops(double flops) {
    if (!stack_.empty()) stack_.back()->flops += flops;
  }

 private:
  using Clock = std::chrono::steady_clock;
  void stamp();
  std::map<std::string, Entry> table_;
  std::vector<Entry*> stack_;
  double last_flops_ = 0;
  Clock::time_point last_ = Clock::now(), start_ = Clock::now();
};

/// Times the enclosing block as a region.
class Region {
 public:
  Region(Timers& timers, const char* name) : timers_(timers) { timers_.begin(name); }
  ~Region() { timers_.end(); }
  Region(const Region&) = delete;

 private:
  Timers& timers_;
};

}  // namespace capstan
