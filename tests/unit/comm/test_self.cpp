// The communicator of one rank, without MPI.
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "comm/exchange.hpp"
#include "comm/grid.hpp"
#include "unit/check.hpp"

using namespace capstan;

TEST(Self, is_one_rank) {
  const Comm comm = Comm::self();
  EXPECT_EQ(comm.rank(), 0);
  EXPECT_EQ(comm.size(), 1);
  const Comm part = comm.split(3, 7);
  EXPECT_EQ(part.size(), 1);
  part.barrier();
}

TEST(Self, verbs_are_copies) {
  const Comm comm = Comm::self();
  const auto v = test::view1<double>({1, 2, 3, 4, 5, 6});
  comm.all_reduce(v, Reduce::sum).wait();
  comm.broadcast(v, 0).wait();
  EXPECT_EQ(test::values(v), (test::Values{1, 2, 3, 4, 5, 6}));
  View1<double> out("out", 6);
  comm.all_to_all_v<double>(v.data(), {3}, out.data(), {3}, 2).wait();
  EXPECT_EQ(test::values(out), test::values(v));
  comm.all_to_all_v<double>(nullptr, {0}, nullptr, {0}, 2).wait();
  const std::int64_t send[2] = {8, 9};
  std::int64_t receive[2] = {0, 0};
  comm.all_to_all_host(send, receive, 2);
  EXPECT_EQ(receive[1], 9);
  receive[1] = 0;
  comm.all_gather_host(send, receive, 2);
  EXPECT_EQ(receive[1], 9);
  EXPECT_EQ(comm.all_reduce_value(2.5, Reduce::max), 2.5);
  EXPECT_EQ(comm.gather_texts("one"), (std::vector<std::string>{"one"}));
  EXPECT_EQ(comm.broadcast_text("two", 0), "two");
}

TEST(Self, refuses_counts_that_do_not_match) {
  const Comm comm = Comm::self();
  View1<float> a("a", 4), b("b", 4);
  EXPECT_THROW((void)comm.all_to_all_v<float>(a.data(), {3}, b.data(), {2}, 1), Error);
  EXPECT_THROW((void)comm.all_to_all_v<float>(a.data(), {1, 1}, b.data(), {1, 1}, 1),
               Error);
  EXPECT_THROW((void)ExchangePlan::build(comm, {1, 2}), Error);
}

TEST(Self, grid_of_one_rank) {
  const Grid grid = Grid::build(Comm::self(), 1, 1, 1);
  EXPECT_EQ(grid.n_dense(), 1);
  EXPECT_EQ(grid.dense_rank(), 0);
  EXPECT_EQ(grid.expert_group.size(), 1);
  try {
    Grid::build(Comm::self(), 1, 2, 3);
    FAIL() << "a grid of six ranks was built on one";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::deck);
    EXPECT_NE(std::string(e.what()).find("6 ranks, but there is 1"), std::string::npos);
    EXPECT_NE(std::string(e.what()).find("data = 1, expert = 1"), std::string::npos);
  }
}
