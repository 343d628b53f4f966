// main() of the tests that run on several ranks, one thread each. Rank 0 reports as
// usual; the others print what fails on them.
#include <gtest/gtest.h>

#include <Kokkos_Core.hpp>
#include <cstdio>

#include "comm/comm.hpp"
#if defined(_OPENMP)
#include <omp.h>
#endif

namespace {
class FailuresOnly : public testing::EmptyTestEventListener {
 public:
  explicit FailuresOnly(int rank) : rank_(rank) {}

 private:
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed()) return;
    std::fprintf(stderr, "rank %d: %s:%d: %s\n", rank_, result.file_name(),
                 result.line_number(), result.summary());
  }
  int rank_;
};
}  // namespace

int main(int argc, char** argv) {
  capstan::MpiSession session(&argc, &argv);
  testing::InitGoogleTest(&argc, argv);
#if defined(_OPENMP)
  omp_set_num_threads(1);
#endif
  Kokkos::initialize(argc, argv);
  const int rank = capstan::Comm::world().rank();
  if (rank != 0) {
    auto& listeners = testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new FailuresOnly(rank));
  }
  const int failed = RUN_ALL_TESTS();
  Kokkos::finalize();
  return failed;
}
