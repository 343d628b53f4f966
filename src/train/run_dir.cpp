#include "train/run_dir.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/error.hpp"
#include "io/file.hpp"
#include "io/publish.hpp"

namespace capstan {

namespace fs = std::filesystem;

namespace {

/// The number in <stem>.<number><tail>, else 0.
int number_of(const std::string& name, const std::string& stem, const std::string& tail) {
  if (name.size() <= stem.size() + tail.size() + 1 || name.rfind(stem + ".", 0) != 0 ||
      name.compare(name.size() - tail.size(), tail.size(), tail) != 0)
    return 0;
  const std::string digits =
      name.substr(stem.size() + 1, name.size() - tail.size() - stem.size() - 1);
  if (digits.find_first_not_of("0123456789") != std::string::npos) return 0;
  return std::atoi(digits.c_str());
}

std::string first_line(int file) {
  char text[256] = {};
  const ssize_t n = ::pread(file, text, sizeof text - 1, 0);
  const std::string all(text, n > 0 ? n : 0);
  return all.substr(0, all.find('\n'));
}

}  // namespace

RunDir::RunDir(const std::string& path, const Comm& world)
    : path_(path), rank_(world.rank()) {
  std::string problem;
  if (rank_ == 0) {
    try {
      make_folders(path_ + "/diag");
      make_folders(path_ + "/ckpt");
      take_lock();
      segment_ = last_segment() + 1;
      std::ofstream(log(), std::ios::app);  // claims the number
    } catch (const std::exception& e) {
      problem = e.what();
    }
  }
  problem = world.broadcast_text(problem, 0);
  if (!problem.empty()) {
    if (lock_ >= 0) ::close(lock_);
    throw Error(Exit::file, problem);
  }
  world.broadcast_host(&segment_, 1, 0);
}

void RunDir::next_segment() {
  ++segment_;
  if (rank_ == 0) std::ofstream(log(), std::ios::app);  // claims the number
}

RunDir::~RunDir() {
  if (lock_ < 0) return;
  // The file stays: who opened it a moment ago must find the same file that a later one
  // finds.
  if (::ftruncate(lock_, 0) == 0) ::fsync(lock_);
  ::close(lock_);
}

void RunDir::take_lock() {
  const std::string name = path_ + "/lock";
  lock_ = ::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock_ < 0)
    throw Error(Exit::file, "cannot write " + name + ": " + std::strerror(errno));
  // The system drops the lock of a process that dies, whatever the file says.
  if (::flock(lock_, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK)
      throw Error(Exit::file, "cannot lock " + name + ": " + std::strerror(errno));
    throw Error(Exit::file, "run directory " + path_ + " is in use by " +
                                first_line(lock_) +
                                "; wait for it, or give another one with -d");
  }
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  const std::string text =
      format("process %d on %s\n", static_cast<int>(::getpid()), host);
  const bool written =
      ::ftruncate(lock_, 0) == 0 &&
      ::pwrite(lock_, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size());
  if (!written)
    throw Error(Exit::file, "cannot write " + name + ": " + std::strerror(errno));
}

int RunDir::last_segment() const {
  int last = 0;
  for (const auto& entry : fs::directory_iterator(path_))
    last = std::max(last, number_of(entry.path().filename().string(), "log", ""));
  for (const auto& entry : fs::directory_iterator(path_ + "/diag"))
    for (const char* stem : {"history", "experts"})
      last = std::max(last, number_of(entry.path().filename().string(), stem, ".h5"));
  return last;
}

std::string RunDir::diag(const std::string& name, long long number) const {
  return path_ + "/diag/" + name + format(".%lld.h5", number);
}

bool RunDir::take_request(const std::string& name) const {
  return rank_ == 0 && ::unlink((path_ + "/" + name).c_str()) == 0;
}

void RunDir::set_status(const std::string& line) const {
  if (rank_ != 0) return;
  const std::string name = path_ + "/status", part = name + kPart;
  {
    std::ofstream out(part);
    out << line << "\n";
    if (!out.flush()) return;
  }
  ::rename(part.c_str(), name.c_str());
}

void RunDir::close_dead_files(Log& log) const {
  if (rank_ != 0) return;
  for (const auto& entry : fs::directory_iterator(path_ + "/diag")) {
    const std::string file = entry.path().filename().string();
    const int number =
        std::max(number_of(file, "history", ".h5"), number_of(file, "experts", ".h5"));
    if (number == 0 || number >= segment_) continue;
    try {
      H5File(entry.path().string(), H5File::Mode::read);
    } catch (const Error&) {
      try {
        clear_live_mark(entry.path().string());
      } catch (const Error& e) {
        log.warn("diagnostics of segment %d: %s", number, e.what());
      }
    }
  }
}

}  // namespace capstan
