#pragma once
/// \file A temporary folder of a test, and a very small disk.
#include <gtest/gtest.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>

namespace capstan::test {

class Folder {
 public:
  Folder() {
    std::string name =
        (std::filesystem::temp_directory_path() / "capstan_XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

/// Runs f(path) in a child process that has a disk of `size` (such as "300k") at `path`.
/// Skips the test where a process may not mount one.
template <class F>
void with_small_disk(const std::string& size, const F& f) {
  constexpr int kCannot = 77, kFailed = 1;
  const Folder folder;
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const bool apart =
        ::unshare(CLONE_NEWNS) == 0 || ::unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0;
    if (!apart || ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("tmpfs", folder.path().c_str(), "tmpfs", 0, ("size=" + size).c_str()) !=
            0)
      ::_exit(kCannot);
    try {
      f(folder.path());
    } catch (const std::exception& e) {
      ADD_FAILURE() << e.what();
    }
    std::exit(testing::Test::HasFailure() ? kFailed : 0);  // with HDF5's own end
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status)) << "the child died of signal " << WTERMSIG(status);
  if (WEXITSTATUS(status) == kCannot) GTEST_SKIP() << "no right to mount a small disk";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace capstan::test
