#include "base/timer.hpp"

#include "base/stream.hpp"

namespace capstan {

void Timers::stamp() {
  if (fence_at_edges) fence_compute();
  const auto now = Clock::now();
  const double flops = flops_counter != nullptr ? flops_counter() : 0;
  if (!stack_.empty()) {
    stack_.back()->seconds += std::chrono::duration<double>(now - last_).count();
    stack_.back()->flops += flops - last_flops_;
  }
  last_ = now;
  last_flops_ = flops;
}

void Timers::begin(const char* name) {
  stamp();
  Entry& entry = table_[name];
  ++entry.calls;
  stack_.push_back(&entry);
}

void Timers::end() {
  stamp();
  stack_.pop_back();
}

double Timers::wall() const {
  return std::chrono::duration<double>(Clock::now() - start_).count();
}

void Timers::reset() {
  for (auto& [name, entry] : table_) entry = Entry{};
  start_ = last_ = Clock::now();
}

}  // namespace capstan
