// history.txt: exact numbers, whole lines, nothing lost on a full disk.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>

#include "base/error.hpp"
#include "base/log.hpp"
#include "io/publish.hpp"
#include "train/history.hpp"
#include "unit/io/folder.hpp"

using namespace capstan;

TEST(History, rows_and_marks) {
  const test::Folder folder;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  {
    HistoryText history(folder / "h");
    history.start(1, 0, "deck_hash=00ff ranks=2", {"step", "loss", "mfu"});
    history.row({std::int64_t(1), 0.1, nan});
    history.eval(1, 4096, 2.5);
    history.event(1, 4096, "checkpoint", "ckpt/step_00000001\nand more");
    EXPECT_THROW(history.row({std::int64_t(2)}), Error);
  }
  EXPECT_EQ(
      read_text(folder / "h"),
      "#segment step loss mfu\n"
      "#start segment=1 start_step=0 deck_hash=00ff ranks=2\n"
      "1 1 0.1 nan\n"
      "#eval step=1 tokens=4096 loss=2.5\n"
      "#event step=1 tokens=4096 kind=checkpoint text=ckpt/step_00000001 and more\n");
}

TEST(History, numbers_read_back_to_the_same_bits) {
  for (const double x :
       {0.1, 1.0 / 3, 1e-300, 5e-324, 1.7976931348623157e308, -2.0, 1e22})
    EXPECT_EQ(std::strtod(exact_text(x).c_str(), nullptr), x);
  EXPECT_EQ(exact_text(INFINITY), "inf");
  EXPECT_EQ(exact_text(-INFINITY), "-inf");
  EXPECT_EQ(exact_text(std::nan("")), "nan");
}

TEST(History, a_cut_line_of_a_killed_run_is_dropped) {
  const test::Folder folder;
  const std::string whole = "#segment step\n1 1\n";
  std::ofstream(folder / "h") << whole << "1 2 0." << std::string(9000, '1');
  { HistoryText history(folder / "h"); }
  EXPECT_EQ(read_text(folder / "h"), whole);
  std::ofstream(folder / "cut") << "1 1";
  { HistoryText history(folder / "cut"); }
  EXPECT_EQ(read_text(folder / "cut"), "");
  EXPECT_THROW(HistoryText(folder / "absent/h"), Error);
}

TEST(History, rows_wait_for_room_on_a_full_disk) {
  test::with_small_disk("64k", [](const std::string& disk) {
    {
      std::ofstream junk(disk + "/junk", std::ios::binary);
      const std::string block(4096, 'x');
      HistoryText history(disk + "/h");
      history.start(1, 0, "", {"step"});
      while (junk << block << std::flush) {
      }
      for (std::int64_t step = 1; step <= 2000; ++step) history.row({step});
      EXPECT_GT(history.waiting(), 0u);
      std::filesystem::remove(disk + "/junk");
      junk.close();
      history.row({std::int64_t(2001)});
      EXPECT_EQ(history.waiting(), 0u);
    }
    std::ifstream in(disk + "/h");
    std::string line;
    std::int64_t rows = 0;
    while (std::getline(in, line))
      if (line[0] != '#') {
        EXPECT_EQ(line, format("1 %d", int(++rows)));
      }
    EXPECT_EQ(rows, 2001);
  });
}
