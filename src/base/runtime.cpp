#include "base/runtime.hpp"

#include <sched.h>

#include <string>

#include "base/types.hpp"
#if defined(_OPENMP)
#include <omp.h>
#endif

namespace capstan {

Runtime::Runtime(int threads, int local_rank) {
#if defined(_OPENMP)
  omp_set_num_threads(threads);  // what Kokkos, oneDNN and OpenBLAS all go by
#endif
  std::string program = "capstan",
              device = "--kokkos-device-id=" + std::to_string(local_rank);
  char* arguments[] = {program.data(), device.data(), nullptr};
  int count = kOnHost ? 1 : 2;
  if (kOnHost) arguments[1] = nullptr;
  Kokkos::initialize(count, arguments);
  (void)threads;
}

Runtime::~Runtime() {
  Kokkos::finalize();
}

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return CPU_COUNT(&set);
}

}  // namespace capstan
