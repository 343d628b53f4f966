#include "comm/comm.hpp"

#include <cstdio>
#include <cstring>
#include <numeric>

#include "base/error.hpp"
#include "comm/impl.hpp"
#include "comm/staged.hpp"

namespace capstan {

void Pending::State::complete() {
  if (!finish) return;
  const Finish f = std::move(finish);
  finish = nullptr;
  f();
}

Pending::State::~State() {
  try {
    complete();
  } catch (const std::exception& e) {
    // Nobody can catch this, and the other ranks wait: end all of them.
    std::fprintf(stderr, "ERROR: %s\n", e.what());
    mpi::abort(static_cast<int>(Exit::device));
  }
}

void Pending::wait() {
  if (state_) state_->complete();
  state_.reset();
}

namespace {

std::vector<std::size_t> row_bytes(const std::vector<index_t>& rows, index_t row) {
  std::vector<std::size_t> bytes(rows.size());
  for (std::size_t r = 0; r < rows.size(); ++r) bytes[r] = rows[r] * row;
  return bytes;
}

index_t total(const std::vector<index_t>& rows) {
  return std::accumulate(rows.begin(), rows.end(), index_t(0));
}

}  // namespace

Comm Comm::Impl::wrap(std::shared_ptr<mpi::Group> group) {
  auto impl = std::make_shared<Impl>();
  if (group) {
    impl->rank = group->rank();
    impl->size = group->size();
    if constexpr (!kOnHost)
      if (impl->size > 1) impl->nccl = nccl::make(*group);
    impl->mpi = std::move(group);
  }
  return Comm(std::move(impl));
}

Comm Comm::self() {
  return Impl::wrap(nullptr);
}
Comm Comm::world() {
  return Impl::wrap(mpi::world());
}

int Comm::rank() const {
  return impl_->rank;
}
int Comm::size() const {
  return impl_->size;
}

Comm Comm::split(int color, int key) const {
  return Impl::wrap(impl_->mpi ? impl_->mpi->split(color, key) : nullptr);
}

void Comm::barrier() const {
  if (!impl_->alone()) impl_->mpi->barrier();
}

void Comm::watch(double stuck_seconds) const {
  if (impl_->mpi) impl_->mpi->watch(stuck_seconds);
}

void Comm::abort(int code) const {
  mpi::abort(code);
}

template <class T>
Pending Comm::all_reduce(const View1<T>& buffer, Reduce op) const {
  const auto n = static_cast<index_t>(buffer.extent(0));
  if (impl_->alone() || n == 0) return {};
  if (impl_->nccl)
    return pending(
        impl_->nccl->all_reduce(buffer.data(), n, type_of<T>(), op, stream_of(Exec())));
  auto staged = std::make_shared<Staged<T>>(buffer.data(), n);
  staged->fetch();
  Finish finish = impl_->mpi->all_reduce(staged->host(), n, type_of<T>(), op);
  return pending([=, keep = buffer] {
    finish();
    staged->put_back();
  });
}

template <class T>
Pending Comm::all_to_all_v(const T* send, const std::vector<index_t>& send_rows,
                           T* receive, const std::vector<index_t>& receive_rows,
                           index_t width) const {
  require(static_cast<int>(send_rows.size()) == size() &&
              static_cast<int>(receive_rows.size()) == size(),
          "all_to_all_v: one count for each rank");
  const index_t n_out = total(send_rows) * width, n_in = total(receive_rows) * width;
  if (impl_->alone()) {
    require(n_out == n_in, "all_to_all_v: one rank sends what it receives");
    if (n_in > 0)
      Kokkos::deep_copy(Exec(), View1<T>(receive, n_in), View1<const T>(send, n_in));
    return {};
  }
  const index_t row = width * static_cast<index_t>(sizeof(T));
  auto send_bytes = row_bytes(send_rows, row),
       receive_bytes = row_bytes(receive_rows, row);
  if (impl_->nccl)
    return pending(impl_->nccl->exchange(send, send_bytes, receive, receive_bytes,
                                         stream_of(Exec())));
  auto out = std::make_shared<Staged<T>>(const_cast<T*>(send), n_out);
  auto in = std::make_shared<Staged<T>>(receive, n_in);
  out->fetch();
  Finish finish = impl_->mpi->exchange(out->host(), std::move(send_bytes), in->host(),
                                       std::move(receive_bytes));
  return pending([=] {
    finish();
    (void)out;  // sent from until here
    in->put_back();
  });
}

template <class T>
Pending Comm::broadcast(const View1<T>& buffer, int root) const {
  const auto n = static_cast<index_t>(buffer.extent(0));
  if (impl_->alone() || n == 0) return {};
  if (impl_->nccl)
    return pending(
        impl_->nccl->broadcast(buffer.data(), n * sizeof(T), root, stream_of(Exec())));
  auto staged = std::make_shared<Staged<T>>(buffer.data(), n);
  staged->fetch();
  Finish finish = impl_->mpi->broadcast(staged->host(), n * sizeof(T), root);
  return pending([=, keep = buffer] {
    finish();
    staged->put_back();
  });
}

template <class T>
Pending Comm::send(const View1<T>& buffer, int to) const {
  const auto n = static_cast<index_t>(buffer.extent(0));
  require(to != rank() && to >= 0 && to < size(), "send: no such rank to send to");
  if (impl_->nccl)
    return pending(
        impl_->nccl->send(buffer.data(), n * sizeof(T), to, stream_of(Exec())));
  auto staged = std::make_shared<Staged<T>>(buffer.data(), n);
  staged->fetch();
  Finish finish = impl_->mpi->send(staged->host(), n * sizeof(T), to);
  return pending([=, keep = buffer] {
    finish();
    (void)staged;  // sent from until here
  });
}

template <class T>
Pending Comm::receive(const View1<T>& buffer, int from) const {
  const auto n = static_cast<index_t>(buffer.extent(0));
  require(from != rank() && from >= 0 && from < size(), "receive: no such rank");
  if (impl_->nccl)
    return pending(
        impl_->nccl->receive(buffer.data(), n * sizeof(T), from, stream_of(Exec())));
  fence();  // what was launched before may still read the buffer
  auto staged = std::make_shared<Staged<T>>(buffer.data(), n);
  Finish finish = impl_->mpi->receive(staged->host(), n * sizeof(T), from);
  return pending([=, keep = buffer] {
    finish();
    staged->put_back();
  });
}

template <class T>
void Comm::all_reduce_host(T* buffer, index_t n, Reduce op) const {
  if (impl_->alone() || n == 0) return;
  if (const Finish finish = impl_->mpi->all_reduce(buffer, n, type_of<T>(), op)) finish();
}

template <class T>
void Comm::all_to_all_host(const T* send, T* receive, index_t n) const {
  if (n == 0) return;
  if (impl_->alone()) {
    std::memmove(static_cast<void*>(receive), send, n * sizeof(T));
    return;
  }
  const std::vector<std::size_t> bytes(size(), n * sizeof(T));
  impl_->mpi->exchange(send, bytes, receive, bytes)();
}

template <class T>
void Comm::all_gather_host(const T* send, T* receive, index_t n) const {
  if (n == 0) return;
  if (impl_->alone())
    std::memmove(static_cast<void*>(receive), send, n * sizeof(T));
  else
    impl_->mpi->all_gather(send, receive, n * sizeof(T));
}

template <class T>
void Comm::broadcast_host(T* buffer, index_t n, int root) const {
  if (!impl_->alone()) impl_->mpi->broadcast(buffer, n * sizeof(T), root)();
}

template <class T>
std::vector<T> Comm::gather_lists(const std::vector<T>& mine) const {
  if (impl_->alone()) return mine;
  const auto n = static_cast<index_t>(mine.size());
  std::vector<index_t> sizes(size());
  all_gather_host(&n, sizes.data(), 1);
  std::vector<T> all;
  for (int r = 0; r < size(); ++r) {
    std::vector<T> part = r == rank() ? mine : std::vector<T>(sizes[r]);
    broadcast_host(part.data(), sizes[r], r);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

std::vector<std::string> Comm::gather_texts(const std::string& text) const {
  if (impl_->alone()) return {text};
  const auto mine = static_cast<index_t>(text.size());
  std::vector<index_t> sizes(size());
  all_gather_host(&mine, sizes.data(), 1);
  std::vector<std::size_t> send(size(), 0), receive(size(), 0);
  send[0] = text.size();
  if (rank() == 0) receive.assign(sizes.begin(), sizes.end());
  std::string all(std::accumulate(receive.begin(), receive.end(), std::size_t(0)), '\0');
  impl_->mpi->exchange(text.data(), send, all.data(), receive)();
  std::vector<std::string> texts;
  std::size_t at = 0;
  for (std::size_t r = 0; r < receive.size() && rank() == 0; ++r) {
    texts.push_back(all.substr(at, receive[r]));
    at += receive[r];
  }
  return texts;
}

std::string Comm::broadcast_text(const std::string& text, int root) const {
  if (impl_->alone()) return text;
  auto n = static_cast<index_t>(text.size());
  broadcast_host(&n, 1, root);
  std::string out = rank() == root ? text : std::string(n, '\0');
  impl_->mpi->broadcast(out.data(), out.size(), root)();
  return out;
}

MpiSession::MpiSession(int* argc, char*** argv) : started_(mpi::init(argc, argv)) {}
MpiSession::~MpiSession() {
  if (started_) mpi::finalize();
}

std::string comm_version() {
  const std::string gpu = nccl::version();
  return mpi::version() + (gpu.empty() ? "" : ", " + gpu);
}

// clang-format off
#define CAPSTAN_MOVES(T) \
  template Pending Comm::all_to_all_v<T>(const T*, const std::vector<index_t>&, T*, \
                                         const std::vector<index_t>&, index_t) const; \
  template Pending Comm::broadcast<T>(const View1<T>&, int) const; \
  template Pending Comm::send<T>(const View1<T>&, int) const; \
  template Pending Comm::receive<T>(const View1<T>&, int) const; \
  template void Comm::all_to_all_host<T>(const T*, T*, index_t) const; \
  template void Comm::all_gather_host<T>(const T*, T*, index_t) const; \
  template void Comm::broadcast_host<T>(T*, index_t, int) const; \
  template std::vector<T> Comm::gather_lists<T>(const std::vector<T>&) const;
#define CAPSTAN_REDUCES(T) \
  template Pending Comm::all_reduce<T>(const View1<T>&, Reduce) const; \
  template void Comm::all_reduce_host<T>(T*, index_t, Reduce) const;
#define CAPSTAN_BOTH(T) CAPSTAN_MOVES(T) CAPSTAN_REDUCES(T)
// clang-format on
CAPSTAN_MOVES(bf16)
CAPSTAN_BOTH(double)
CAPSTAN_BOTH(float)
CAPSTAN_BOTH(std::int32_t)
CAPSTAN_BOTH(std::int64_t)
CAPSTAN_BOTH(std::uint64_t)
CAPSTAN_BOTH(std::uint8_t)

}  // namespace capstan
