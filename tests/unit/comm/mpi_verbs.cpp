// Every verb on as many ranks as there are, against values that each rank can compute
// itself.
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.hpp"
#include "base/rng.hpp"
#include "comm/impl.hpp"
#include "unit/check.hpp"

using namespace capstan;

namespace {

/// Value i of rank r: not exact in binary, of mixed size and sign.
double value(int r, index_t i) {
  return std::sin(1.0 + 3.7 * r + 0.11 * static_cast<double>(i)) *
         (i % 7 == 0 ? 1e6 : 1.0);
}

template <class T>
std::vector<T> values_of(int r, index_t n) {
  std::vector<T> v(n);
  for (index_t i = 0; i < n; ++i) v[i] = static_cast<T>(value(r, i));
  return v;
}

template <class T>
View1<T> on_device(const std::vector<T>& v) {
  View1<T> out("v", v.size());
  copy_to_device(v.data(), out.data(), static_cast<index_t>(v.size()));
  return out;
}

/// The sum from rank 0 upwards, in T.
template <class T>
std::vector<T> sum_of_ranks(int ranks, index_t n) {
  std::vector<T> sum = values_of<T>(0, n);
  for (int r = 1; r < ranks; ++r) {
    const auto part = values_of<T>(r, n);
    for (index_t i = 0; i < n; ++i) sum[i] += part[i];
  }
  return sum;
}

template <class T>
void sums_are_exact(const Comm& comm) {
  for (const index_t n : {0, 1, 3, 100, 5000, 70001}) {
    const auto v = on_device(values_of<T>(comm.rank(), n));
    comm.all_reduce(v, Reduce::sum).wait();
    EXPECT_EQ(to_host(v), sum_of_ranks<T>(comm.size(), n)) << n;
  }
}

/// A group whose messages go in many small pieces.
Comm in_small_pieces(const Comm& world) {
  const Comm comm = world.split(0, world.rank());
  if (comm.impl()->mpi) {
    comm.impl()->mpi->chunk_bytes = 40;
    comm.impl()->mpi->scratch_bytes = 1 << 14;
    comm.impl()->mpi->gather_bytes = 16;
  }
  return comm;
}

}  // namespace

TEST(Verbs, sums_in_rank_order_bit_for_bit) {
  const Comm comm = Comm::world();
  sums_are_exact<double>(comm);
  sums_are_exact<float>(comm);
}

TEST(Verbs, sums_in_small_pieces) {
  const Comm comm = in_small_pieces(Comm::world());
  sums_are_exact<double>(comm);
  sums_are_exact<float>(comm);
  const auto v = on_device(std::vector<std::uint64_t>(1000, ~0ull - comm.rank()));
  comm.all_reduce(v, Reduce::sum).wait();
  std::uint64_t sum = 0;
  for (int r = 0; r < comm.size(); ++r) sum += ~0ull - r;
  EXPECT_EQ(to_host(v), std::vector<std::uint64_t>(1000, sum));
}

TEST(Verbs, least_and_greatest) {
  const Comm comm = Comm::world();
  const double r = comm.rank();
  EXPECT_EQ(comm.all_reduce_value(r, Reduce::min), 0);
  EXPECT_EQ(comm.all_reduce_value(r, Reduce::max), comm.size() - 1);
  const auto i = static_cast<std::int32_t>(comm.rank());
  EXPECT_EQ(comm.all_reduce_value(-i, Reduce::min), 1 - comm.size());
  EXPECT_EQ(comm.all_reduce_value(std::int64_t(5), Reduce::sum), 5 * comm.size());
  EXPECT_EQ(comm.all_reduce_value(static_cast<std::uint8_t>(i), Reduce::max),
            comm.size() - 1);
}

