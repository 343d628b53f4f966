// capstan: trains mixture-of-experts language models on a grid of MPI ranks.
#include <unistd.h>

#include <cstdio>

#include "base/build_info.hpp"
#include "base/signals.hpp"
#include "deck/command_line.hpp"
#include "deck/help.hpp"
#include "deck/support.hpp"
#include "plan/plan.hpp"
#include "train/driver.hpp"

namespace capstan {
namespace {

/// Modes that need no Kokkos: true when the command line was served.
bool served_without_model(const CommandLine& line, const Deck& deck) {
  if (line.mode == CommandLine::Mode::check) {
    std::printf("%s", deck.dump().c_str());
    for (const std::string& note : unsupported(deck))
      std::printf("# note: %s\n", note.c_str());
    return true;
  }
  if (line.mode == CommandLine::Mode::plan) {
    std::printf("%s", plan_text(deck, make_plan(deck)).c_str());
    return true;
  }
  return false;
}

int run(const std::vector<std::string>& arguments, const Comm& world) {
  // 1. What is asked for.
  const CommandLine line = parse_command_line(arguments);
  const bool first = world.rank() == 0;
  if (line.mode == CommandLine::Mode::help || line.mode == CommandLine::Mode::config) {
    const bool help = line.mode == CommandLine::Mode::help;
    const std::string head = help && line.topic.empty() ? usage() + "\n" : "";
    if (first)
      std::printf("%s", (help ? head + help_text(line.topic) : config_text()).c_str());
    return 0;
  }
  // 2. The deck: all problems in one report, before anything is allocated.
  const Deck deck = deck_for(line);
  if (line.mode == CommandLine::Mode::check || line.mode == CommandLine::Mode::plan) {
    if (first) served_without_model(line, deck);
    return 0;
  }
  // 3. Build, restart, run, report.
  return static_cast<int>(drive(line, deck, world));
}

}  // namespace
}  // namespace capstan

int main(int argc, char** argv) {
  using namespace capstan;
  const MpiSession mpi(&argc, &argv);
  const Comm world = Comm::world();
  try {
    return run(std::vector<std::string>(argv + 1, argv + argc), world);
  } catch (const Error& error) {
    return report_failure(world, error.code(), error.what());
  } catch (const std::exception& error) {
    return report_failure(world, Exit::internal, error.what());
  }
}
