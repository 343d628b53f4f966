#pragma once
/// \file Communicator: self (one rank), MPI, or NCCL for device buffers. Verbs return a
/// Pending.
#include <memory>
#include <string>
#include <vector>

#include "base/types.hpp"
#include "comm/backend.hpp"

namespace capstan {

/// A started operation. wait(), assignment or the destructor completes it; buffers stay
/// untouched until then. On a GPU, kernels launched after wait() see the result; the host
/// does not block.
class Pending {
 public:
  struct State;
  Pending() = default;
  explicit Pending(std::shared_ptr<State> state) : state_(std::move(state)) {}
  ~Pending() = default;  // State's destructor completes
  Pending(Pending&&) = default;
  Pending& operator=(Pending&&) = default;
  void wait();
  /// False when there is nothing to wait for.
  explicit operator bool() const { return state_ != nullptr; }

 private:
  std::shared_ptr<State> state_;
};

/// A group of ranks. Copies share the group. Every rank calls the verbs, and waits for
/// them, in the same order. T: double, float, bf16 (not in reductions), int32, int64,
/// uint64, uint8. Floating-point sums add in a fixed order. Device memory goes through
/// NCCL where every rank of the group has a GPU of its own, else through MPI on host
/// memory. Error(Exit::device) when a backend fails.
class Comm {
 public:
  /// One rank, no MPI.
  static Comm self();
  /// All ranks when MPI was initialised (see MpiSession), else self(). Collective.
  static Comm world();

  int rank() const;
  int size() const;
  /// Collective. Ranks with the same color form a group, ordered by key.
  Comm split(int color, int key) const;
  void barrier() const;
  /// A wait of more than this many seconds ends all ranks with exit code 5 and says which
  /// operation waited for which ranks; 0 = never. Groups that are split off later inherit
  /// it. Host memory only: what waits on NCCL waits on the GPU.
  void watch(double stuck_seconds) const;
  /// Ends all ranks at once with this exit code.
  [[noreturn]] void abort(int code) const;

  /// In place, on device memory.
  template <class T>
  Pending all_reduce(const View1<T>& buffer, Reduce op) const;
  /// From device memory: send_rows[r] rows of `width` elements to rank r, in rank order,
  /// received in rank order. Exact sizes; zero rows are valid. Pieces may exceed 2^31
  /// bytes.
  template <class T>
  Pending all_to_all_v(const T* send, const std::vector<index_t>& send_rows, T* receive,
                       const std::vector<index_t>& receive_rows, index_t width) const;
  template <class T>
  Pending broadcast(const View1<T>& buffer, int root) const;
  /// From device memory that has counts[r] elements for rank r, in rank order: `receive`
  /// [counts[rank()]] = the sum over ranks of what they have for this one, added in rank
  /// order. `scratch`: size() * counts[rank()] elements. T: double or float.
  template <class T>
  Pending reduce_scatter_v(const T* send, const std::vector<index_t>& counts, T* scratch,
                           T* receive) const;
  /// counts[rank()] elements of every rank, on device memory: `receive` gets them in rank
  /// order; `send` may lie there already.
  template <class T>
  Pending all_gather_v(const T* send, const std::vector<index_t>& counts,
                       T* receive) const;
  /// From one rank to another, on device memory; messages of a pair match in the order of
  /// calls. On GPUs the messages of a group run one after the other: where a send must
  /// not wait for a receive that was started before it, give each a group of its own.
  template <class T>
  Pending send(const View1<T>& buffer, int to) const;
  template <class T>
  Pending receive(const View1<T>& buffer, int from) const;

  /// The same on host memory, blocking.
  template <class T>
  void all_reduce_host(T* buffer, index_t n, Reduce op) const;
  template <class T>
  T all_reduce_value(T value, Reduce op) const {
    all_reduce_host(&value, 1, op);
    return value;
  }
  /// send: size() * n elements, n to each rank; receive likewise.
  template <class T>
  void all_to_all_host(const T* send, T* receive, index_t n) const;
  /// receive: size() * n elements in rank order.
  template <class T>
  void all_gather_host(const T* send, T* receive, index_t n) const;
  template <class T>
  void broadcast_host(T* buffer, index_t n, int root) const;
  /// The lists of all ranks, which may have different lengths, one after the other.
  template <class T>
  std::vector<T> gather_lists(const std::vector<T>& mine) const;
  /// Every rank's text, in rank order, on rank 0 (empty elsewhere).
  std::vector<std::string> gather_texts(const std::string& text) const;
  std::string broadcast_text(const std::string& text, int root) const;

  struct Impl;
  const std::shared_ptr<Impl>& impl() const { return impl_; }

 private:
  explicit Comm(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  friend struct Impl;
  std::shared_ptr<Impl> impl_;
};

/// Initialises MPI (thread level FUNNELED or higher) and finalises it; a no-op without
/// MPI or where MPI runs already.
class MpiSession {
 public:
  MpiSession(int* argc, char*** argv);
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;

 private:
  bool started_;
};

/// Library name and version, for `capstan -c`.
std::string comm_version();

}  // namespace capstan
