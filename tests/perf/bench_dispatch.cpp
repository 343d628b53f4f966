// Planning of an exchange over 64 ranks, as one of them does it for a layer and
// micro-batch: seconds per assignment must not depend on tokens nor, much, on experts.
// Arguments: tokens of the rank, experts. OMP_NUM_THREADS sets the threads.
#include <benchmark/benchmark.h>

#include "base/rng.hpp"
#include "model/moe/transport.hpp"

using namespace capstan;

namespace {

constexpr index_t kRanks = 64, kChoices = 8, kWidth = 128;

/// Eight different experts of each token.
View2<std::int32_t> random_experts(index_t tokens, index_t n_experts) {
  const Rng rng(1, 1);
  std::vector<std::int32_t> list;
  for (index_t t = 0; t < tokens; ++t) {
    const auto first = static_cast<index_t>(rng.bits(t) % n_experts);
    for (index_t k = 0; k < kChoices; ++k)
      list.push_back(static_cast<std::int32_t>((first + k * 5) % n_experts));
  }
  View2<std::int32_t> view("experts", tokens, kChoices);
  copy_to_device(list.data(), view.data(), static_cast<index_t>(list.size()));
  return view;
}

struct Case {
  explicit Case(const benchmark::State& state)
      : ctx(0, true), tokens(state.range(0)), n_experts(state.range(1)) {
    grid.n_expert = kRanks;
    assignments.experts = random_experts(tokens, n_experts);
    assignments.valid.assign(kRanks, tokens);
    assignments.n_experts = n_experts;
    assignments.width = kWidth;
    spec.waves = n_experts / kRanks % 2 == 0 ? 2 : 1;
  }
  void report(benchmark::State& state) const {
    state.counters["seconds/assignment"] = benchmark::Counter(
        double(tokens * kChoices),
        benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
  }
  Context ctx;
  Grid grid;
  Assignments assignments;
  TransportSpec spec;
  index_t tokens, n_experts;
};

/// What plan_ragged does but for the gather of the counts: all ranks have this rank's.
void ragged(benchmark::State& state) {
  Case c(state);
  for (auto _ : state) {
    const ArenaScope scope(c.ctx.arena);
    const SortedList list = sort_assignments(c.assignments.experts, c.n_experts, c.ctx);
    Counts counts{kRanks, c.n_experts, kRanks, {}};
    for (index_t s = 0; s < kRanks; ++s)
      counts.n.insert(counts.n.end(), list.counts.begin(), list.counts.end());
    const index_t capacity =
        capacity_rows(c.spec.capacity_receive, c.tokens * kChoices, c.spec.waves);
    const Counts kept = accept_ragged(counts, c.spec.waves, capacity, c.spec.policy);
    const DispatchPlan plan = plan_by_expert(list, row_of(kept, 0), arriving_of(kept, 0),
                                             c.spec, c.assignments, c.grid, c.ctx);
    benchmark::DoNotOptimize(plan.sent);
  }
  c.report(state);
}

/// The sender's plan, and at the receiver the grants of as many rows.
void pooled_wave(benchmark::State& state) {
  Case c(state);
  const index_t local = c.n_experts / kRanks;
  const Rng rng(2, 2);
  for (auto _ : state) {
    const ArenaScope scope(c.ctx.arena);
    DispatchPlan plan = plan_pooled_wave(c.spec, c.assignments, c.grid, c.ctx);
    for (Wave& wave : plan.waves) {
      std::vector<std::int32_t> ids(wave.arrived, 0);
      for (index_t s = 0; s < kRanks; ++s)
        for (index_t j = 0; j < plan.block_pool[s]; ++j)
          ids[plan.block_first[s] + j] =
              static_cast<std::int32_t>(1 + (s * 7 + j) % local);
      const Bank bank =
          grant_bank(ids, plan.block_first, plan.block_pool, local, plan.bank_capacity);
      benchmark::DoNotOptimize(bank.dropped);
    }
  }
  c.report(state);
}

void sizes(benchmark::internal::Benchmark* b) {
  for (const index_t tokens : {4096, 16384, 65536}) b->Args({tokens, 384});
  for (const index_t experts : {128, 1024, 4096}) b->Args({65536, experts});
  b->Unit(benchmark::kMillisecond)->UseRealTime();
}
BENCHMARK(ragged)->Apply(sizes);
BENCHMARK(pooled_wave)->Apply(sizes);

}  // namespace

int main(int argc, char** argv) {
  Kokkos::initialize(argc, argv);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  Kokkos::finalize();
  return 0;
}
