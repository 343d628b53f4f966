// Matrix products at the shapes of the desk deck (inputs/bench/desk.deck). The counter
// GFLOP/s is what to read; `peak` runs nothing but fused multiply-adds and is the roof.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#if defined(_OPENMP)
#include <omp.h>
#endif

#include "blas/gemm.hpp"

using namespace capstan::blas;

namespace {

void set_threads([[maybe_unused]] int n) {
#if defined(_OPENMP)
  omp_set_num_threads(n);
#endif
}

void report(benchmark::State& state, double flops) {
  state.counters["GFLOP/s"] =
      benchmark::Counter(flops * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

/// Independent fused multiply-adds in registers: 16 vectors of 16 floats.
float multiply_adds(int rounds) {
  typedef float Pack __attribute__((vector_size(64)));
  Pack sum[16];
  for (int i = 0; i < 16; ++i) sum[i] = Pack{} + float(i);
  const Pack x = Pack{} + 0.999f, y = Pack{} + 0.5f;
  for (int r = 0; r < rounds; ++r) {
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) sum[i] = sum[i] * x + y;
  }
  float total = 0;
  for (const Pack& s : sum) total += s[0];
  return total;
}

void peak(benchmark::State& state) {
  constexpr int rounds = 200000;
  const int threads = int(state.range(0));
  set_threads(threads);
  for (auto _ : state) {
#pragma omp parallel num_threads(threads)
    benchmark::DoNotOptimize(multiply_adds(rounds));
  }
  report(state, 2.0 * 16 * 16 * rounds * threads);
}

/// The three products of a linear layer y [t, out] = x [t, in] W [in, out].
enum Kind { forward, input_gradient, weight_gradient };

template <class S>
void linear(benchmark::State& state) {
  const Kind kind = Kind(state.range(0));
  const index_t t = state.range(1), in = state.range(2), out = state.range(3);
  set_threads(int(state.range(4)));
  std::vector<S> x(t * in, S(0.3)), w(in * out, S(0.2)), y(t * out, S(0.1));
  for (auto _ : state) {
    if (kind == forward)
      gemm<S>(Op::N, Op::N, t, out, in, 1, x.data(), in, w.data(), out, 0, y.data(), out);
    else if (kind == input_gradient)
      gemm<S>(Op::N, Op::T, t, in, out, 1, y.data(), out, w.data(), out, 0, x.data(), in);
    else
      gemm<S>(Op::T, Op::N, in, out, t, 1, x.data(), in, y.data(), out, 0, w.data(), out);
    benchmark::ClobberMemory();
  }
  report(state, 2.0 * t * in * out);
}

/// Offsets of `groups` with log-normal loads that differ from draw to draw.
std::vector<index_t> uneven_load(index_t groups, index_t rows, unsigned seed) {
  std::mt19937 random(seed);
  std::lognormal_distribution<double> load(0.0, 0.5);
  std::vector<double> share(groups);
  double total = 0;
  for (double& s : share) total += s = load(random);
  std::vector<index_t> offsets(groups + 1, 0);
  double sum = 0;
  for (index_t g = 0; g < groups; ++g)
    offsets[g + 1] = index_t((sum += share[g]) / total * rows);
  offsets[groups] = rows;
  return offsets;
}

/// The same for experts, with a new load at every call.
template <class S>
void experts(benchmark::State& state) {
  const Kind kind = Kind(state.range(0));
  const index_t groups = state.range(1), in = state.range(2), out = state.range(3);
  const index_t rows = 32768;
  set_threads(int(state.range(4)));
  std::vector<std::vector<index_t>> loads;
  for (unsigned s = 0; s < 16; ++s) loads.push_back(uneven_load(groups, rows, s));
  std::vector<S> x(rows * in, S(0.3)), w(groups * in * out, S(0.2)),
      y(rows * out, S(0.1));
  std::size_t call = 0;
  for (auto _ : state) {
    const index_t* offsets = loads[call++ % loads.size()].data();
    if (kind == forward)
      grouped_gemm<S>(Op::N, groups, offsets, in, out, 1, x.data(), w.data(), 0,
                      y.data());
    else if (kind == input_gradient)
      grouped_gemm<S>(Op::T, groups, offsets, out, in, 1, y.data(), w.data(), 0,
                      x.data());
    else
      grouped_gemm_weights<S>(groups, offsets, in, out, 1, x.data(), y.data(), 0,
                              w.data());
    benchmark::ClobberMemory();
  }
  report(state, 2.0 * rows * in * out);
}

void linear_shapes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"kind", "tokens", "in", "out", "threads"});
  const std::vector<std::vector<std::int64_t>> shapes = {
      {4096, 256, 256}, {4096, 256, 64},  {4096, 256, 32},  {4096, 32, 256},
      {4096, 256, 128}, {4096, 128, 256}, {512, 256, 8192}, {1024, 256, 8192}};
  for (int threads : {1, 2})
    for (const auto& s : shapes)
      for (int kind : {forward, input_gradient, weight_gradient})
        b->Args({kind, s[0], s[1], s[2], threads});
  b->UseRealTime();
}

void expert_shapes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"kind", "groups", "in", "out", "threads"});
  for (int threads : {1, 2})
    for (int groups : {64, 384})
      for (int out : {128, 256})
        for (int kind : {forward, input_gradient, weight_gradient})
          b->Args({kind, groups, 128, out, threads});
  b->UseRealTime();
}

BENCHMARK(peak)->ArgName("threads")->Arg(1)->Arg(2)->UseRealTime();
BENCHMARK(linear<float>)->Apply(linear_shapes);
BENCHMARK(experts<float>)->Apply(expert_shapes);
BENCHMARK(linear<double>)
    ->ArgNames({"kind", "tokens", "in", "out", "threads"})
    ->Args({forward, 4096, 256, 256, 1})
    ->Args({forward, 4096, 256, 256, 2})
    ->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
