/// \file MPI: the collective verbs on host memory.
#if CAPSTAN_MPI
#include <algorithm>
#include <cstring>

#include "base/error.hpp"
#include "comm/mpi_state_host.hpp"

namespace capstan::mpi {

namespace {

MPI_Op operation(Reduce op) {
  return op == Reduce::sum ? MPI_SUM : op == Reduce::min ? MPI_MIN : MPI_MAX;
}

/// out[i] = parts[0][i] + parts[1][i] + ..., from left to right. out may be one of the
/// parts.
template <class T>
void sum_parts(const std::vector<const char*>& parts, std::int64_t n, char* out) {
  constexpr std::int64_t kBlock = 1024;
  T sum[kBlock];
  for (std::int64_t first = 0; first < n; first += kBlock) {
    const std::int64_t count = std::min(kBlock, n - first);
    std::memcpy(sum, parts[0] + first * sizeof(T), count * sizeof(T));
    for (std::size_t r = 1; r < parts.size(); ++r) {
      const T* part = reinterpret_cast<const T*>(parts[r]) + first;
      for (std::int64_t i = 0; i < count; ++i) sum[i] += part[i];
    }
    std::memcpy(out + first * sizeof(T), sum, count * sizeof(T));
  }
}

void sum_parts(Type type, const std::vector<const char*>& parts, std::int64_t n,
               char* out) {
  if (type == Type::f64) return sum_parts<double>(parts, n, out);
  sum_parts<float>(parts, n, out);
}

}  // namespace

Finish Group::all_reduce(void* buffer, std::int64_t n, Type type, Reduce op) {
  auto* bytes = static_cast<char*>(buffer);
  if (n == 0 || size() == 1) return {};
  if (op == Reduce::sum && (type == Type::f64 || type == Type::f32))
    return sum_in_rank_order(bytes, n, type);
  auto requests = std::make_shared<Requests>(*state_, chunk_bytes, "a reduction");
  const auto most = static_cast<std::int64_t>(chunk_bytes / bytes_of(type));
  for (std::int64_t at = 0; at < n; at += most) {
    const int count = static_cast<int>(std::min(most, n - at));
    check(MPI_Iallreduce(MPI_IN_PLACE, bytes + at * bytes_of(type), count, datatype(type),
                         operation(op), state_->comm, requests->add()),
          "MPI_Iallreduce");
  }
  return [requests] { requests->wait(); };
}

Finish Group::sum_in_rank_order(char* buffer, std::int64_t n, Type type) {
  const auto width = static_cast<std::int64_t>(bytes_of(type));
  if (n * width <= static_cast<std::int64_t>(gather_bytes))
    return sum_gathered(buffer, n, type);
  // Large buffers go in segments, one after the other, to bound the scratch memory.
  const std::int64_t most = std::max<std::int64_t>(1, scratch_bytes / width);
  std::int64_t at = 0;
  for (; n - at > most; at += most) sum_by_blocks(buffer + at * width, most, type)();
  return sum_by_blocks(buffer + at * width, n - at, type);
}

/// Every rank gets every rank's values and adds them up: one step, for small sizes.
Finish Group::sum_gathered(char* buffer, std::int64_t n, Type type) {
  const std::size_t bytes = n * bytes_of(type);
  Scratch hold;
  char* all = state_->scratch(bytes * size(), hold);
  auto requests = std::make_shared<Requests>(*state_, chunk_bytes, "a sum");
  const int count = static_cast<int>(bytes);
  check(MPI_Iallgather(buffer, count, MPI_BYTE, all, count, MPI_BYTE, state_->comm,
                       requests->add()),
        "MPI_Iallgather");
  return [=, this] {
    requests->wait();
    std::vector<const char*> parts(size());
    for (int r = 0; r < size(); ++r) parts[r] = all + r * bytes;
    sum_parts(type, parts, n, buffer);
    (void)hold;  // the scratch is held until here
  };
}

/// Rank r adds up block r of all ranks (exchange), then everybody gets the sums (gather).
Finish Group::sum_by_blocks(char* buffer, std::int64_t n, Type type) {
  const int ranks = size(), me = rank();
  const auto width = static_cast<std::int64_t>(bytes_of(type));
  const auto begin = [=](int r) { return n * r / ranks * width; };
  const std::int64_t mine = begin(me + 1) - begin(me);
  Scratch hold;
  char* others = state_->scratch(mine * ranks, hold);
  auto requests = std::make_shared<Requests>(*state_, chunk_bytes, "a sum");
  for (int i = 1; i < ranks; ++i) {
    const int r = (me + i) % ranks;
    requests->receive(others + mine * r, mine, r);
  }
  for (int i = 1; i < ranks; ++i) {
    const int r = (me + i) % ranks;
    requests->send(buffer + begin(r), begin(r + 1) - begin(r), r);
  }
  const int tag = 1 + static_cast<int>(state_->sums++ % 30000u);
  return [=, this] {
    requests->wait();
    requests->use_tag(tag);
    std::vector<const char*> parts(ranks);
    for (int r = 0; r < ranks; ++r) parts[r] = others + mine * r;
    parts[me] = buffer + begin(me);
    sum_parts(type, parts, mine / width, buffer + begin(me));
    for (int i = 1; i < ranks; ++i) {
      const int r = (me + i) % ranks;
      requests->receive(buffer + begin(r), begin(r + 1) - begin(r), r);
    }
    for (int i = 1; i < ranks; ++i)
      requests->send(buffer + begin(me), mine, (me + i) % ranks);
    requests->wait();
    (void)hold;
  };
}

Finish Group::exchange(const void* send, std::vector<std::size_t> send_bytes,
                       void* receive, std::vector<std::size_t> receive_bytes) {
  const int ranks = size(), me = rank();
  std::vector<std::size_t> from(ranks + 1, 0), to(ranks + 1, 0);
  for (int r = 0; r < ranks; ++r) {
    from[r + 1] = from[r] + receive_bytes[r];
    to[r + 1] = to[r] + send_bytes[r];
  }
  if (send_bytes[me] != receive_bytes[me])
    throw Error(Exit::internal, "exchange: a rank's own piece has two sizes");
  const auto* out = static_cast<const char*>(send);
  auto* in = static_cast<char*>(receive);
  auto requests =
      std::make_shared<Requests>(*state_, chunk_bytes, "an all-to-all exchange");
  for (int i = 1; i < ranks; ++i) {
    const int r = (me - i + ranks) % ranks;
    requests->receive(in + from[r], receive_bytes[r], r);
  }
  for (int i = 1; i < ranks; ++i) {
    const int r = (me + i) % ranks;
    requests->send(out + to[r], send_bytes[r], r);
  }
  if (send_bytes[me] > 0) std::memcpy(in + from[me], out + to[me], send_bytes[me]);
  return [requests] { requests->wait(); };
}

Finish Group::broadcast(void* buffer, std::size_t bytes, int root) {
  auto* p = static_cast<char*>(buffer);
  auto requests = std::make_shared<Requests>(*state_, chunk_bytes, "a broadcast");
  for (std::size_t at = 0; at < bytes; at += chunk_bytes) {
    const int n = static_cast<int>(std::min(chunk_bytes, bytes - at));
    check(MPI_Ibcast(p + at, n, MPI_BYTE, root, state_->comm, requests->add()),
          "MPI_Ibcast");
  }
  return [requests] { requests->wait(); };
}

Finish Group::gather_pieces(const void* send, void* receive,
                            std::vector<std::size_t> bytes) {
  const int ranks = size(), me = rank();
  std::vector<std::size_t> from(ranks + 1, 0);
  for (int r = 0; r < ranks; ++r) from[r + 1] = from[r] + bytes[r];
  auto* in = static_cast<char*>(receive);
  auto requests = std::make_shared<Requests>(*state_, chunk_bytes, "a gather");
  for (int i = 1; i < ranks; ++i) {
    const int r = (me - i + ranks) % ranks;
    requests->receive(in + from[r], bytes[r], r);
  }
  for (int i = 1; i < ranks; ++i) requests->send(send, bytes[me], (me + i) % ranks);
  if (bytes[me] > 0 && in + from[me] != send) std::memcpy(in + from[me], send, bytes[me]);
  return [requests] { requests->wait(); };
}

Finish Group::send(const void* buffer, std::size_t bytes, int to) {
  auto requests = std::make_shared<Requests>(*state_, chunk_bytes, "a send");
  requests->send(buffer, bytes, to);
  return [requests] { requests->wait(); };
}

Finish Group::receive(void* buffer, std::size_t bytes, int from) {
  auto requests = std::make_shared<Requests>(*state_, chunk_bytes, "a receive");
  requests->receive(buffer, bytes, from);
  return [requests] { requests->wait(); };
}

void Group::all_gather(const void* send, void* receive, std::size_t bytes) {
  const auto* out = static_cast<const char*>(send);
  auto* in = static_cast<char*>(receive);
  if (bytes <= chunk_bytes) {
    const int n = static_cast<int>(bytes);
    Requests requests(*state_, chunk_bytes, "a gather");
    check(MPI_Iallgather(out, n, MPI_BYTE, in, n, MPI_BYTE, state_->comm, requests.add()),
          "MPI_Iallgather");
    requests.wait();
    return;
  }
  for (std::size_t r = 0; r < static_cast<std::size_t>(size()); ++r) {
    if (static_cast<int>(r) == rank()) std::memcpy(in + r * bytes, out, bytes);
    broadcast(in + r * bytes, bytes, static_cast<int>(r))();
  }
}

}  // namespace capstan::mpi
#endif
