// Growing columns: read live, after a kill, and by plain readers once the mark is
// cleared.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <fstream>

#include "base/error.hpp"
#include "base/log.hpp"
#include "io/table.hpp"
#include "unit/io/folder.hpp"

using namespace capstan;
using Mode = H5File::Mode;

namespace {

std::vector<TableColumn> columns() {
  TableColumn loss{"loss", "nats", "mean loss"},
      text{"events/text", "1", "what happened"}, load{"load", "1", "load of experts"},
      step{"step", "1", "number of the step"};
  text.element = Element::text;
  text.text_bytes = 8;
  load.element = Element::i32;
  load.row_shape = {2, 3};
  load.chunk_rows = 1;
  step.element = Element::i64;
  return {loss, text, load, step};
}

std::vector<TableCell> row(std::int64_t step) {
  const std::vector<std::int64_t> load = {step, 1, 2, 3, 4, step};
  return {0.5 * static_cast<double>(step), format("event %d", static_cast<int>(step)),
          load, step};
}

void expect_rows(const std::string& path, Mode mode, std::int64_t n) {
  const H5File file(path, mode);
  ASSERT_EQ(file.info("step").shape, Extents{n});
  ASSERT_EQ(file.info("load").shape, (Extents{n, 2, 3}));
  std::vector<std::int64_t> step(n);
  std::vector<double> loss(n);
  std::vector<std::int32_t> load(n * 6);
  file.read("step", Element::i64, step.data(), {0}, {n});
  file.read("loss", Element::f64, loss.data(), {0}, {n});
  file.read("load", Element::i32, load.data(), {0, 0, 0}, {n, 2, 3});
  for (std::int64_t i = 0; i < n; ++i) {
    EXPECT_EQ(step[i], i + 1);
    EXPECT_EQ(loss[i], 0.5 * static_cast<double>(i + 1));
    EXPECT_EQ(load[6 * i + 5], i + 1);
  }
}

}  // namespace

TEST(Table, is_readable_while_it_grows) {
  const test::Folder folder;
  const std::string path = folder / "t.h5";
  TableFile table(path, 1e9);
  const int id = table.add_table(columns());
  table.file().set("/", "segment", std::int64_t(1));
  table.start();
  for (std::int64_t step = 1; step <= 300; ++step) {
    table.append(id, row(step));
    if (step % 60 != 0) continue;
    table.flush();
    expect_rows(path, Mode::read_live, step);
  }
  table.append(id, row(301));
  EXPECT_EQ(table.rows(id), 301);
  table.close();
  expect_rows(path, Mode::read, 301);
  const H5File file(path, Mode::read);
  EXPECT_EQ(std::get<std::string>(*file.get("loss", "unit")), "nats");
  EXPECT_EQ(file.info("events/text").text_bytes, 8u);
}

TEST(Table, several_tables_grow_apart) {
  const test::Folder folder;
  TableFile table(folder / "t.h5", 0);
  TableColumn a{"a"}, b{"eval/b"};
  const int first = table.add_table({a}), second = table.add_table({b});
  table.start();
  for (int i = 0; i < 5; ++i) table.append(first, {double(i)});
  table.append(second, {std::int64_t(7)});
  const H5File file(folder / "t.h5", Mode::read_live);
  EXPECT_EQ(file.info("a").shape, Extents{5});
  EXPECT_EQ(file.info("eval/b").shape, Extents{1});
}

TEST(Table, a_killed_writer_leaves_readable_rows) {
  const test::Folder folder;
  const std::string path = folder / "t.h5";
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    TableFile table(path, 1e9);
    const int id = table.add_table(columns());
    table.start();
    for (std::int64_t step = 1; step <= 500; ++step) {
      table.append(id, row(step));
      if (step % 100 == 0) table.flush();
    }
    table.append(id, row(501));  // not flushed
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  expect_rows(path, Mode::read_live, 500);
  EXPECT_THROW(H5File(path, Mode::read), Error);
  clear_live_mark(path);
  expect_rows(path, Mode::read, 500);
  clear_live_mark(path);  // nothing to do
  expect_rows(path, Mode::read, 500);
  EXPECT_THROW(clear_live_mark(folder / "absent.h5"), Error);
}

TEST(Table, a_full_disk_loses_no_row) {
  test::with_small_disk("24m", [](const std::string& disk) {
    const std::string path = disk + "/t.h5";
    TableFile table(path, 1e9);
    const int id = table.add_table(columns());
    table.start();
    for (std::int64_t step = 1; step <= 10; ++step) table.append(id, row(step));
    table.flush();
    // Somebody else takes the space.
    const std::string other = disk + "/other";
    std::ofstream(other) << "x";
    std::filesystem::resize_file(other, 1);
    const int fd = ::open(other.c_str(), O_WRONLY);
    std::vector<char> junk(1 << 20, 'x');
    while (::write(fd, junk.data(), junk.size()) > 0) {
    }
    ::close(fd);
    std::int64_t step = 10, refused = 0;
    while (refused == 0 && step < 1000000) {
      table.append(id, row(++step));
      try {
        if (step % 1000 == 0) table.flush();
      } catch (const Error& e) {
        EXPECT_EQ(e.code(), Exit::file);
        ++refused;
      }
    }
    EXPECT_EQ(refused, 1);
    std::filesystem::remove(other);
    table.close();
    expect_rows(path, Mode::read, step);
  });
}

TEST(Table, a_row_that_does_not_fit_is_refused) {
  const test::Folder folder;
  TableFile table(folder / "t.h5");
  const int id = table.add_table(columns());
  EXPECT_THROW(table.append(id, {0.5}), Error);
  EXPECT_THROW(
      table.append(id, {0.5, "x", std::vector<std::int64_t>{1, 2}, std::int64_t(1)}),
      Error);
}
