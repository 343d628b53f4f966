#pragma once
/// \file Token files for the tests of the data floor, in a folder that goes away.
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "data/token_file.hpp"

namespace capstan::test {

class Folder {
 public:
  Folder() {
    std::string name =
        (std::filesystem::temp_directory_path() / "capstan-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw Error(Exit::file, "no temporary folder");
    path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  std::string at(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

/// Writes documents of these lengths; token i of the whole file is (first + i) mod
/// `vocab`, the last token of each document is `end` (if >= 0). Returns the ids.
inline std::vector<std::int32_t> write_documents(const std::string& prefix,
                                                 const std::vector<index_t>& lengths,
                                                 std::int32_t vocab,
                                                 std::int32_t end = -1,
                                                 std::int32_t first = 0) {
  TokenFileWriter writer(prefix, vocab > 65536 ? IdType::int32 : IdType::uint16);
  std::vector<std::int32_t> all;
  for (const index_t length : lengths) {
    std::vector<std::int32_t> document;
    for (index_t i = 0; i < length; ++i) {
      const auto at = static_cast<std::int32_t>(all.size() + document.size());
      document.push_back((first + at) % vocab);
    }
    if (end >= 0 && length > 0) document.back() = end;
    all.insert(all.end(), document.begin(), document.end());
    writer.append(document);
  }
  writer.finish();
  return all;
}

inline void write_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}
inline std::string read_bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

/// The message of the Error that f throws, with its code; "" when it throws none.
template <class F>
std::string error_of(F f, Exit code) {
  try {
    f();
  } catch (const Error& error) {
    if (error.code() == code) return error.what();
    return "wrong exit code: " + std::string(error.what());
  }
  return "";
}

}  // namespace capstan::test
