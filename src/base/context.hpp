#pragma once
/// \file What the parts of a run share: passed by reference, never global.
#include "base/ledger.hpp"
#include "base/log.hpp"
#include "base/timer.hpp"

namespace capstan {

struct Context {
  explicit Context(int rank = 0, bool quiet = false) : log(rank, quiet), arena(ledger) {}
  Log log;
  Ledger ledger;
  Timers timers;
  Arena arena;
};

}  // namespace capstan
