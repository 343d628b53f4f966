#pragma once
/// \file Errors carry the exit code that the process must end with.
#include <stdexcept>
#include <string>

namespace capstan {

/// Exit codes of every program of Capstan. Only `interrupted` asks a job script to
/// requeue.
enum class Exit : int {
  done = 0,
  internal = 1,
  deck = 2,         ///< usage, deck or data description
  diverged = 3,     ///< loss or gradients not finite, or a check found a disagreement
  file = 4,         ///< missing, truncated, corrupt or unwritable file
  device = 5,       ///< GPU, MPI, NCCL, stuck exchange
  interrupted = 75  ///< stopped on request with a complete checkpoint
};

/// An error with its exit code. The text names the file, key or tensor that is at fault.
class Error : public std::runtime_error {
 public:
  Error(Exit code, const std::string& text) : std::runtime_error(text), code_(code) {}
  Exit code() const { return code_; }

 private:
  Exit code_;
};

/// Throws Error(Exit::internal) unless `ok`. For what only a bug of Capstan can break.
inline void require(bool ok, const char* text) {
  if (!ok) throw Error(Exit::internal, text);
}

}  // namespace capstan
