#pragma once
/// \file The MPI side of mpi::Group, shared by the mpi_*_host.cpp files.
#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

#include <memory>
#include <vector>

#include "comm/backend.hpp"

namespace capstan::mpi {

/// Who waits for whom, so that a wait without end can be named.
struct Watch {
  std::vector<int> ranks;    ///< of the group, by their numbers in the world
  int rank = 0;              ///< place of this rank among them
  double stuck_seconds = 0;  ///< a longer wait ends the program; 0 = never
  std::int64_t operations =
      0;  ///< started on the group so far, the same on all its ranks
};

/// Scratch memory that goes back to its group's pool when the operation is done.
using Scratch = std::shared_ptr<std::vector<char>>;

struct Group::State {
  MPI_Comm comm = MPI_COMM_NULL;
  bool owned = false;  ///< freed with the group
  int rank = 0, size = 1;
  std::vector<Scratch> pool;
  std::shared_ptr<Watch> watch;
  unsigned sums =
      0;  ///< numbers the sums: their second steps may overtake other messages

  /// At least `bytes` bytes that nobody else holds.
  char* scratch(std::size_t bytes, Scratch& hold);
};

/// Throws Error(Exit::device) with MPI's text unless `code` is success.
void check(int code, const char* what);

MPI_Datatype datatype(Type type);

/// Requests of one operation, `what` for messages. Messages of a pair of ranks and a tag
/// match in the order of calls.
class Requests {
 public:
  Requests(const Group::State& group, std::size_t chunk, const char* what)
      : comm_(group.comm),
        chunk_(chunk),
        what_(what),
        watch_(group.watch),
        number_(++group.watch->operations) {}
  void use_tag(int tag) { tag_ = tag; }
  void receive(void* buffer, std::size_t bytes, int from);
  void send(const void* buffer, std::size_t bytes, int to);
  /// A request of a collective call.
  MPI_Request* add() { return add(-1); }
  /// Until all are done. Polls: briefly without a pause, then yielding the core, then
  /// with short sleeps, so that ranks that share cores let each other work. Ends the
  /// program with exit code 5 after Watch::stuck_seconds, naming the operation and the
  /// ranks.
  void wait();

 private:
  MPI_Request* add(int peer) {
    peers_.push_back(peer);
    return &list_.emplace_back(MPI_REQUEST_NULL);
  }
  bool test();
  [[noreturn]] void give_up(double seconds);

  MPI_Comm comm_;
  std::size_t chunk_;
  const char* what_;
  std::shared_ptr<Watch> watch_;
  std::int64_t number_;
  int tag_ = 0;
  std::vector<MPI_Request> list_;
  std::vector<int> peers_;  ///< of each request: the other rank, -1 = the group
};

}  // namespace capstan::mpi
