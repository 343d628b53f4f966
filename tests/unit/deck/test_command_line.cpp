/// \file The command line and the help.
#include "deck/command_line.hpp"
#include "deck/help.hpp"
#include "deck/key.hpp"
#include "unit/deck/decks.hpp"

namespace capstan {
namespace {

using test::contains;
using Mode = CommandLine::Mode;

std::string refused(const std::vector<std::string>& arguments) {
  try {
    parse_command_line(arguments);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::deck);
    return e.what();
  }
  ADD_FAILURE() << "accepted";
  return "";
}

TEST(CommandLine, ARun) {
  const auto c =
      parse_command_line({"-i", "a.deck", "-i", "b.deck", "-d", "out", "-t", "01:30:05",
                          "-r", "latest", "job/seed=2", "data/files=x=y"});
  EXPECT_EQ(c.mode, Mode::run);
  EXPECT_EQ(c.decks, (std::vector<std::string>{"a.deck", "b.deck"}));
  EXPECT_EQ(c.overrides, (std::vector<std::string>{"job/seed=2", "data/files=x=y"}));
  EXPECT_EQ(c.run_dir, "out");
  EXPECT_EQ(c.restart, "latest");
  EXPECT_EQ(c.wall_limit_seconds, 5405);
}

TEST(CommandLine, Modes) {
  const auto mode = [](std::vector<std::string> a) { return parse_command_line(a).mode; };
  EXPECT_EQ(mode({"-i", "a", "-n"}), Mode::check);
  EXPECT_EQ(mode({"-m", "-i", "a"}), Mode::plan);
  EXPECT_EQ(mode({"--rehearse", "-i", "a"}), Mode::rehearse);
  EXPECT_EQ(mode({"-i", "a", "-v"}), Mode::tiny);
  EXPECT_EQ(mode({"-c"}), Mode::config);
  EXPECT_EQ(mode({"-h"}), Mode::help);
  EXPECT_EQ(mode({"--help"}), Mode::help);
  EXPECT_EQ(mode({"--verify", "ckpt"}), Mode::verify);
  EXPECT_EQ(mode({"-r", "latest", "--eval"}), Mode::eval);
  EXPECT_EQ(mode({"--export", "dir", "-r", "latest"}), Mode::export_model);
  EXPECT_EQ(mode({"--check-grids", "--ranks", "8", "-i", "a"}), Mode::check_grids);
  EXPECT_TRUE(
      parse_command_line({"--plan-best", "-m", "--ranks", "8", "-i", "a"}).plan_best);
  EXPECT_EQ(parse_command_line({"-r", "latest", "--generate", "-x"}).prompt, "-x");
  EXPECT_EQ(parse_command_line({"-h", "model"}).topic, "model");
  EXPECT_EQ(parse_command_line({"-h", "-i", "a"}).topic, "");
}

TEST(CommandLine, EveryProblemIsReportedWithTheSynopsis) {
  const std::string text =
      refused({"-x", "--genrate", "-t", "3", "batch", "-n", "-m", "--ranks", "0", "-i"});
  for (const char* part :
       {"unknown option -x", "--genrate; did you mean --generate?", "-t 3 is not a time",
        "'batch' is neither", "-n and -m exclude each other", "--ranks 0 is not",
        "-i needs a value: DECK", "nothing to do", "usage: capstan -i DECK"})
    EXPECT_TRUE(contains(text, part)) << part << "\n in \n" << text;
}

TEST(CommandLine, Conflicts) {
  EXPECT_TRUE(contains(refused({}), "nothing to do"));
  EXPECT_TRUE(contains(refused({"-i", "a", "--eval"}), "--eval needs a checkpoint"));
  EXPECT_TRUE(contains(refused({"-i", "a", "-d", "x", "-d", "y"}), "-d is given twice"));
  EXPECT_TRUE(contains(refused({"-i", "a", "-r", ""}), "-r has an empty value"));
  EXPECT_TRUE(contains(refused({"-i", "a", "--ranks", "4"}), "--ranks belongs to"));
  EXPECT_TRUE(contains(refused({"-i", "a", "=3"}), "neither an option nor an override"));
  EXPECT_TRUE(contains(refused({"-i", "a", ""}), "neither an option nor an override"));
}

TEST(CommandLine, WallTimes) {
  EXPECT_EQ(parse_wall_time("00:00:01"), 1);
  EXPECT_EQ(parse_wall_time("100:00:00"), 360000);
  EXPECT_EQ(parse_wall_time("2-03:04:05"), ((2 * 24 + 3) * 60 + 4) * 60 + 5);
  for (const char* text : {"", "5", "1:2", "1:60:00", "1:00:60", "a:00:00", "1:00:00:00",
                           "-1:00:00", "1:00:0x", "1-00:00", "::"})
    EXPECT_LT(parse_wall_time(text), 0) << text;
}

TEST(Help, EveryBlockAndKeyIsThere) {
  const std::string blocks = help_text(""), all = help_text("all");
  for (const auto& block : deck_blocks()) {
    EXPECT_TRUE(contains(blocks, "<" + block.name)) << block.name;
    const std::string one = help_text(block.name);
    EXPECT_TRUE(contains(all, one)) << block.name;
    for (const auto& key : block.keys) {
      EXPECT_TRUE(contains(one, "\n  " + key.name + " "))
          << block.name << "/" << key.name;
      for (const auto& choice : key.choices) EXPECT_TRUE(contains(one, choice)) << choice;
    }
  }
}

TEST(Help, OneKeyAndLineWidth) {
  const std::string text = help_text("model/window");
  EXPECT_TRUE(contains(text, "window = 0") && contains(text, "in tokens"));
  EXPECT_FALSE(contains(text, "global_every"));
  EXPECT_EQ(help_text("group7"), help_text("group"));
  std::istringstream lines(help_text("all"));
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80u) << line;
}

TEST(Help, UnknownTopics) {
  for (const auto& [topic, best] :
       {std::pair{"modle", "model"}, {"model/windw", "model/window"}, {"alll", "all"}}) {
    try {
      help_text(topic);
      FAIL() << topic;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Exit::deck);
      EXPECT_TRUE(contains(e.what(), std::string("did you mean ") + best + "?"))
          << e.what();
    }
  }
}

}  // namespace
}  // namespace capstan
