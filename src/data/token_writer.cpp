#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "data/token_file.hpp"

namespace capstan {

namespace {
constexpr index_t kFlush = index_t{1} << 22;    // bytes
constexpr index_t kLongest = index_t{1} << 30;  // tokens of one sequence: sizes are int32

[[noreturn]] void fail(const std::string& path, const char* what) {
  throw Error(Exit::file, path + ": " + what + ": " + std::strerror(errno));
}

int create(const std::string& path) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file < 0) fail(path, "cannot create");
  return file;
}

void close_synced(int file, const std::string& path) {
  const bool synced = ::fsync(file) == 0;
  const int error = errno;
  if (::close(file) != 0) fail(path, "cannot close");
  errno = error;
  if (!synced) fail(path, "cannot sync");
}

void rename_or_fail(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) fail(to, "cannot rename into place");
}

template <class T>
void push(std::vector<std::byte>& out, T value) {
  const auto* p = reinterpret_cast<const std::byte*>(&value);
  out.insert(out.end(), p, p + sizeof value);
}
}  // namespace

TokenFileWriter::TokenFileWriter(const std::string& prefix, IdType type)
    : prefix_(prefix), type_(type), bin_(create(prefix + ".bin.part")) {
  require(type == IdType::uint16 || type == IdType::int32,
          "token writer: uint16 or int32");
}

TokenFileWriter::~TokenFileWriter() {
  if (bin_ >= 0) ::close(bin_);
  if (finished_) return;
  ::unlink((prefix_ + ".bin.part").c_str());
  ::unlink((prefix_ + ".idx.part").c_str());
}

void TokenFileWriter::put(int file, const void* data, index_t bytes,
                          const std::string& path) {
  const auto* p = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::write(file, p, static_cast<std::size_t>(bytes));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail(path, "cannot write");
    p += n;
    bytes -= n;
  }
}

void TokenFileWriter::append(const std::vector<std::int32_t>& document) {
  require(static_cast<index_t>(document.size()) <= kLongest,
          "token writer: document too long");
  for (const std::int32_t id : document) {
    require(id >= 0 && (type_ == IdType::int32 || id < 65536),
            "token writer: id too large");
    if (type_ == IdType::uint16) {
      push(buffer_, static_cast<std::uint16_t>(id));
    } else {
      push(buffer_, id);
    }
  }
  sizes_.push_back(static_cast<std::int32_t>(document.size()));
  if (static_cast<index_t>(buffer_.size()) < kFlush) return;
  put(bin_, buffer_.data(), static_cast<index_t>(buffer_.size()), prefix_ + ".bin.part");
  buffer_.clear();
}

void TokenFileWriter::finish() {
  const std::string bin = prefix_ + ".bin", idx = prefix_ + ".idx";
  put(bin_, buffer_.data(), static_cast<index_t>(buffer_.size()), bin + ".part");
  close_synced(std::exchange(bin_, -1), bin + ".part");

  std::vector<std::byte> head;
  const auto n = static_cast<index_t>(sizes_.size());
  head.reserve(static_cast<std::size_t>(34 + 20 * n + 8));
  for (const char c : {'M', 'M', 'I', 'D', 'I', 'D', 'X', '\0', '\0'}) push(head, c);
  push(head, std::uint64_t{1});
  push(head, static_cast<std::uint8_t>(type_));
  push(head, n);
  push(head, n + 1);
  for (const std::int32_t size : sizes_) push(head, size);
  index_t at = 0;
  for (const std::int32_t size : sizes_) {
    push(head, byte_offset(at, id_width(type_)));
    at += size;
  }
  for (index_t d = 0; d <= n; ++d) push(head, d);
  const int file = create(idx + ".part");
  try {
    put(file, head.data(), static_cast<index_t>(head.size()), idx + ".part");
  } catch (...) {
    ::close(file);
    throw;
  }
  close_synced(file, idx + ".part");

  // An .idx stands only beside the .bin it was written for, whenever this is interrupted.
  if (::unlink(idx.c_str()) != 0 && errno != ENOENT) fail(idx, "cannot replace");
  rename_or_fail(bin + ".part", bin);
  rename_or_fail(idx + ".part", idx);
  finished_ = true;
}

}  // namespace capstan
