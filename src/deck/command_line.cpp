#include "deck/command_line.hpp"

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "deck/key.hpp"
#include "deck/nearest.hpp"
#include "deck/values.hpp"

namespace capstan {
namespace {

using std::string;
using Mode = CommandLine::Mode;

const char* const kSynopsis =
    "usage: capstan -i DECK [-i DECK]... [-r CKPT|latest] [-d RUNDIR] [-t HH:MM:SS]\n"
    "               [-n | -m | -v | -c | -h [BLOCK] | ...] [block/key=value]...\n";

struct Option {
  const char* name;
  const char* value;  ///< what it takes; nullptr = nothing
  const char* doc;
};

const std::vector<Option>& options() {
  static const std::vector<Option> list = {
      {"-i", "DECK", "input deck; several stack, later ones win key by key"},
      {"-r", "CKPT", "restart from a checkpoint directory, or from: latest"},
      {"-d", "RUNDIR", "run directory (default: run)"},
      {"-t", "HH:MM:SS", "stop with a checkpoint before this much wall time"},
      {"-n", nullptr, "check the deck, print it with every default, stop"},
      {"-m", nullptr, "plan: grid map, parameters, memory per rank, FLOPs"},
      {"--plan-best", nullptr, "plan: the best grid for --ranks N"},
      {"-v", nullptr, "build the deck at tiny size and run one step"},
      {"-c", nullptr, "build configuration"},
      {"-h", "[BLOCK]", "this text; the keys of a block; all"},
      {"--rehearse", nullptr,
       "drop rates of all transports at the deck's grid, simulated"},
      {"--check-grids", nullptr, "compare the grids that --ranks N allows"},
      {"--ranks", "N", "number of ranks for --check-grids and --plan-best"},
      {"--verify", "CKPT", "check every hash of a checkpoint"},
      {"--eval", nullptr, "evaluate the checkpoint given with -r"},
      {"--generate", "TEXT", "continue TEXT with the checkpoint given with -r"},
      {"--export", "DIR", "export the checkpoint given with -r"},
  };
  return list;
}

class Parser {
 public:
  explicit Parser(const std::vector<string>& arguments) : arguments_(arguments) {}

  CommandLine parse() {
    while (at_ < arguments_.size()) take(arguments_[at_++]);
    check();
    if (problems_.empty()) return out_;
    string report;
    for (const auto& p : problems_) report += p + "\n";
    throw Error(Exit::deck, report + kSynopsis + "(capstan -h explains the options)");
  }

 private:
  void take(const string& argument) {
    if (argument.empty() || argument[0] != '-') return take_override(argument);
    const Option* option = nullptr;
    for (const auto& o : options())
      if (argument == o.name) option = &o;
    if (argument == "--help") return set_help();
    if (!option) return unknown(argument);
    if (argument == "-h") return set_help();
    if (!option->value) return set_flag(argument);
    if (at_ == arguments_.size())
      return problems_.push_back(argument + " needs a value: " + option->value);
    set_value(argument, arguments_[at_++]);
  }

  void take_override(const string& argument) {
    const auto slash = argument.find('/'), equals = argument.find('=');
    if (slash != string::npos && equals != string::npos && slash < equals)
      return out_.overrides.push_back(argument);
    problems_.push_back("'" + argument +
                        "' is neither an option nor an override block/key=value");
  }

  void unknown(const string& argument) {
    std::vector<string> names;
    for (const auto& o : options()) names.push_back(o.name);
    const string best = argument.size() > 2 ? nearest(argument, names) : "";
    problems_.push_back("unknown option " + argument +
                        (best.empty() ? "" : "; did you mean " + best + "?"));
  }

  void set_mode(Mode mode, const string& argument) {
    if (!mode_option_.empty() && out_.mode != mode)
      problems_.push_back(mode_option_ + " and " + argument + " exclude each other");
    out_.mode = mode;
    mode_option_ = argument;
  }

  void set_help() {
    set_mode(Mode::help, "-h");
    const bool topic = at_ < arguments_.size() && !arguments_[at_].empty() &&
                       arguments_[at_][0] != '-' &&
                       arguments_[at_].find('=') == string::npos;
    if (topic) out_.topic = arguments_[at_++];
  }

  void set_flag(const string& option) {
    if (option == "-n") set_mode(Mode::check, option);
    if (option == "-m") set_mode(Mode::plan, option);
    if (option == "-v") set_mode(Mode::tiny, option);
    if (option == "-c") set_mode(Mode::config, option);
    if (option == "--eval") set_mode(Mode::eval, option);
    if (option == "--rehearse") set_mode(Mode::rehearse, option);
    if (option == "--check-grids") set_mode(Mode::check_grids, option);
    if (option == "--plan-best") {
      set_mode(Mode::plan, option);
      out_.plan_best = true;
    }
  }