TEST(Verbs, sums_under_way_together) {
  const Comm comm = Comm::world();
  const auto a = on_device(values_of<float>(comm.rank(), 9000));
  const auto b = on_device(values_of<double>(comm.rank(), 7000));
  const auto c = on_device(values_of<float>(comm.rank(), 5));
  Pending pa = comm.all_reduce(a, Reduce::sum), pb = comm.all_reduce(b, Reduce::sum);
  Pending pc = comm.all_reduce(c, Reduce::sum);
  View1<double> d("d", comm.size()), e("e", comm.size());
  fill(e, 10.0 + comm.rank());
  const std::vector<index_t> one(comm.size(), 1);
  Pending pd = comm.all_to_all_v<double>(e.data(), one, d.data(), one, 1);
  pb.wait();
  pa = Pending();  // assignment completes, too
  pd.wait();
  pc.wait();
  EXPECT_EQ(to_host(a), sum_of_ranks<float>(comm.size(), 9000));
  EXPECT_EQ(to_host(b), sum_of_ranks<double>(comm.size(), 7000));
  EXPECT_EQ(to_host(c), sum_of_ranks<float>(comm.size(), 5));
  for (int r = 0; r < comm.size(); ++r) EXPECT_EQ(to_host(d)[r], 10.0 + r);
}

TEST(Verbs, broadcast_from_every_root) {
  for (const Comm& comm : {Comm::world(), in_small_pieces(Comm::world())})
    for (int root = 0; root < comm.size(); ++root) {
      const auto v = on_device(values_of<float>(comm.rank(), 333));
      comm.broadcast(v, root).wait();
      EXPECT_EQ(to_host(v), values_of<float>(root, 333));
      std::int64_t x = comm.rank();
      comm.broadcast_host(&x, 1, root);
      EXPECT_EQ(x, root);
    }
}

/// Uneven shares of the ranks, none for rank 1.
std::vector<index_t> shares(int ranks) {
  std::vector<index_t> counts;
  for (int r = 0; r < ranks; ++r) counts.push_back(r == 1 ? 0 : 3000 * r + 5);
  return counts;
}

template <class T>
void shares_of_sums_are_exact(const Comm& comm) {
  const auto counts = shares(comm.size());
  index_t all = 0, before = 0;
  for (int r = 0; r < comm.size(); ++r) {
    if (r < comm.rank()) before += counts[r];
    all += counts[r];
  }
  const index_t mine = counts[comm.rank()];
  const auto send = on_device(values_of<T>(comm.rank(), all));
  View1<T> scratch("scratch", comm.size() * mine), sum("sum", mine), whole("whole", all);
  comm.reduce_scatter_v<T>(send.data(), counts, scratch.data(), sum.data()).wait();
  const auto want = sum_of_ranks<T>(comm.size(), all);
  EXPECT_EQ(to_host(sum),
            std::vector<T>(want.begin() + before, want.begin() + before + mine));
  comm.all_gather_v<T>(sum.data(), counts, whole.data()).wait();
  EXPECT_EQ(to_host(whole), want);
}

TEST(Verbs, shares_of_sums_and_their_gathering) {
  for (const Comm& comm : {Comm::world(), in_small_pieces(Comm::world())}) {
    shares_of_sums_are_exact<float>(comm);
    shares_of_sums_are_exact<double>(comm);
  }
}

TEST(Verbs, messages_of_a_pair_match_in_order) {
  for (const Comm& comm : {Comm::world(), in_small_pieces(Comm::world())}) {
    if (comm.size() == 1) GTEST_SKIP() << "two ranks";
    const int next = (comm.rank() + 1) % comm.size();
    const int previous = (comm.rank() + comm.size() - 1) % comm.size();
    constexpr int kMessages = 5;
    std::vector<View1<double>> in, out;
    std::vector<Pending> under_way;
    for (int i = 0; i < kMessages; ++i) {
      in.emplace_back("in", 100 + 700 * i);
      out.push_back(on_device(values_of<double>(10 * comm.rank() + i, 100 + 700 * i)));
      under_way.push_back(comm.receive(in.back(), previous));
    }
    for (const auto& view : out) under_way.push_back(comm.send(view, next));
    for (Pending& p : under_way) p.wait();
    for (int i = 0; i < kMessages; ++i)
      EXPECT_EQ(to_host(in[i]), values_of<double>(10 * previous + i, 100 + 700 * i));
  }
}

