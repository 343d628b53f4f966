#pragma once
/// \file The MPI side of mpi::Group, shared by the mpi_*_host.cpp files.
#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

#include <memory>
#include <vector>

#include "comm/backend.hpp"

namespace capstan::mpi {

/// Scratch memory that goes back to its group's pool when the operation is done.
using Scratch = std::shared_ptr<std::vector<char>>;

struct Group::State {
  MPI_Comm comm = MPI_COMM_NULL;
  bool owned = false;  ///< freed with the group
  int rank = 0, size = 1;
  std::vector<Scratch> pool;
  unsigned sums =
      0;  ///< numbers the sums: their second steps may overtake other messages

  /// At least `bytes` bytes that nobody else holds.
  char* scratch(std::size_t bytes, Scratch& hold);
};

/// Throws Error(Exit::device) with MPI's text unless `code` is success.
void check(int code, const char* what);

MPI_Datatype datatype(Type type);

/// Requests of one operation. Messages of a pair of ranks and a tag match in the order of
/// calls.
class Requests {
 public:
  Requests(MPI_Comm comm, std::size_t chunk) : comm_(comm), chunk_(chunk) {}
  void use_tag(int tag) { tag_ = tag; }
  void receive(void* buffer, std::size_t bytes, int from);
  void send(const void* buffer, std::size_t bytes, int to);
  MPI_Request* add() { return &list_.emplace_back(MPI_REQUEST_NULL); }
  void wait();

 private:
  MPI_Comm comm_;
  std::size_t chunk_;
  int tag_ = 0;
  std::vector<MPI_Request> list_;
};

}  // namespace capstan::mpi
