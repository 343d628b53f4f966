#include "base/log.hpp"

#include <vector>

#include "base/error.hpp"

namespace capstan {

namespace {
std::string vformat(const char* pattern, va_list args) {
  va_list copy;
  va_copy(copy, args);
  const int n = std::vsnprintf(nullptr, 0, pattern, copy);
  va_end(copy);
  std::string text(n > 0 ? static_cast<std::size_t>(n) : 0, '\0');
  if (n > 0) std::vsnprintf(text.data(), text.size() + 1, pattern, args);
  return text;
}
}  // namespace

std::string format(const char* pattern, ...) {
  va_list args;
  va_start(args, pattern);
  std::string text = vformat(pattern, args);
  va_end(args);
  return text;
}

Log::~Log() {
  if (file_ != nullptr) std::fclose(file_);
}

void Log::open(const std::string& path) {
  if (rank_ != 0) return;
  if (file_ != nullptr) std::fclose(file_);
  file_ = std::fopen(path.c_str(), "a");
  if (file_ == nullptr) throw Error(Exit::file, "cannot open log file " + path);
  std::setvbuf(file_, nullptr, _IOLBF, 1 << 12);
}

void Log::put(const char* prefix, const std::string& text) {
  if (!quiet_) {
    std::printf("%s%s\n", prefix, text.c_str());
    std::fflush(stdout);
  }
  if (file_ != nullptr) std::fprintf(file_, "%s%s\n", prefix, text.c_str());
}

void Log::info(const char* pattern, ...) {
  if (rank_ != 0) return;
  va_list args;
  va_start(args, pattern);
  const std::string text = vformat(pattern, args);
  va_end(args);
  put("", text);
}

void Log::warn(const char* pattern, ...) {
  va_list args;
  va_start(args, pattern);
  const std::string text = vformat(pattern, args);
  va_end(args);
  put(rank_ == 0 ? "WARNING: " : format("WARNING (rank %d): ", rank_).c_str(), text);
}

}  // namespace capstan