TEST(Verbs, a_rank_sends_nothing_to_itself) {
  const Comm comm = Comm::world();
  const View1<float> v("v", 3);
  EXPECT_THROW(comm.send(v, comm.rank()), Error);
  EXPECT_THROW(comm.receive(v, comm.size()), Error);
}

TEST(Verbs, gather_and_all_to_all_on_the_host) {
  for (const Comm& comm : {Comm::world(), in_small_pieces(Comm::world())}) {
    const index_t n = 21;
    std::vector<double> all(n * comm.size());
    comm.all_gather_host(values_of<double>(comm.rank(), n).data(), all.data(), n);
    for (int r = 0; r < comm.size(); ++r)
      EXPECT_EQ(std::vector<double>(all.begin() + r * n, all.begin() + (r + 1) * n),
                values_of<double>(r, n));
    std::vector<std::int32_t> send(n * comm.size()), receive(send.size());
    for (std::size_t i = 0; i < send.size(); ++i)
      send[i] = static_cast<std::int32_t>(1000 * comm.rank() + i);
    comm.all_to_all_host(send.data(), receive.data(), n);
    for (int r = 0; r < comm.size(); ++r)
      for (index_t i = 0; i < n; ++i)
        EXPECT_EQ(receive[r * n + i], 1000 * r + comm.rank() * n + i);
  }
}

TEST(Verbs, lists_of_different_lengths) {
  const Comm comm = Comm::world();
  std::vector<double> want;
  for (int r = 0; r < comm.size(); ++r) {
    const auto part = values_of<double>(r, 3 * r);
    want.insert(want.end(), part.begin(), part.end());
  }
  EXPECT_EQ(comm.gather_lists(values_of<double>(comm.rank(), 3 * comm.rank())), want);
}

TEST(Verbs, texts) {
  const Comm comm = Comm::world();
  const std::string mine(comm.rank() * 5, static_cast<char>('a' + comm.rank()));
  const auto all = comm.gather_texts(mine);
  if (comm.rank() == 0) {
    ASSERT_EQ(static_cast<int>(all.size()), comm.size());
    for (int r = 0; r < comm.size(); ++r)
      EXPECT_EQ(all[r], std::string(r * 5, static_cast<char>('a' + r)));
  } else {
    EXPECT_TRUE(all.empty());
  }
  const int root = comm.size() - 1;
  const std::string text = comm.rank() == root ? "from the last" : "not this";
  EXPECT_EQ(comm.broadcast_text(text, root), "from the last");
}

TEST(Verbs, groups_by_color_ordered_by_key) {
  const Comm comm = Comm::world();
  const Comm part = comm.split(comm.rank() % 2, -comm.rank());
  const int expected = (comm.size() + 1 - comm.rank() % 2) / 2;
  EXPECT_EQ(part.size(), expected);
  EXPECT_EQ(part.rank(), expected - 1 - comm.rank() / 2);
  double sum = comm.rank();
  part.all_reduce_host(&sum, 1, Reduce::sum);
  double want = 0;
  for (int r = comm.rank() % 2; r < comm.size(); r += 2) want += r;
  EXPECT_EQ(sum, want);
}

TEST(Verbs, a_message_of_the_wrong_size_is_an_error) {
  const Comm comm = Comm::world().split(0, 0);
  if (comm.size() != 2) GTEST_SKIP() << "two ranks";
  View1<float> send("send", 8), receive("receive", 8);
  const index_t sent =
      comm.rank() == 0 ? 4 : 2;  // rank 1 expects fewer rows than rank 0 sends
  const std::vector<index_t> out = {sent, sent}, in = {sent, 2};
  const std::vector<index_t>& expected =
      comm.rank() == 0 ? std::vector<index_t>{4, 2} : in;
  Pending p = comm.all_to_all_v<float>(send.data(), out, receive.data(), expected, 1);
  if (comm.rank() == 0) {
    p.wait();
  } else {
    try {
      p.wait();
      FAIL() << "four rows came where two were expected";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Exit::device);
    }
  }
}