  /// Stores the value of an option that may be given once.
  void once(string& target, const string& option, const string& value, bool& given) {
    if (given) problems_.push_back(option + " is given twice");
    if (value.empty()) problems_.push_back(option + " has an empty value");
    given = true;
    target = value;
  }

  void set_value(const string& option, const string& value) {
    if (option == "-i") out_.decks.push_back(value);
    if (option == "-r") once(out_.restart, option, value, given_restart_);
    if (option == "-d") once(out_.run_dir, option, value, given_dir_);
    if (option == "-t") set_time(value);
    if (option == "--ranks") set_ranks(value);
    if (option == "--verify") {
      set_mode(Mode::verify, option);
      once(out_.verify, option, value, given_mode_value_);
    }
    if (option == "--generate") {
      set_mode(Mode::generate, option);
      out_.prompt = value;
    }
    if (option == "--export") {
      set_mode(Mode::export_model, option);
      once(out_.export_dir, option, value, given_mode_value_);
    }
  }

  void set_time(const string& value) {
    out_.wall_limit_seconds = parse_wall_time(value);
    if (out_.wall_limit_seconds <= 0)
      problems_.push_back("-t " + value +
                          " is not a time HH:MM:SS or D-HH:MM:SS above 0");
  }

  void set_ranks(const string& value) {
    string why;
    const auto n = parse_integer(value, why);
    if (!n || *n < 1 || *n > std::numeric_limits<int>::max())
      return problems_.push_back("--ranks " + value + " is not a number of ranks");
    out_.ranks = static_cast<int>(*n);
  }

  void check() {
    const Mode m = out_.mode;
    const bool on_checkpoint =
        m == Mode::eval || m == Mode::generate || m == Mode::export_model;
    if (on_checkpoint && out_.restart.empty())
      problems_.push_back(mode_option_ + " needs a checkpoint: -r CKPT");
    const bool alone = m == Mode::help || m == Mode::config || m == Mode::verify;
    if (!alone && out_.decks.empty() && out_.restart.empty())
      problems_.push_back("nothing to do: give a deck with -i DECK (or -r CKPT, or -h)");
    const bool reads_grid = m == Mode::check_grids || out_.plan_best;
    if (out_.ranks > 0 && !reads_grid)
      problems_.push_back("--ranks belongs to --check-grids and --plan-best");
  }

  const std::vector<string>& arguments_;
  std::size_t at_ = 0;
  CommandLine out_;
  std::vector<string> problems_;
  string mode_option_;
  bool given_restart_ = false, given_dir_ = false, given_mode_value_ = false;
};

}  // namespace

CommandLine parse_command_line(const std::vector<string>& arguments) {
  return Parser(arguments).parse();
}

string usage() {
  string out = kSynopsis + string("\n");
  for (const auto& o : options()) {
    string name = string("  ") + o.name + (o.value ? string(" ") + o.value : "");
    name.resize(20, ' ');
    out += name + o.doc + "\n";
  }
  return out +
         "\nExit codes: 0 done, 1 internal error, 2 usage or deck, 3 diverged, 4 file,\n"
         "5 device or communication, 75 interrupted with a complete checkpoint "
         "(requeue).\n"
         "Signals to a rank: SIGUSR1 and SIGTERM checkpoint and exit 75, SIGUSR2 "
         "checkpoints\n"
         "and goes on; files named stop or checkpoint in the run directory do the "
         "same.\n";
}

double parse_wall_time(const string& text) {
  const auto dash = text.find('-');
  const string clock = dash == string::npos ? text : text.substr(dash + 1);
  std::vector<string> parts;
  if (dash != string::npos) parts.push_back(text.substr(0, dash));
  for (std::size_t from = 0; from <= clock.size();) {
    const std::size_t to = std::min(clock.find(':', from), clock.size());
    parts.push_back(clock.substr(from, to - from));
    from = to + 1;
  }
  if (parts.size() != (dash == string::npos ? 3u : 4u)) return -1;
  std::vector<double> n;
  for (const auto& part : parts) {
    const bool digits = part.find_first_not_of("0123456789") == string::npos;
    if (part.empty() || part.size() > 6 || !digits) return -1;
    n.push_back(std::atof(part.c_str()));
  }
  if (n.size() == 3) n.insert(n.begin(), 0.0);
  if (n[2] >= 60 || n[3] >= 60) return -1;
  return ((n[0] * 24 + n[1]) * 60 + n[2]) * 60 + n[3];
}

}  // namespace capstan
