/// \file NCCL: verbs on GPU memory, on a stream of their own, so that a wave travels
/// while the one before it is computed. Events order the two streams; the host waits for
/// none.
#if CAPSTAN_NCCL
#include <cuda_runtime.h>
#include <nccl.h>
#include <unistd.h>

#include <cstring>
#include <set>

#include "base/error.hpp"
#include "comm/nccl_join.hpp"

namespace capstan::nccl {

namespace {

void check(cudaError_t code, const char* what) {
  if (code != cudaSuccess)
    throw Error(Exit::device, std::string(what) + ": " + cudaGetErrorString(code));
}

void check(ncclResult_t code, const char* what) {
  if (code != ncclSuccess)
    throw Error(Exit::device, std::string(what) + ": " + ncclGetErrorString(code));
}

ncclDataType_t datatype(Type type) {
  switch (type) {
    case Type::f64:
      return ncclFloat64;
    case Type::f32:
      return ncclFloat32;
    case Type::bf16:
      return ncclBfloat16;
    case Type::i32:
      return ncclInt32;
    case Type::i64:
      return ncclInt64;
    case Type::u64:
      return ncclUint64;
    case Type::u8:
      return ncclUint8;
  }
  throw Error(Exit::internal, "unknown element type");
}

ncclRedOp_t operation(Reduce op) {
  return op == Reduce::sum ? ncclSum : op == Reduce::min ? ncclMin : ncclMax;
}

/// Where this rank's GPU is: node name and PCI address; empty without one.
struct Place {
  char node[192] = {}, bus[64] = {};
};

Place find_place() {
  Place place;
  int count = 0, device = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) return place;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetPCIBusId(place.bus, sizeof place.bus - 1, device),
        "cudaDeviceGetPCIBusId");
  gethostname(place.node, sizeof place.node - 1);
  return place;
}

/// One GPU for each rank?
bool all_distinct(const std::vector<Place>& places) {
  std::set<std::string> seen;
  for (const Place& p : places)
    if (p.bus[0] == 0 || !seen.insert(std::string(p.node) + "/" + p.bus).second)
      return false;
  return true;
}

}  // namespace

struct Group::State {
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  int size = 1;

  /// The group's stream goes on when `compute` has come here.
  void begin(cudaStream_t compute) const {
    cudaEvent_t ready;
    check(cudaEventCreateWithFlags(&ready, cudaEventDisableTiming), "cudaEventCreate");
    check(cudaEventRecord(ready, compute), "cudaEventRecord");
    check(cudaStreamWaitEvent(stream, ready, 0), "cudaStreamWaitEvent");
    check(cudaEventDestroy(ready), "cudaEventDestroy");
  }
  /// `compute` will go on, from the call of the Finish, when the group's stream has come
  /// here.
  Finish end(cudaStream_t compute) const {
    cudaEvent_t done;
    check(cudaEventCreateWithFlags(&done, cudaEventDisableTiming), "cudaEventCreate");
    check(cudaEventRecord(done, stream), "cudaEventRecord");
    return [done, compute] {
      check(cudaStreamWaitEvent(compute, done, 0), "cudaStreamWaitEvent");
      check(cudaEventDestroy(done), "cudaEventDestroy");
    };
  }
};

Group::Group(std::unique_ptr<State> state) : state_(std::move(state)) {}

Group::~Group() {
  cudaStreamSynchronize(state_->stream);
  ncclCommDestroy(state_->comm);
  cudaStreamDestroy(state_->stream);
}

Finish Group::all_reduce(void* buffer, std::int64_t n, Type type, Reduce op,
                         void* compute) {
  auto* stream = static_cast<cudaStream_t>(compute);
  state_->begin(stream);
  check(ncclAllReduce(buffer, buffer, static_cast<std::size_t>(n), datatype(type),
                      operation(op), state_->comm, state_->stream),
        "ncclAllReduce");
  return state_->end(stream);
}

