#include "deck/support.hpp"

#include <array>

namespace capstan {
namespace {

using std::string;

struct Limit {
  bool (*exceeded)(const Deck&);
  const char* message;
};

const std::array kLimits = {
    Limit{[](const Deck& d) { return d.integer("grid/stages_per_rank") > 1; },
          "grid/stages_per_rank > 1: interleaved stages are not served yet, use 1"},
    Limit{[](const Deck& d) { return d.text("memory/dense") != "replicated"; },
          "memory/dense: only replicated is served yet"},
    Limit{[](const Deck& d) { return d.text("memory/optimizer") == "host"; },
          "memory/optimizer = host is not served yet, use sharded or replicated"},
    Limit{[](const Deck& d) { return d.text("memory/carry") != "device"; },
          "memory/carry: only device is served yet"},
    Limit{[](const Deck& d) { return d.integer("checkpoint/ranks_per_file") > 1; },
          "checkpoint/ranks_per_file > 1 is not served yet, use 1"},
    Limit{[](const Deck& d) { return d.text("data/tokenizer") != "byte"; },
          "data/tokenizer: only byte is served yet"},
};

}  // namespace

std::vector<string> unsupported(const Deck& deck) {
  std::vector<string> out;
  for (const auto& limit : kLimits)
    if (limit.exceeded(deck)) out.push_back(limit.message);
  return out;
}

std::vector<string> missing_for_run(const Deck& deck) {
  std::vector<string> out;
  if (deck.integer("job/steps") == 0 && deck.integer("schedule/tokens") == 0)
    out.push_back("the length of the run: give schedule/tokens or job/steps");
  if (deck.texts("data/files").empty() && deck.numbered("mixture").empty())
    out.push_back("data: give data/files");
  return out;
}

void refuse(const string& title, const std::vector<string>& lines) {
  if (lines.empty()) return;
  string report = title;
  for (const auto& line : lines) report += "\n  " + line;
  throw Error(Exit::deck, report);
}

}  // namespace capstan
