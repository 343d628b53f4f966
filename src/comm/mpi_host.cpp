/// \file MPI: start and end, groups, errors, point-to-point pieces.
#if CAPSTAN_MPI
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>

#include "base/error.hpp"
#include "comm/mpi_state_host.hpp"

namespace capstan::mpi {

void check(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw Error(Exit::device, std::string(what) + ": " + std::string(text, length));
}

MPI_Datatype datatype(Type type) {
  switch (type) {
    case Type::f64:
      return MPI_DOUBLE;
    case Type::f32:
      return MPI_FLOAT;
    case Type::i32:
      return MPI_INT32_T;
    case Type::i64:
      return MPI_INT64_T;
    case Type::u64:
      return MPI_UINT64_T;
    case Type::u8:
      return MPI_UINT8_T;
    case Type::bf16:
      break;
  }
  throw Error(Exit::internal, "bf16 values cannot be reduced");
}

char* Group::State::scratch(std::size_t bytes, Scratch& hold) {
  for (const Scratch& s : pool)
    if (s.use_count() == 1) hold = s;  // only the pool holds it
  if (!hold) hold = pool.emplace_back(std::make_shared<std::vector<char>>());
  if (hold->size() < bytes) hold->resize(bytes);
  return hold->data();
}

void Requests::receive(void* buffer, std::size_t bytes, int from) {
  auto* p = static_cast<char*>(buffer);
  for (std::size_t at = 0; at < bytes; at += chunk_) {
    const int n = static_cast<int>(std::min(chunk_, bytes - at));
    check(MPI_Irecv(p + at, n, MPI_BYTE, from, tag_, comm_, add(from)), "MPI_Irecv");
  }
}

void Requests::send(const void* buffer, std::size_t bytes, int to) {
  const auto* p = static_cast<const char*>(buffer);
  for (std::size_t at = 0; at < bytes; at += chunk_) {
    const int n = static_cast<int>(std::min(chunk_, bytes - at));
    check(MPI_Isend(p + at, n, MPI_BYTE, to, tag_, comm_, add(to)), "MPI_Isend");
  }
}

namespace {

/// Numbers in the world of the ranks of a group.
std::vector<int> world_ranks(MPI_Comm comm, int size) {
  std::vector<int> mine(size), world(size);
  std::iota(mine.begin(), mine.end(), 0);
  MPI_Group group, all;
  check(MPI_Comm_group(comm, &group), "MPI_Comm_group");
  check(MPI_Comm_group(MPI_COMM_WORLD, &all), "MPI_Comm_group");
  check(MPI_Group_translate_ranks(group, size, mine.data(), all, world.data()),
        "MPI_Group_translate_ranks");
  check(MPI_Group_free(&group), "MPI_Group_free");
  check(MPI_Group_free(&all), "MPI_Group_free");
  return world;
}

std::shared_ptr<Group> make_group(MPI_Comm comm, bool owned, double stuck_seconds) {
  auto state = std::make_unique<Group::State>();
  state->comm = comm;
  state->owned = owned;
  check(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check(MPI_Comm_rank(comm, &state->rank), "MPI_Comm_rank");
  check(MPI_Comm_size(comm, &state->size), "MPI_Comm_size");
  state->watch = std::make_shared<Watch>();
  state->watch->ranks = world_ranks(comm, state->size);
  state->watch->rank = state->rank;
  state->watch->stuck_seconds = stuck_seconds;
  return std::make_shared<Group>(std::move(state));
}

}  // namespace

Group::Group(std::unique_ptr<State> state) : state_(std::move(state)) {}

Group::~Group() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (state_->owned && finalized == 0) MPI_Comm_free(&state_->comm);
}

int Group::rank() const {
  return state_->rank;
}
int Group::size() const {
  return state_->size;
}

std::shared_ptr<Group> Group::split(int color, int key) const {
  MPI_Comm part = MPI_COMM_NULL;
  check(MPI_Comm_split(state_->comm, color, key, &part), "MPI_Comm_split");
  return make_group(part, true, state_->watch->stuck_seconds);
}

void Group::watch(double stuck_seconds) {
  state_->watch->stuck_seconds = stuck_seconds;
}

void Group::barrier() {
  Requests requests(*state_, chunk_bytes, "a barrier");
  check(MPI_Ibarrier(state_->comm, requests.add()), "MPI_Ibarrier");
  requests.wait();
}

bool init(int* argc, char*** argv) {
  int running = 0, level = 0;
  MPI_Initialized(&running);
  if (running != 0) return false;
  check(MPI_Init_thread(argc, argv, MPI_THREAD_SERIALIZED, &level), "MPI_Init_thread");
  if (level < MPI_THREAD_FUNNELED)
    throw Error(Exit::device, "this MPI library does not support threads");
  return true;
}

void finalize() {
  MPI_Finalize();
}

std::shared_ptr<Group> world() {
  int running = 0, finalized = 0;
  MPI_Initialized(&running);
  MPI_Finalized(&finalized);
  if (running == 0 || finalized != 0) return nullptr;
  return make_group(MPI_COMM_WORLD, false, 0);
}

void abort(int code) {
  std::fflush(nullptr);
  int running = 0, finalized = 0;
  MPI_Initialized(&running);
  MPI_Finalized(&finalized);
  if (running != 0 && finalized == 0) MPI_Abort(MPI_COMM_WORLD, code);
  std::_Exit(code);
}

std::string version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(text, &length);
  const std::string all(text, length);
  return all.substr(0, all.find_first_of(",\n"));
}

}  // namespace capstan::mpi
#endif
