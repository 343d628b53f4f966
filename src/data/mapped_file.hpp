#pragma once
/// \file A whole file mapped read-only. Pages are shared by all processes of a machine.
#include <cstddef>
#include <cstdint>
#include <string>

namespace capstan {

using index_t = std::int64_t;

class MappedFile {
 public:
  MappedFile() = default;
  /// Error(Exit::file) naming the file when it cannot be opened or mapped.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  /// Tells the system that small pieces are read here and there, so that it does not read
  /// megabytes ahead at each (12 ms a piece were seen without).
  void expect_random() const;
  const std::byte* data() const { return data_; }
  index_t size() const { return size_; }  ///< bytes
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  index_t size_ = 0;
};

}  // namespace capstan
