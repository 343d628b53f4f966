// main() of the unit tests without MPI: two threads, so that races between threads can
// show.
#include <gtest/gtest.h>

#include <Kokkos_Core.hpp>
#if defined(_OPENMP)
#include <omp.h>
#endif

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
#if defined(_OPENMP)
  omp_set_num_threads(2);
#endif
  Kokkos::initialize(argc, argv);
  const int failed = RUN_ALL_TESTS();
  Kokkos::finalize();
  return failed;
}
