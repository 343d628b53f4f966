// NCCL groups in one process: a thread for each GPU of the node (one GPU sends to
// itself). The values are those that every rank can compute, and what travels does so
// while the compute stream is busy.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <stdexcept>
#include <thread>

#include "comm/nccl_join.hpp"

using namespace capstan;

namespace {

void check(cudaError_t code) {
  if (code != cudaSuccess) throw std::runtime_error(cudaGetErrorString(code));
}

/// Device memory of n elements, from and to a vector.
template <class T>
class Device {
 public:
  explicit Device(const std::vector<T>& v) : n_(v.size()) {
    check(cudaMalloc(&data_, std::max<std::size_t>(1, n_) * sizeof(T)));
    check(cudaMemcpy(data_, v.data(), n_ * sizeof(T), cudaMemcpyHostToDevice));
    // A copy from pageable memory may still be on its way to the device.
    check(cudaDeviceSynchronize());
  }
  ~Device() { cudaFree(data_); }
  Device(const Device&) = delete;
  T* data() const { return static_cast<T*>(data_); }
  std::vector<T> back(cudaStream_t stream) const {
    std::vector<T> v(n_);
    check(
        cudaMemcpyAsync(v.data(), data_, n_ * sizeof(T), cudaMemcpyDeviceToHost, stream));
    check(cudaStreamSynchronize(stream));
    return v;
  }