Finish Group::exchange(const void* send, const std::vector<std::size_t>& send_bytes,
                       void* receive, const std::vector<std::size_t>& receive_bytes,
                       void* compute) {
  auto* stream = static_cast<cudaStream_t>(compute);
  const auto* out = static_cast<const char*>(send);
  auto* in = static_cast<char*>(receive);
  state_->begin(stream);
  check(ncclGroupStart(), "ncclGroupStart");
  for (int r = 0; r < state_->size; ++r) {
    if (send_bytes[r] > 0)
      check(ncclSend(out, send_bytes[r], ncclUint8, r, state_->comm, state_->stream),
            "ncclSend");
    if (receive_bytes[r] > 0)
      check(ncclRecv(in, receive_bytes[r], ncclUint8, r, state_->comm, state_->stream),
            "ncclRecv");
    out += send_bytes[r];
    in += receive_bytes[r];
  }
  check(ncclGroupEnd(), "ncclGroupEnd");
  return state_->end(stream);
}

Finish Group::broadcast(void* buffer, std::size_t bytes, int root, void* compute) {
  auto* stream = static_cast<cudaStream_t>(compute);
  state_->begin(stream);
  check(
      ncclBroadcast(buffer, buffer, bytes, ncclUint8, root, state_->comm, state_->stream),
      "ncclBroadcast");
  return state_->end(stream);
}

Finish Group::gather_pieces(const void* send, void* receive,
                            const std::vector<std::size_t>& bytes, void* compute) {
  auto* stream = static_cast<cudaStream_t>(compute);
  auto* in = static_cast<char*>(receive);
  state_->begin(stream);
  check(ncclGroupStart(), "ncclGroupStart");
  for (int r = 0; r < state_->size; in += bytes[r++]) {
    if (bytes[r] == 0) continue;
    // only the root reads its first argument
    check(ncclBroadcast(send, in, bytes[r], ncclUint8, r, state_->comm, state_->stream),
          "ncclBroadcast");
  }
  check(ncclGroupEnd(), "ncclGroupEnd");
  return state_->end(stream);
}

std::vector<char> new_id() {
  ncclUniqueId id;
  check(ncclGetUniqueId(&id), "ncclGetUniqueId");
  std::vector<char> bytes(sizeof id);
  std::memcpy(bytes.data(), &id, sizeof id);
  return bytes;
}

std::shared_ptr<Group> join(const std::vector<char>& bytes, int rank, int size) {
  ncclUniqueId id;
  require(bytes.size() == sizeof id, "NCCL: an id of another version");
  std::memcpy(&id, bytes.data(), sizeof id);
  auto state = std::make_unique<Group::State>();
  state->size = size;
  check(cudaStreamCreateWithFlags(&state->stream, cudaStreamNonBlocking),
        "cudaStreamCreate");
  check(ncclCommInitRank(&state->comm, size, id, rank), "ncclCommInitRank");
  return std::make_shared<Group>(std::move(state));
}

Finish Group::send(const void* buffer, std::size_t bytes, int to, void* compute) {
  auto* stream = static_cast<cudaStream_t>(compute);
  state_->begin(stream);
  check(ncclSend(buffer, bytes, ncclUint8, to, state_->comm, state_->stream), "ncclSend");
  return state_->end(stream);
}

Finish Group::receive(void* buffer, std::size_t bytes, int from, void* compute) {
  auto* stream = static_cast<cudaStream_t>(compute);
  state_->begin(stream);
  check(ncclRecv(buffer, bytes, ncclUint8, from, state_->comm, state_->stream),
        "ncclRecv");
  return state_->end(stream);
}

std::shared_ptr<Group> make(mpi::Group& group) {
  const Place mine = find_place();
  std::vector<Place> places(group.size());
  group.all_gather(&mine, places.data(), sizeof(Place));
  if (!all_distinct(places)) return nullptr;
  std::vector<char> id(sizeof(ncclUniqueId));
  if (group.rank() == 0) id = new_id();
  group.broadcast(id.data(), id.size(), 0)();
  return join(id, group.rank(), group.size());
}

std::string version() {
  int v = 0;
  check(ncclGetVersion(&v), "ncclGetVersion");
  return "NCCL " + std::to_string(v / 10000) + "." + std::to_string(v / 100 % 100) + "." +
         std::to_string(v % 100);
}

}  // namespace capstan::nccl
#endif
