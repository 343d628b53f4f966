#pragma once
/// \file Log lines: to the console and to a file, on rank 0 only (warnings and errors on
/// any rank).
#include <cstdarg>
#include <cstdio>
#include <string>

namespace capstan {

/// printf into a string.
std::string format(const char* pattern, ...) __attribute__((format(printf, 1, 2)));

class Log {
 public:
  /// `quiet` keeps the console empty (the file still gets everything).
  explicit Log(int rank = 0, bool quiet = false) : rank_(rank), quiet_(quiet) {}
  ~Log();
  Log(const Log&) = delete;
  /// Also appends to this file from now on, line buffered. Rank 0 only.
  void open(const std::string& path);
  void info(const char* pattern, ...) __attribute__((format(printf, 2, 3)));
  void warn(const char* pattern, ...) __attribute__((format(printf, 2, 3)));
  int rank() const { return rank_; }

 private:
  void put(const char* prefix, const std::string& text);
  int rank_;
  bool quiet_;
  std::FILE* file_ = nullptr;
};

}  // namespace capstan
