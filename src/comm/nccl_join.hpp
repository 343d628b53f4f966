#pragma once
/// \file How ranks meet in an NCCL group without MPI: for comm and the checks on GPUs.
#include "comm/backend.hpp"

namespace capstan::nccl {

/// What names a new group: one rank makes it and gives it to the others.
std::vector<char> new_id();
/// Collective over the `size` ranks that hold `id`, each with a current GPU of its own.
/// Error(Exit::device) when NCCL refuses.
std::shared_ptr<Group> join(const std::vector<char>& id, int rank, int size);

}  // namespace capstan::nccl
