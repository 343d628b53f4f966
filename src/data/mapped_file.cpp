#include "data/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.hpp"

namespace capstan {

namespace {
[[noreturn]] void fail(const std::string& path, const char* what) {
  throw Error(Exit::file, path + ": " + what + ": " + std::strerror(errno));
}
}  // namespace

MappedFile::MappedFile(const std::string& path) : path_(path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) fail(path, "cannot open");
  struct stat info = {};
  if (::fstat(file, &info) != 0) {
    ::close(file);
    fail(path, "cannot stat");
  }
  if (!S_ISREG(info.st_mode)) {
    ::close(file);
    throw Error(Exit::file, path + ": not a regular file");
  }
  size_ = info.st_size;
  if (size_ > 0) {
    void* p =
        ::mmap(nullptr, static_cast<std::size_t>(size_), PROT_READ, MAP_SHARED, file, 0);
    if (p == MAP_FAILED) {
      ::close(file);
      fail(path, "cannot map");
    }
    data_ = static_cast<const std::byte*>(p);
  }
  ::close(file);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) {
    ::munmap(const_cast<std::byte*>(data_), static_cast<std::size_t>(size_));
  }
}

void MappedFile::expect_random() const {
  if (size_ == 0) return;
  // Advice only: where it is refused, reading is as right as before.
  ::madvise(const_cast<std::byte*>(data_), static_cast<std::size_t>(size_), MADV_RANDOM);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

}  // namespace capstan
