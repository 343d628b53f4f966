#pragma once
/// \file Starts and ends Kokkos.
namespace capstan {

/// Kokkos with this many host threads; on a GPU build this process uses device
/// `local_rank` mod the number of devices.
class Runtime {
 public:
  Runtime(int threads, int local_rank);
  ~Runtime();
  Runtime(const Runtime&) = delete;
};

/// Cores that this process may use.
int usable_cores();

}  // namespace capstan