 private:
  std::size_t n_;
  void* data_ = nullptr;
};

struct Rank {
  int rank, size;
  std::shared_ptr<nccl::Group> group;
  cudaStream_t compute;
};

/// f(rank) in one thread for each GPU. A failure of a thread is thrown here.
void on_every_gpu(const std::function<void(const Rank&)>& f) {
  int count = 0;
  check(cudaGetDeviceCount(&count));
  const std::vector<char> id = nccl::new_id();
  std::vector<std::string> failures(count);
  std::vector<std::thread> threads;
  for (int r = 0; r < count; ++r)
    threads.emplace_back([&, r] {
      try {
        check(cudaSetDevice(r));
        Rank me{r, count, nccl::join(id, r, count), nullptr};
        check(cudaStreamCreateWithFlags(&me.compute, cudaStreamNonBlocking));
        f(me);
        check(cudaStreamDestroy(me.compute));
      } catch (const std::exception& e) {
        failures[r] = e.what();
      }
    });
  for (std::thread& t : threads) t.join();
  for (const std::string& text : failures) EXPECT_EQ(text, std::string());
}

/// What a thread expects; checks of the test framework belong to the main thread.
void expect(bool held, const char* what) {
  if (!held) throw std::runtime_error(what);
}

template <class T>
void reductions(const Rank& me, Type type) {
  for (const std::size_t n : {1, 1000, 70001}) {
    std::vector<T> v(n), sum(n), most(n, T(me.size));
    for (std::size_t i = 0; i < n; ++i) {
      v[i] = static_cast<T>(me.rank + 1 + i % 5);  // small integers: exact in any order
      for (int r = 0; r < me.size; ++r) sum[i] += static_cast<T>(r + 1 + i % 5);
      most[i] = static_cast<T>(me.size + i % 5);
    }
    const Device<T> a(v), b(v);
    const auto count = static_cast<std::int64_t>(n);
    const Finish first =
        me.group->all_reduce(a.data(), count, type, Reduce::sum, me.compute);
    const Finish second =
        me.group->all_reduce(b.data(), count, type, Reduce::max, me.compute);
    first();
    second();
    expect(a.back(me.compute) == sum, "sum over ranks");
    expect(b.back(me.compute) == most, "maximum over ranks");
  }
}

/// Elements that rank s sends to rank r: none to some.
std::size_t piece(int s, int r) {
  return static_cast<std::size_t>((s * 7 + r * 3 + 2) % 5) * 1001;
}

int value(int s, int r, std::size_t i) {
  return 1000000 * s + 10000 * r + static_cast<int>(i);
}

void uneven_exchange(const Rank& me) {
  std::vector<std::size_t> out(me.size), in(me.size);
  std::vector<int> send, wanted;
  for (int r = 0; r < me.size; ++r) {
    out[r] = piece(me.rank, r) * sizeof(int);
    in[r] = piece(r, me.rank) * sizeof(int);
    for (std::size_t i = 0; i < piece(me.rank, r); ++i)
      send.push_back(value(me.rank, r, i));
    for (std::size_t i = 0; i < piece(r, me.rank); ++i)
      wanted.push_back(value(r, me.rank, i));
  }
  const Device<int> from(send), to(std::vector<int>(wanted.size(), -1));
  me.group->exchange(from.data(), out, to.data(), in, me.compute)();
  expect(to.back(me.compute) == wanted, "rows of every sender in rank order");
  // And back by the reversed counts.
  const Device<int> home(std::vector<int>(send.size(), -1));
  me.group->exchange(to.data(), in, home.data(), out, me.compute)();
  expect(home.back(me.compute) == send, "every row back at its origin");
}

void block(void* flag) {
  const auto* released = static_cast<std::atomic<bool>*>(flag);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!*released && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

/// The exchange begins, then the compute stream is blocked until its rows have arrived.
void travels_during_compute(const Rank& me) {
  const std::size_t n = 1 << 20;
  const std::vector<std::size_t> bytes(me.size, n * sizeof(int));
  const Device<int> from(std::vector<int>(n * me.size, me.rank + 1)),
      to(std::vector<int>(n * me.size, -1));
  const Finish finish =
      me.group->exchange(from.data(), bytes, to.data(), bytes, me.compute);
  std::atomic<bool> released{false};
  check(cudaLaunchHostFunc(me.compute, block, &released));
  cudaStream_t reader;
  check(cudaStreamCreateWithFlags(&reader, cudaStreamNonBlocking));
  bool arrived = false;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!arrived && std::chrono::steady_clock::now() < end) {
    const std::vector<int> seen = to.back(reader);
    arrived = true;
    for (int r = 0; r < me.size; ++r)
      arrived = arrived && seen[r * n] == r + 1 && seen[r * n + n - 1] == r + 1;
  }
  released = true;
  finish();
  check(cudaStreamSynchronize(me.compute));
  check(cudaStreamDestroy(reader));
  expect(arrived, "rows arrive while the compute stream is busy");
}

/// The exchange sends what a kernel before it on the compute stream leaves, and a kernel
/// after its Finish sees what arrived.
void ordered_with_compute(const Rank& me) {
  const std::size_t n = std::size_t(8) << 20;
  std::vector<std::size_t> bytes(me.size, n);
  const Device<char> from(std::vector<char>(n * me.size, 0)),
      to(std::vector<char>(n * me.size, 0)), copy(std::vector<char>(n * me.size, 0));
  for (int i = 1; i < 50; ++i) {
    check(cudaMemsetAsync(from.data(), i, n * me.size, me.compute));
    me.group->exchange(from.data(), bytes, to.data(), bytes, me.compute)();
    check(cudaMemcpyAsync(copy.data(), to.data(), n * me.size, cudaMemcpyDeviceToDevice,
                          me.compute));
  }
  expect(copy.back(me.compute) == std::vector<char>(n * me.size, 49), "order of streams");
}

}  // namespace

TEST(Nccl, Reductions) {
  on_every_gpu([](const Rank& me) {
    reductions<float>(me, Type::f32);
    reductions<double>(me, Type::f64);
    reductions<std::int64_t>(me, Type::i64);
  });
}

TEST(Nccl, ExchangesOfUnevenSizesThereAndBack) {
  on_every_gpu(uneven_exchange);
}

TEST(Nccl, BroadcastFromEveryRoot) {
  on_every_gpu([](const Rank& me) {
    for (int root = 0; root < me.size; ++root) {
      const Device<int> v(std::vector<int>(5000, me.rank + 10));
      me.group->broadcast(v.data(), 5000 * sizeof(int), root, me.compute)();
      expect(v.back(me.compute) == std::vector<int>(5000, root + 10), "broadcast");
    }
  });
}

TEST(Nccl, RowsTravelWhileTheComputeStreamIsBusy) {
  on_every_gpu(travels_during_compute);
}

TEST(Nccl, StreamsAreOrderedByEvents) {
  on_every_gpu(ordered_with_compute);
}
