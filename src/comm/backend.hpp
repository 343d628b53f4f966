#pragma once
/// \file What the communicator needs of MPI and NCCL, in plain types: this header and the
/// *_host.cpp files behind it know neither Kokkos nor each other. Without CAPSTAN_MPI or
/// CAPSTAN_NCCL (0) the *_none_host.cpp files take their places.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace capstan {

enum class Reduce { sum, min, max };

/// Element type of a message.
enum class Type { f64, f32, bf16, i32, i64, u64, u8 };
inline std::size_t bytes_of(Type type) {
  switch (type) {
    case Type::f64:
    case Type::i64:
    case Type::u64:
      return 8;
    case Type::f32:
    case Type::i32:
      return 4;
    case Type::bf16:
      return 2;
    case Type::u8:
      return 1;
  }
  return 0;
}

/// Completes a started operation; empty when nothing is left to do.
using Finish = std::function<void()>;

namespace mpi {

/// A communicator on host memory. Every rank calls the verbs in the same order, and the
/// Finishes in the same order (a sum goes through a second exchange in its Finish);
/// buffers stay untouched until then. Error(Exit::device) when MPI reports a failure.
class Group {
 public:
  struct State;
  explicit Group(std::unique_ptr<State> state);
  ~Group();
  Group(const Group&) = delete;

  int rank() const;
  int size() const;
  std::shared_ptr<Group> split(int color, int key) const;
  /// A wait of more than this many seconds ends the program with exit code 5 and names
  /// the operation and the ranks; 0 = never. Groups that are split off later inherit it.
  void watch(double stuck_seconds);
  void barrier();
  /// In place. Floating-point sums add the ranks' values in rank order, so that the
  /// result is the same bits on all ranks and in every run, whatever the MPI library
  /// does.
  Finish all_reduce(void* buffer, std::int64_t n, Type type, Reduce op);
  /// bytes[r] bytes to and from rank r, in rank order; what the pair agreed on must
  /// match.
  Finish exchange(const void* send, std::vector<std::size_t> send_bytes, void* receive,
                  std::vector<std::size_t> receive_bytes);
  Finish broadcast(void* buffer, std::size_t bytes, int root);
  /// bytes[r] bytes of rank r, in rank order; the own piece may lie in place already.
  Finish gather_pieces(const void* send, void* receive, std::vector<std::size_t> bytes);
  /// Messages of a pair of ranks match in the order of calls.
  Finish send(const void* buffer, std::size_t bytes, int to);
  Finish receive(void* buffer, std::size_t bytes, int from);
  /// receive: size() * bytes, in rank order.
  void all_gather(const void* send, void* receive, std::size_t bytes);

  /// Messages are sent in pieces of at most this (MPI counts are int).
  std::size_t chunk_bytes = std::size_t(1) << 30;
  /// A floating-point sum takes at most about this much scratch.
  std::size_t scratch_bytes = std::size_t(256) << 20;
  /// Floating-point sums up to this size gather every rank's values instead of exchanging
  /// blocks.
  std::size_t gather_bytes = std::size_t(4) << 10;

 private:
  Finish sum_in_rank_order(char* buffer, std::int64_t n, Type type);
  Finish sum_gathered(char* buffer, std::int64_t n, Type type);
  Finish sum_by_blocks(char* buffer, std::int64_t n, Type type);
  std::unique_ptr<State> state_;
};

/// False when there is no MPI in this build or it runs already.
bool init(int* argc, char*** argv);
void finalize();
/// The group of all ranks, or null when MPI was not initialised.
std::shared_ptr<Group> world();
[[noreturn]] void abort(int code);
std::string version();

}  // namespace mpi

namespace nccl {

/// A communicator on the memory of GPUs. Verbs are ordered after what was launched on
/// `compute` (a cudaStream_t), and their Finish makes `compute` wait for them, not the
/// host.
class Group {
 public:
  struct State;
  explicit Group(std::unique_ptr<State> state);
  ~Group();
  Group(const Group&) = delete;
  Finish all_reduce(void* buffer, std::int64_t n, Type type, Reduce op, void* compute);
  Finish exchange(const void* send, const std::vector<std::size_t>& send_bytes,
                  void* receive, const std::vector<std::size_t>& receive_bytes,
                  void* compute);
  Finish broadcast(void* buffer, std::size_t bytes, int root, void* compute);
  Finish gather_pieces(const void* send, void* receive,
                       const std::vector<std::size_t>& bytes, void* compute);
  Finish send(const void* buffer, std::size_t bytes, int to, void* compute);
  Finish receive(void* buffer, std::size_t bytes, int from, void* compute);

 private:
  std::unique_ptr<State> state_;
};

/// Collective over `group`. Null unless every rank has a GPU that no other rank of it
/// uses.
std::shared_ptr<Group> make(mpi::Group& group);
/// "" when there is no NCCL in this build.
std::string version();

}  // namespace nccl

}  // namespace capstan
