#include "io/publish.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/error.hpp"

namespace capstan {

namespace {

[[noreturn]] void fail(const std::string& what) {
  throw Error(Exit::file, what + ": " + std::strerror(errno));
}

/// A file descriptor that closes.
class Descriptor {
 public:
  Descriptor(const std::string& path, int flags)
      : id_(::open(path.c_str(), flags, 0644)) {
    if (id_ < 0) fail("cannot open " + path);
  }
  ~Descriptor() {
    if (id_ >= 0) ::close(id_);
  }
  Descriptor(const Descriptor&) = delete;
  operator int() const { return id_; }

 private:
  int id_;
};

}  // namespace

void sync_path(const std::string& path) {
  const Descriptor file(path, O_RDONLY);
  // Some file systems cannot sync a folder; what can be done was done then.
  if (::fsync(file) != 0 && errno != EINVAL) fail("cannot sync " + path);
}

std::string parent_of(const std::string& path) {
  std::filesystem::path p(path);
  if (!p.has_filename()) p = p.parent_path();  // a trailing slash
  const std::string parent = p.parent_path().string();
  return parent.empty() ? "." : parent;
}

void publish(const std::string& path) {
  if (std::rename((path + kPart).c_str(), path.c_str()) != 0)
    fail("cannot publish " + path);
  sync_path(parent_of(path));
}

void publish_text(const std::string& path, const std::string& text) {
  {
    const Descriptor file(path + kPart, O_WRONLY | O_CREAT | O_TRUNC);
    for (std::size_t at = 0; at < text.size();) {
      const ssize_t n = ::write(file, text.data() + at, text.size() - at);
      if (n < 0) fail("cannot write " + path + kPart);
      at += static_cast<std::size_t>(n);
    }
    if (::fsync(file) != 0) fail("cannot sync " + path + kPart);
  }
  publish(path);
}

std::string read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) fail("cannot open " + path);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

void make_folders(const std::string& path) {
  std::error_code code;
  std::filesystem::create_directories(path, code);
  if (code)
    throw Error(Exit::file, "cannot create folder " + path + ": " + code.message());
}

}  // namespace capstan
