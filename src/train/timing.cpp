// timing.txt: where the time of a segment went, and how far each phase is from the GEMM
// peak.
#include <algorithm>
#include <chrono>
#include <set>
#include <sstream>

#include "blas/gemm.hpp"
#include "io/publish.hpp"
#include "train/diagnostics.hpp"

namespace capstan {

namespace {

struct Line {
  std::string name;
  double mean = 0, least = 0, most = 0, calls = 0, gflop = 0;
};

Line over_ranks(const std::string& name, double seconds, double calls, double flops,
                const Comm& world) {
  double sums[3] = {seconds, calls, flops * 1e-9};
  double ends[2] = {seconds, -seconds};
  world.all_reduce_host(sums, 3, Reduce::sum);
  world.all_reduce_host(ends, 2, Reduce::min);
  const double n = world.size();
  return {name, sums[0] / n, ends[0], -ends[1], sums[1] / n, sums[2] / n};
}

std::string line_text(const Line& line, double total, double peak) {
  const double rate = line.mean > 0 ? line.gflop / line.mean : 0;
  return format("%s %.4f %.4f %.4f %.4f %.0f %.2f %.2f %.4f\n", line.name.c_str(),
                line.mean, line.least, line.most, total > 0 ? line.mean / total : 0,
                line.calls, line.gflop, rate, rate / peak);
}

/// The regions of all ranks, so that all reduce the same lines: stages differ.
std::string all_names(const Timers& timers, const Comm& world) {
  std::string names;
  for (const auto& [name, entry] : timers.table()) names += name + "\n";
  std::set<std::string> seen;
  for (const std::string& text : world.gather_texts(names)) {
    std::istringstream lines(text);
    for (std::string name; std::getline(lines, name);) seen.insert(name);
  }
  names.clear();
  for (const std::string& name : seen) names += name + "\n";
  return world.broadcast_text(names, 0);
}

}  // namespace

void write_timing(const std::string& path, int segment, std::int64_t steps,
                  std::int64_t tokens, double gemm_peak_gflops, int threads,
                  const Timers& timers, const Ledger& ledger, const std::string& more,
                  const Comm& world) {
  const std::string names = all_names(timers, world);
  std::vector<Line> lines;
  double accounted = 0, calls = 0, flops = 0;
  for (std::size_t at = 0; at < names.size();) {
    const std::size_t end = names.find('\n', at);
    const std::string name = names.substr(at, end - at);
    at = end + 1;
    const auto found = timers.table().find(name);
    const Timers::Entry entry =
        found == timers.table().end() ? Timers::Entry() : found->second;
    lines.push_back(
        over_ranks(name, entry.seconds, double(entry.calls), entry.flops, world));
    accounted += entry.seconds;
    calls += double(entry.calls);
    flops += entry.flops;
  }
  const double wall = timers.wall();
  const Line rest = over_ranks("unaccounted", wall - accounted, 0, 0, world);
  const Line total = over_ranks("total", wall, calls, flops, world);
  if (world.rank() != 0) return;
  std::sort(lines.begin(), lines.end(),
            [](const Line& a, const Line& b) { return a.mean > b.mean; });
  std::string text = format(
      "#timing segment=%d steps=%lld tokens=%lld ranks=%d threads=%d "
      "wall_seconds=%.3f gemm_peak_gflops=%.1f\n",
      segment, static_cast<long long>(steps), static_cast<long long>(tokens),
      world.size(), threads, wall, gemm_peak_gflops);
  text +=
      "#phase seconds_mean seconds_min seconds_max share calls gflop gflops "
      "peak_fraction\n";
  for (const Line& line : lines) text += line_text(line, total.mean, gemm_peak_gflops);
  text += line_text(rest, total.mean, gemm_peak_gflops);
  text += line_text(total, total.mean, gemm_peak_gflops);
  text += more;
  text += format("#memory peak_mib=%.1f (by name, rank 0, at the peak)\n",
                 double(ledger.peak()) / (1 << 20));
  for (const auto& [name, bytes] : ledger.at_peak()) {
    text += format("#memory %s %.2f\n", name.c_str(), double(bytes) / (1 << 20));
  }
  publish_text(path, text);
}

template <class S>
double measure_gemm_peak() {
  Context ctx(0, true);  // its own, so that the run's ledger does not see it
  constexpr index_t n = 768;
  const auto a = ctx.arena.take2<S>("peak", n, n);
  const auto b = ctx.arena.take2<S>("peak", n, n);
  const auto c = ctx.arena.take2<S>("peak", n, n);
  fill(a, S(0.5));
  fill(b, S(0.25));
  double best = 0;
  for (int i = 0; i < 6; ++i) {
    fence();
    const auto start = std::chrono::steady_clock::now();
    blas::gemm<S>(blas::Op::N, blas::Op::N, n, n, n, S(1), a.data(), n, b.data(), n, S(0),
                  c.data(), n);
    fence();
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    best = std::max(best, 2e-9 * double(n * n * n) / seconds);
  }
  return best;
}

#define CAPSTAN_PEAK(S) template double measure_gemm_peak<S>();
CAPSTAN_INSTANTIATE(CAPSTAN_PEAK)

}  // namespace capstan
