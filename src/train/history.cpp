#include "train/history.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>

#include "base/error.hpp"
#include "base/log.hpp"

namespace capstan {

namespace {

/// Length of the file up to and with its last line feed.
off_t whole_lines(int file) {
  struct stat about;
  if (::fstat(file, &about) != 0) return 0;
  char block[4096];
  for (off_t end = about.st_size; end > 0;) {
    const off_t begin = std::max<off_t>(0, end - static_cast<off_t>(sizeof block));
    const ssize_t n = ::pread(file, block, static_cast<std::size_t>(end - begin), begin);
    if (n <= 0) return end;
    for (ssize_t i = n; i > 0; --i)
      if (block[i - 1] == '\n') return begin + i;
    end = begin;
  }
  return 0;
}

}  // namespace

std::string exact_text(double x) {
  if (std::isnan(x)) return "nan";
  char text[40];
  const auto end = std::to_chars(text, text + sizeof text, x);
  return std::string(text, end.ptr);
}

HistoryText::HistoryText(const std::string& path)
    : file_(::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644)) {
  if (file_ < 0 || ::ftruncate(file_, whole_lines(file_)) != 0)
    throw Error(Exit::file, "cannot write " + path + ": " + std::strerror(errno));
}

HistoryText::~HistoryText() {
  put("");
  ::close(file_);
}

void HistoryText::put(const std::string& line) {
  waiting_ += line;
  while (!waiting_.empty()) {
    const ssize_t n = ::write(file_, waiting_.data(), waiting_.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    waiting_.erase(0, static_cast<std::size_t>(n));
  }
}

void HistoryText::start(int segment, index_t start_step, const std::string& details,
                        const std::vector<std::string>& names) {
  segment_ = segment;
  columns_ = names.size();
  std::string text = "#segment";
  for (const std::string& name : names) text += " " + name;
  put(text +
      format("\n#start segment=%d start_step=%lld ", segment,
             static_cast<long long>(start_step)) +
      details + "\n");
}

void HistoryText::row(const std::vector<HistoryValue>& values) {
  require(values.size() == columns_, "history: one value for each column");
  std::string text = std::to_string(segment_);
  for (const HistoryValue& value : values) {
    const auto* count = std::get_if<std::int64_t>(&value);
    text += " ";
    text +=
        count != nullptr ? std::to_string(*count) : exact_text(std::get<double>(value));
  }
  put(text + "\n");
}

void HistoryText::eval(index_t step, index_t tokens, double loss) {
  put(format("#eval step=%lld tokens=%lld loss=", static_cast<long long>(step),
             static_cast<long long>(tokens)) +
      exact_text(loss) + "\n");
}

void HistoryText::event(index_t step, index_t tokens, const std::string& kind,
                        const std::string& text) {
  std::string line = text;
  std::replace(line.begin(), line.end(), '\n', ' ');
  put(format("#event step=%lld tokens=%lld kind=%s text=", static_cast<long long>(step),
             static_cast<long long>(tokens), kind.c_str()) +
      line + "\n");
}

}  // namespace capstan
