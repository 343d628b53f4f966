#include "train/driver.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <thread>

#include "base/build_info.hpp"
#include "base/hash.hpp"
#include "base/signals.hpp"
#include "blas/gemm.hpp"
#include "deck/support.hpp"
#include "io/file.hpp"
#include "train/export.hpp"
#include "train/tiny.hpp"

namespace capstan {

namespace {

/// This rank's place among the ranks of its node, and their number.
struct NodePlace {
  int local_rank = 0, ranks = 1;
};

NodePlace node_place(const Comm& world) {
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  const std::uint64_t mine = hash_bytes(host, std::string(host).size());
  std::vector<std::uint64_t> all(world.size());
  world.all_gather_host(&mine, all.data(), 1);
  NodePlace place;
  place.ranks = static_cast<int>(std::count(all.begin(), all.end(), mine));
  place.local_rank =
      static_cast<int>(std::count(all.begin(), all.begin() + world.rank(), mine));
  return place;
}

Exit report_tiny(const StepReport& report, const Grid& grid, Context& ctx) {
  ctx.log.info("tiny: ok loss=%.6f grad_norm=%.6f grid=%dx%dx%d seconds=%.3f",
               report.cross_entropy, report.gradient.total, grid.n_pipe, grid.n_data,
               grid.n_expert, report.seconds);
  return Exit::done;
}

template <class S>
Exit run_mode(const CommandLine& line, const Deck& deck, const Grid& grid, int threads,
              Context& ctx) {
  Run<S> run(deck, line, grid, threads, ctx);
  switch (line.mode) {
    case CommandLine::Mode::eval:
      return run.evaluate();
    case CommandLine::Mode::generate:
      return run.sample();
    case CommandLine::Mode::tiny:
      return report_tiny(run.single_step(), grid, ctx);
    default:
      return run.train();
  }
}

Exit build_and_run(const CommandLine& line, const Deck& deck, int threads,
                   const Comm& world) {
  world.watch(deck.real("job/stuck_seconds"));
  const Grid grid = Grid::build(world, static_cast<int>(deck.integer("grid/pipe")),
                                static_cast<int>(deck.integer("grid/data")),
                                static_cast<int>(deck.integer("grid/expert")));
  install_signal_handlers();
  Context ctx(world.rank());
  const std::string& scalar = deck.text("model/scalar");
  if (scalar == "double") return run_mode<double>(line, deck, grid, threads, ctx);
  if (scalar == "bf16") return run_mode<bf16>(line, deck, grid, threads, ctx);
  return run_mode<float>(line, deck, grid, threads, ctx);
}

std::string not_served(const CommandLine& line) {
  if (line.mode == CommandLine::Mode::check_grids) return "--check-grids";
  return "";
}

}  // namespace

Deck deck_for(const CommandLine& line) {
  if (!line.decks.empty() || line.restart.empty()) {
    return Deck::load(line.decks, line.overrides);
  }
  const CheckpointInfo info = readable_checkpoint(line.restart, line.run_dir + "/ckpt");
  return Deck::parse(info.text("deck"), info.path + " (deck)", line.overrides);
}

Exit drive(const CommandLine& line, const Deck& deck, const Comm& world) {
  const std::string missing = not_served(line);
  if (!missing.empty()) throw Error(Exit::deck, missing + " is not served yet");
  const NodePlace place = node_place(world);
  int threads = static_cast<int>(deck.integer("job/threads"));
  if (threads == 0) threads = std::max(1, usable_cores() / place.ranks);
  const Runtime runtime(threads, place.local_rank);
  const bool tiny = line.mode == CommandLine::Mode::tiny;
  std::vector<std::string> lines = unsupported(deck);
  for (const std::string& text :
       group_problems(deck, param_list(ModelShape::from_deck(deck))))
    lines.push_back(text);
  if (!tiny) {
    for (const std::string& text : missing_for_run(deck)) lines.push_back(text);
  }
  refuse("this deck cannot be run", lines);
  if (!tiny) return build_and_run(line, deck, threads, world);
  const RandomTokens tokens;
  return build_and_run(line, tiny_deck(deck, world.size(), tokens.prefix()), threads,
                       world);
}

Exit verify(const std::string& path, const Comm& world) {
  const auto problems = verify_checkpoint(path, world);
  if (world.rank() == 0) {
    for (const std::string& line : problems) std::printf("%s\n", line.c_str());
    const std::size_t n = problems.size();
    const std::string found = format("%zu problem%s", n, n == 1 ? "" : "s");
    std::printf("verify: %s: %s\n", path.c_str(), n == 0 ? "intact" : found.c_str());
  }
  return problems.empty() ? Exit::done : Exit::file;
}

Exit export_model(const CommandLine& line, const Comm& world) {
  if (world.rank() != 0) return Exit::done;
  ExportSpec spec;
  spec.checkpoint = line.restart;
  spec.folder = line.run_dir + "/ckpt";
  spec.out = line.export_dir;
  const ExportResult result = export_weights(spec);
  std::printf("export: %s: tensors=%lld bytes=%lld files=%lld\n", spec.out.c_str(),
              static_cast<long long>(result.tensors),
              static_cast<long long>(result.bytes), static_cast<long long>(result.files));
  return Exit::done;
}

std::string config_text() {
  const BuildInfo& info = build_info();
  return format(
      "capstan %s (%s), %s build\ncompiler   %s\nKokkos     %s\nGEMM bf16  %s\n"
      "GEMM float %s\nGEMM double %s\nMPI        %s; %s\nHDF5       %s\nCUDA       %s\n",
      info.version, info.commit, info.build_type, info.compiler, info.kokkos,
      blas::backend_bf16(), blas::backend_float(), blas::backend_double(), info.mpi,
      comm_version().c_str(), hdf5_version().c_str(), info.cuda);
}

int report_failure(const Comm& world, Exit code, const std::string& text) {
  // Errors that every rank finds alike (decks, missing files) are printed once, and all
  // ranks end by themselves. Where only some ranks fail, the others wait for them: so a
  // rank other than 0 gives rank 0 a moment, then speaks and ends them all.
  const bool alike = code == Exit::deck || code == Exit::file;
  if (world.rank() != 0) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  if (world.rank() == 0 || !alike) {
    std::fprintf(stderr, "capstan: %s\n", text.c_str());
    std::fflush(stderr);
  }
  if (world.size() > 1 && !alike) world.abort(static_cast<int>(code));
  return static_cast<int>(code);
}

}  // namespace capstan
