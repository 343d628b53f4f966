#pragma once
/// \file history.txt: one row of text a step, whole lines only. The format is described
/// in postprocess/README.
#include <string>
#include <variant>
#include <vector>

#include "base/types.hpp"

namespace capstan {

using HistoryValue = std::variant<std::int64_t, double>;

/// The shortest text that reads back to the same bits; "nan", "inf", "-inf".
std::string exact_text(double x);

/// Appends to the history of a run; rank 0 has one. Every line goes out with one write.
/// What finds no room on the disk waits in memory for the next line: training does not
/// stop for it.
class HistoryText {
 public:
  /// Cuts off what a killed writer left of a line. Error(Exit::file) when it cannot be
  /// opened.
  explicit HistoryText(const std::string& path);
  ~HistoryText();
  HistoryText(const HistoryText&) = delete;

  /// The two lines at the start of a segment. `details`: deck_hash=... grid=... ranks=...
  void start(int segment, index_t start_step, const std::string& details,
             const std::vector<std::string>& names);
  /// The segment and one value for each name.
  void row(const std::vector<HistoryValue>& values);
  void eval(index_t step, index_t tokens, double loss);
  void event(index_t step, index_t tokens, const std::string& kind,
             const std::string& text);
  /// Bytes that wait for room; 0 when all is written.
  std::size_t waiting() const { return waiting_.size(); }

 private:
  void put(const std::string& line);
  int file_ = -1;
  int segment_ = 0;
  std::size_t columns_ = 0;
  std::string waiting_;
};

}  // namespace capstan
