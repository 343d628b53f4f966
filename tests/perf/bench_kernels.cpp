// Elementwise kernels beside a copy of the same memory: GB/s counts every array once for
// each time that the formula reads or writes it. OMP_NUM_THREADS sets the threads.
#include <benchmark/benchmark.h>

#include "kernels/adamw.hpp"
#include "kernels/elements.hpp"
#include "kernels/swiglu.hpp"

using namespace capstan;

namespace {

template <class S>
View1<S> made(index_t n, double value) {
  View1<S> v("bench", n);
  fill(v, S(value));
  return v;
}

/// `arrays` = arrays of n elements of S that one call reads or writes.
template <class S>
void report(benchmark::State& state, int arrays) {
  state.counters["GB/s"] =
      benchmark::Counter(double(state.range(0)) * sizeof(S) * arrays * 1e-9,
                         benchmark::Counter::kIsIterationInvariantRate);
}

template <class S>
void copy(benchmark::State& state) {
  const index_t n = state.range(0);
  const auto a = made<S>(n, 1), b = made<S>(n, 2);
  for (auto _ : state) {
    par_elements(
        "copy", n, KOKKOS_LAMBDA(index_t i) { b(i) = a(i); });
    fence();
  }
  report<S>(state, 2);
}

template <class S>
void run_adamw(benchmark::State& state) {
  const index_t n = state.range(0);
  const auto g = made<S>(n, 0.1), w = made<S>(n, 1), m = made<S>(n, 0), v = made<S>(n, 0);
  AdamStep step;
  step.lr = 1e-4;
  for (auto _ : state) {
    adamw<S>(step, g, w, m, v, View1<S>());
    fence();
  }
  report<S>(state, 7);
}

template <class S>
void run_swiglu(benchmark::State& state) {
  const index_t n = state.range(0);
  const auto gate = made<S>(n, 0.3), up = made<S>(n, 0.4), y = made<S>(n, 0);
  for (auto _ : state) {
    swiglu<S>(gate, up, y);
    fence();
  }
  report<S>(state, 3);
}

template <class S>
void run_swiglu_backward(benchmark::State& state) {
  const index_t n = state.range(0);
  const auto gate = made<S>(n, 0.3), up = made<S>(n, 0.4), dy = made<S>(n, 0.5);
  const auto d_gate = made<S>(n, 0), d_up = made<S>(n, 0), y = made<S>(n, 0);
  for (auto _ : state) {
    swiglu_backward<S>(gate, up, dy, d_gate, d_up, y);
    fence();
  }
  report<S>(state, 6);
}

template <class S>
void run_add_to(benchmark::State& state) {
  const index_t n = state.range(0);
  const auto x = made<S>(n, 0.3), y = made<S>(n, 0.4);
  for (auto _ : state) {
    add_to<S>(x, y);
    fence();
  }
  report<S>(state, 3);
}

template <class S>
void run_sum_squares(benchmark::State& state) {
  const index_t n = state.range(0);
  const auto x = made<S>(n, 0.3);
  for (auto _ : state) benchmark::DoNotOptimize(sum_squares<S>(x));
  report<S>(state, 1);
}

/// In cache (64 Ki elements) and in memory (16 Mi).
void sizes(benchmark::internal::Benchmark* b) {
  b->ArgName("n")->Arg(1 << 16)->Arg(1 << 24)->UseRealTime();
}

BENCHMARK(copy<float>)->Apply(sizes);
BENCHMARK(run_adamw<float>)->Apply(sizes);
BENCHMARK(run_swiglu<float>)->Apply(sizes);
BENCHMARK(run_swiglu_backward<float>)->Apply(sizes);
BENCHMARK(run_add_to<float>)->Apply(sizes);
BENCHMARK(run_sum_squares<float>)->Apply(sizes);
BENCHMARK(run_swiglu<double>)->Apply(sizes);

}  // namespace

int main(int argc, char** argv) {
  Kokkos::initialize(argc, argv);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  Kokkos::finalize();
  return 0;
}
