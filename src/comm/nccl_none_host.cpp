/// \file A build without NCCL: no group has it.
#if !CAPSTAN_NCCL
#include "base/error.hpp"
#include "comm/nccl_join.hpp"

namespace capstan::nccl {

struct Group::State {};

namespace {
[[noreturn]] void absent() {
  throw Error(Exit::internal, "this build has no NCCL");
}
}  // namespace

Group::Group(std::unique_ptr<State> state) : state_(std::move(state)) {}
Group::~Group() = default;
Finish Group::all_reduce(void*, std::int64_t, Type, Reduce, void*) {
  absent();
}
Finish Group::exchange(const void*, const std::vector<std::size_t>&, void*,
                       const std::vector<std::size_t>&, void*) {
  absent();
}
Finish Group::broadcast(void*, std::size_t, int, void*) {
  absent();
}
Finish Group::gather_pieces(const void*, void*, const std::vector<std::size_t>&, void*) {
  absent();
}
Finish Group::send(const void*, std::size_t, int, void*) {
  absent();
}
Finish Group::receive(void*, std::size_t, int, void*) {
  absent();
}

std::vector<char> new_id() {
  absent();
}
std::shared_ptr<Group> join(const std::vector<char>&, int, int) {
  absent();
}
std::shared_ptr<Group> make(mpi::Group&) {
  return nullptr;
}
std::string version() {
  return "";
}

}  // namespace capstan::nccl
#endif
