#pragma once
/// \file The directory of a run: its lock, the number of this start (segment), paths,
/// requests by touched files, the status line.
#include <string>

#include "base/log.hpp"
#include "comm/comm.hpp"

namespace capstan {

/// Rank 0 touches the file system; the others know the paths. Error(Exit::file) on all
/// ranks.
class RunDir {
 public:
  /// Collective. Creates the directory, takes its lock, counts the segment.
  /// Error(Exit::file) when another process has the lock, with its host and process
  /// number. The lock of a process that died does not count.
  RunDir(const std::string& path, const Comm& world);
  /// Gives the lock back.
  ~RunDir();
  RunDir(const RunDir&) = delete;

  const std::string& path() const { return path_; }
  /// From 1: one more than the greatest of earlier starts.
  int segment() const { return segment_; }
  /// Goes on as the next segment: what follows replaces steps of this one.
  void next_segment();
  std::string deck_used() const { return path_ + "/deck.used"; }
  std::string log() const { return path_ + format("/log.%d", segment_); }
  std::string history() const { return path_ + "/history.txt"; }
  std::string timing() const { return path_ + "/timing.txt"; }
  std::string checkpoints() const { return path_ + "/ckpt"; }
  /// diag/<name>.<number>.h5
  std::string diag(const std::string& name, long long number) const;

  /// Was RUN/stop or RUN/checkpoint touched? Removes it. Rank 0 only, false elsewhere.
  bool take_request(const std::string& name) const;
  /// Replaces the one line of RUN/status. Rank 0 only; a full disk is not an error.
  void set_status(const std::string& line) const;
  /// Takes the "is being written" mark off the diagnostics of earlier segments that were
  /// killed. Rank 0 only.
  void close_dead_files(Log& log) const;

 private:
  void take_lock();
  int last_segment() const;

  std::string path_;
  int rank_ = 0, segment_ = 1;
  int lock_ = -1;  ///< file descriptor
};

}  // namespace capstan
