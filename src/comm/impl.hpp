#pragma once
/// \file Inside of Comm: which backends a group has. For this floor and its tests.
#include "comm/comm.hpp"

namespace capstan {

/// Without `mpi` the group is this process alone; `nccl`, where present, takes the device
/// verbs.
struct Comm::Impl {
  int rank = 0, size = 1;
  std::shared_ptr<mpi::Group> mpi;
  std::shared_ptr<nccl::Group> nccl;

  static Comm wrap(std::shared_ptr<mpi::Group> group);
  bool alone() const { return size == 1; }
};

struct Pending::State {
  explicit State(Finish f) : finish(std::move(f)) {}
  ~State();
  void complete();
  Finish finish;
};

template <class T>
constexpr Type type_of() {
  if constexpr (std::is_same_v<T, double>) return Type::f64;
  if constexpr (std::is_same_v<T, float>) return Type::f32;
  if constexpr (std::is_same_v<T, bf16>) return Type::bf16;
  if constexpr (std::is_same_v<T, std::int32_t>) return Type::i32;
  if constexpr (std::is_same_v<T, std::int64_t>) return Type::i64;
  if constexpr (std::is_same_v<T, std::uint64_t>) return Type::u64;
  if constexpr (std::is_same_v<T, std::uint8_t>) return Type::u8;
}

}  // namespace capstan
