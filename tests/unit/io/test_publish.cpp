// Names without .part are complete.
#include <gtest/gtest.h>

#include <fstream>

#include "base/error.hpp"
#include "io/publish.hpp"
#include "unit/io/folder.hpp"

using namespace capstan;
namespace fs = std::filesystem;

TEST(Publish, a_text_replaces_the_older_one) {
  const test::Folder folder;
  publish_text(folder / "latest", "one\n");
  publish_text(folder / "latest", "two\n");
  EXPECT_EQ(read_text(folder / "latest"), "two\n");
  EXPECT_FALSE(fs::exists(folder / "latest.part"));
}

TEST(Publish, a_folder_is_renamed) {
  const test::Folder folder;
  make_folders(folder / "a/b.part");
  std::ofstream(folder / "a/b.part/file") << "x";
  publish(folder / "a/b");
  EXPECT_EQ(read_text(folder / "a/b/file"), "x");
}

TEST(Publish, what_cannot_be_written_is_an_error_with_the_reason) {
  const test::Folder folder;
  const auto refusal = [](const auto& f) -> std::string {
    try {
      f();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Exit::file);
      return e.what();
    }
    return "";
  };
  EXPECT_NE(refusal([&] { publish(folder / "absent"); }).find("No such file"),
            std::string::npos);
  EXPECT_NE(refusal([&] { read_text(folder / "absent"); }).find("absent"),
            std::string::npos);
  std::ofstream(folder / "file") << "x";
  EXPECT_NE(refusal([&] { make_folders(folder / "file/sub"); }).find("file/sub"),
            std::string::npos);
  fs::create_symlink("/dev/full", folder / "full.part");
  EXPECT_NE(refusal([&] { publish_text(folder / "full", "x"); }).find("No space left"),
            std::string::npos);
}

TEST(Publish, parent_folders) {
  EXPECT_EQ(parent_of("a/b/c"), "a/b");
  EXPECT_EQ(parent_of("a/b/"), "a");
  EXPECT_EQ(parent_of("a"), ".");
}
