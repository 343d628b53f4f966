// Exchange plan: uneven and zero counts, out and back, several under way.
#include <gtest/gtest.h>

#include "comm/exchange.hpp"
#include "comm/impl.hpp"
#include "unit/check.hpp"

using namespace capstan;

namespace {

/// Rows that rank `from` sends to rank `to`: uneven, with zeros.
index_t rows(int from, int to, int kind) {
  if (kind == 0) return 0;
  if (kind == 1) return (3 * from + 5 * to) % 4;
  return to == 0 ? 100 + from : 0;  // everything to one rank
}

template <class T>
T element(int from, int to, index_t row, index_t column) {
  return static_cast<T>(from * 64 + to * 16 + (row % 4) * 4 + column % 4);
}

template <class T>
void goes_out_and_back(const Comm& comm, int kind, index_t width) {
  const int me = comm.rank();
  std::vector<index_t> counts;
  std::vector<T> out, expected;
  for (int r = 0; r < comm.size(); ++r) {
    counts.push_back(rows(me, r, kind));
    for (index_t i = 0; i < rows(me, r, kind); ++i)
      for (index_t j = 0; j < width; ++j) out.push_back(element<T>(me, r, i, j));
    for (index_t i = 0; i < rows(r, me, kind); ++i)
      for (index_t j = 0; j < width; ++j) expected.push_back(element<T>(r, me, i, j));
  }
  const ExchangePlan plan = ExchangePlan::build(comm, counts);
  ASSERT_EQ(plan.rows_sent * width, static_cast<index_t>(out.size()));
  ASSERT_EQ(plan.rows_received * width, static_cast<index_t>(expected.size()));
  View1<T> send("send", out.size()), receive("receive", expected.size()),
      back("back", out.size());
  copy_to_device(out.data(), send.data(), static_cast<index_t>(out.size()));
  plan.forward<T>(send.data(), receive.data(), width).wait();
  const std::vector<T> got = to_host(receive);
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_EQ(float(got[i]), float(expected[i])) << i;
  plan.reverse<T>(receive.data(), back.data(), width).wait();
  const std::vector<T> home = to_host(back);
  for (std::size_t i = 0; i < home.size(); ++i)
    ASSERT_EQ(float(home[i]), float(out[i])) << i;
}

}  // namespace

TEST(Exchange, out_and_back) {
  const Comm comm = Comm::world();
  for (int kind = 0; kind < 3; ++kind) {
    goes_out_and_back<double>(comm, kind, 3);
    goes_out_and_back<float>(comm, kind, 257);
    goes_out_and_back<bf16>(comm, kind, 5);
    goes_out_and_back<std::int32_t>(comm, kind, 1);
  }
}

TEST(Exchange, pieces_larger_than_a_message) {
  const Comm comm = Comm::world().split(0, Comm::world().rank());
  if (comm.impl()->mpi) comm.impl()->mpi->chunk_bytes = 1000;
  for (int kind = 0; kind < 3; ++kind) goes_out_and_back<float>(comm, kind, 129);
}

TEST(Exchange, two_under_way) {
  const Comm comm = Comm::world();
  const int n = comm.size();
  const std::vector<index_t> counts(n, 2);
  const ExchangePlan plan = ExchangePlan::build(comm, counts, counts);
  View1<double> a("a", 2 * n), b("b", 2 * n), from_a("from_a", 2 * n),
      from_b("from_b", 2 * n);
  fill(a, 1.0 + comm.rank());
  fill(b, 100.0 + comm.rank());
  Pending first = plan.forward<double>(a.data(), from_a.data(), 1);
  Pending second = plan.forward<double>(b.data(), from_b.data(), 1);
  second.wait();
  first.wait();
  const auto got_a = to_host(from_a), got_b = to_host(from_b);
  for (int i = 0; i < 2 * n; ++i) {
    EXPECT_EQ(got_a[i], 1.0 + i / 2);
    EXPECT_EQ(got_b[i], 100.0 + i / 2);
  }
}
