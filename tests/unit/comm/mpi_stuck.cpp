// A rank that stops: what check_stuck.py runs. Disabled, because it ends the program.
#include <gtest/gtest.h>

#include <csignal>

#include "comm/comm.hpp"
#include "unit/check.hpp"

using namespace capstan;

namespace {

TEST(DISABLED_Stuck, Exchange) {
  const Comm world = Comm::world();
  world.watch(1.0);
  const Comm group = world.split(0, -world.rank());  // inherits, in another order
  group.barrier();
  if (world.rank() == 1) std::raise(SIGSTOP);
  const std::vector<index_t> rows(group.size(), 3);
  View1<double> send("send", 3 * group.size()), receive("receive", 3 * group.size());
  group.all_to_all_v<double>(send.data(), rows, receive.data(), rows, 1).wait();
}

TEST(DISABLED_Stuck, Sum) {
  const Comm world = Comm::world();
  world.watch(1.0);
  if (world.rank() == 1) std::raise(SIGSTOP);
  world.all_reduce_value(std::int64_t(1), Reduce::sum);
}

TEST(DISABLED_Stuck, SlowIsNotStuck) {
  const Comm world = Comm::world();
  world.watch(20.0);
  if (world.rank() == 1) raise(SIGSTOP);  // check_stuck.py wakes it
  EXPECT_EQ(world.all_reduce_value(std::int64_t(1), Reduce::sum), world.size());
}

}  // namespace
