// capstan: trains mixture-of-experts language models on a grid of MPI ranks.
#include <unistd.h>

#include <cstdio>

#include "base/build_info.hpp"
#include "base/signals.hpp"
#include "data/from_deck.hpp"
#include "deck/command_line.hpp"
#include "deck/help.hpp"
#include "deck/scale.hpp"
#include "deck/support.hpp"
#include "plan/plan.hpp"
#include "plan/rehearsal.hpp"
#include "train/driver.hpp"

namespace capstan {
namespace {

/// The modes that need no model: their text, or "" for the others.
std::string text_of_mode(const CommandLine& line, const Deck& deck) {
  using Mode = CommandLine::Mode;
  if (line.mode == Mode::plan) return plan_text(deck, make_plan(deck));
  if (line.mode == Mode::rehearse) return rehearsal_text(deck);
  if (line.mode != Mode::check) return "";
  std::string text = deck.dump();
  for (const auto& notes : {scale_notes(deck), unsupported(deck)})
    for (const std::string& note : notes) text += "# note: " + note + "\n";
  return text;
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
  if (line.mode == CommandLine::Mode::verify) {
    return static_cast<int>(verify(line.verify, world));
  }
  if (line.mode == CommandLine::Mode::export_model) {
    return static_cast<int>(export_model(line, world));
  }
  // 2. The deck: all problems in one report, before anything is allocated.
  const Deck deck = deck_for(line);
  // Ranges that contradict each other; opens no file. Decks for -m need no data.
  if (!deck.numbered("mixture").empty()) sampler_spec(deck);
  const std::string text = first ? text_of_mode(line, deck) : "";
  std::printf("%s", text.c_str());
  std::fflush(stdout);
  using Mode = CommandLine::Mode;
  if (first && line.mode == Mode::plan) std::printf("%s", drop_prediction(deck).c_str());
  if (line.mode == Mode::plan) {
    return static_cast<int>(make_plan(deck).fits() ? Exit::done : Exit::deck);
  }
  if (line.mode == Mode::check || line.mode == Mode::rehearse) return 0;
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
