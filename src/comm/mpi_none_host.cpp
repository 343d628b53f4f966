/// \file A build without MPI: there is no group of ranks.
#if !CAPSTAN_MPI
#include <cstdio>
#include <cstdlib>

#include "base/error.hpp"
#include "comm/backend.hpp"

namespace capstan::mpi {

struct Group::State {};

namespace {
[[noreturn]] void absent() {
  throw Error(Exit::internal, "this build has no MPI");
}
}  // namespace

Group::Group(std::unique_ptr<State> state) : state_(std::move(state)) {}
Group::~Group() = default;
int Group::rank() const {
  return 0;
}
int Group::size() const {
  return 1;
}
std::shared_ptr<Group> Group::split(int, int) const {
  absent();
}
void Group::watch(double) {}
void Group::barrier() {}
Finish Group::all_reduce(void*, std::int64_t, Type, Reduce) {
  absent();
}
Finish Group::exchange(const void*, std::vector<std::size_t>, void*,
                       std::vector<std::size_t>) {
  absent();
}
Finish Group::broadcast(void*, std::size_t, int) {
  absent();
}
Finish Group::gather_pieces(const void*, void*, std::vector<std::size_t>) {
  absent();
}
Finish Group::send(const void*, std::size_t, int) {
  absent();
}
Finish Group::receive(void*, std::size_t, int) {
  absent();
}
void Group::all_gather(const void*, void*, std::size_t) {
  absent();
}

bool init(int*, char***) {
  return false;
}
void finalize() {}
std::shared_ptr<Group> world() {
  return nullptr;
}

void abort(int code) {
  std::fflush(nullptr);
  std::_Exit(code);
}

std::string version() {
  return "no MPI";
}

}  // namespace capstan::mpi
#endif
