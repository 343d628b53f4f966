#pragma once
/// \file The command line of capstan.
#include <string>
#include <vector>

namespace capstan {

struct CommandLine {
  enum class Mode {
    run,
    check,        ///< -n: check the deck and echo it
    plan,         ///< -m: grid map, parameters, memory, FLOPs
    tiny,         ///< -v: build at tiny size, one step
    config,       ///< -c: build configuration
    help,         ///< -h
    rehearse,     ///< --rehearse: drop rates of all transports at the deck's grid
    check_grids,  ///< --check-grids
    verify,       ///< --verify CKPT
    eval,         ///< --eval, with -r
    generate,     ///< --generate TEXT, with -r
    export_model  ///< --export DIR, with -r
  };
  Mode mode = Mode::run;
  std::vector<std::string> decks;      ///< -i, in order; may be empty with -r
  std::vector<std::string> overrides;  ///< block/key=value, in order
  std::string restart;            ///< -r: checkpoint directory or "latest"; "" = fresh
  std::string run_dir = "run";    ///< -d
  double wall_limit_seconds = 0;  ///< -t; 0 = not given
  bool plan_best = false;         ///< --plan-best
  int ranks = 0;                  ///< --ranks; 0 = not given
  std::string topic;              ///< -h: "", a block, "block/key" or "all"
  std::string verify;             ///< --verify
  std::string prompt;             ///< --generate
  std::string export_dir;         ///< --export
};

/// `arguments` without the program's name. Error(Exit::deck) lists every unknown option,
/// missing value and conflict, with the synopsis below them.
CommandLine parse_command_line(const std::vector<std::string>& arguments);

/// Synopsis, options, exit codes.
std::string usage();

/// "HH:MM:SS" or "D-HH:MM:SS" in seconds; negative when it is neither.
double parse_wall_time(const std::string& text);

}  // namespace capstan
