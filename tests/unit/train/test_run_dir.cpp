// Run directory: one run at a time, segments count up, requests by touched files.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "base/error.hpp"
#include "io/publish.hpp"
#include "io/table.hpp"
#include "train/run_dir.hpp"
#include "unit/io/folder.hpp"

using namespace capstan;
namespace fs = std::filesystem;

namespace {
void touch(const std::string& path) {
  std::ofstream(path, std::ios::app);
}
}  // namespace

TEST(RunDir, segments_count_up) {
  const test::Folder folder;
  const std::string path = folder / "runs/a";
  for (int segment = 1; segment <= 3; ++segment) {
    const RunDir run(path, Comm::self());
    EXPECT_EQ(run.segment(), segment);
    EXPECT_EQ(run.log(), path + format("/log.%d", segment));
    EXPECT_TRUE(fs::exists(run.log()));
  }
  touch(folder / "runs/a/diag/history.11.h5");
  touch(folder / "runs/a/diag/dump.500.h5");
  touch(folder / "runs/a/log.old");
  EXPECT_EQ(RunDir(path, Comm::self()).segment(), 12);
}

TEST(RunDir, a_directory_in_use_is_refused) {
  const test::Folder folder;
  const std::string path = folder / "run";
  const RunDir first(path, Comm::self());
  try {
    RunDir second(path, Comm::self());
    FAIL() << "two runs in one directory";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::file);
    const std::string text = e.what();
    EXPECT_NE(text.find(format("in use by process %d on ", int(::getpid()))),
              std::string::npos)
        << text;
  }
  EXPECT_FALSE(fs::exists(path + "/log.2"));
}

TEST(RunDir, the_lock_of_a_killed_run_does_not_count) {
  const test::Folder folder;
  const std::string path = folder / "run";
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const RunDir run(path, Comm::self());
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_NE(read_text(path + "/lock"), "");
  EXPECT_EQ(RunDir(path, Comm::self()).segment(), 2);
  EXPECT_EQ(read_text(path + "/lock"), "");
}

TEST(RunDir, requests_and_status) {
  const test::Folder folder;
  const RunDir run(folder / "run", Comm::self());
  EXPECT_FALSE(run.take_request("stop"));
  touch(folder / "run/stop");
  EXPECT_FALSE(run.take_request("checkpoint"));
  EXPECT_TRUE(run.take_request("stop"));
  EXPECT_FALSE(run.take_request("stop"));
  run.set_status("step=1");
  run.set_status("step=2");
  EXPECT_EQ(read_text(folder / "run/status"), "step=2\n");
}

TEST(RunDir, diagnostics_of_killed_segments_are_closed) {
  const test::Folder folder;
  const std::string path = folder / "run";
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const RunDir run(path, Comm::self());
    TableFile table(run.diag("history", run.segment()), 0);
    TableColumn step{"step"};
    step.element = Element::i64;
    const int id = table.add_table({step});
    table.start();
    for (std::int64_t i = 1; i <= 3; ++i) table.append(id, {i});
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  std::ofstream(path + "/diag/experts.1.h5") << "damaged";
  const RunDir run(path, Comm::self());
  Log log(0, true);
  log.open(run.log());
  EXPECT_THROW(H5File(run.diag("history", 1), H5File::Mode::read), Error);
  run.close_dead_files(log);
  EXPECT_EQ(H5File(run.diag("history", 1), H5File::Mode::read).info("step").shape,
            Extents{3});
  EXPECT_NE(read_text(run.log()).find("experts.1.h5"), std::string::npos);
}

TEST(RunDir, a_path_that_cannot_be_written) {
  const test::Folder folder;
  touch(folder / "file");
  try {
    RunDir run(folder / "file/run", Comm::self());
    FAIL() << "a directory inside a file";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::file);
    EXPECT_NE(std::string(e.what()).find("file/run"), std::string::npos);
  }
}
