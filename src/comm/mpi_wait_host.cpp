/// \file MPI: waiting, and what to say when it does not end.
#if CAPSTAN_MPI
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <set>
#include <string>

#include "base/error.hpp"
#include "comm/mpi_state_host.hpp"

namespace capstan::mpi {

namespace {

/// Polls without a pause; then with the core offered to others; from here on asleep
/// between two polls.
constexpr int kBusyPolls = 200;
constexpr double kSleepAfterSeconds = 5e-3;
constexpr useconds_t kSleepMicroseconds = 50;
/// Time for the other ranks that wait to say so, before the first ends them all. The
/// ranks take turns, because Open MPI's mpirun 4.1 can crash when two abort at once.
constexpr unsigned kLastWordsSeconds = 2;
constexpr unsigned kMostTurns = 8;

/// "0-3,7" of {0, 1, 2, 3, 7}.
std::string ranges(const std::set<int>& ranks) {
  std::string text;
  for (auto it = ranks.begin(); it != ranks.end();) {
    const int first = *it;
    int last = first;
    while (++it != ranks.end() && *it == last + 1) last = *it;
    text += (text.empty() ? "" : ",") + std::to_string(first);
    if (last > first) text += "-" + std::to_string(last);
  }
  return text;
}

}  // namespace

bool Requests::test() {
  int done = 0;
  std::vector<MPI_Status> status(list_.size());
  const int n = static_cast<int>(list_.size());
  const int code = MPI_Testall(n, list_.data(), &done, status.data());
  if (code == MPI_ERR_IN_STATUS) {
    for (const MPI_Status& s : status)
      if (s.MPI_ERROR != MPI_ERR_PENDING) check(s.MPI_ERROR, what_);
  }
  check(code, what_);
  return done != 0;
}

void Requests::wait() {
  using Clock = std::chrono::steady_clock;
  for (int polls = 0; polls < kBusyPolls && !list_.empty(); ++polls)
    if (test()) list_.clear();
  const auto start = Clock::now();
  while (!list_.empty()) {
    if (test()) {
      list_.clear();
      break;
    }
    sched_yield();
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    if (seconds > kSleepAfterSeconds) usleep(kSleepMicroseconds);
    if (watch_->stuck_seconds > 0 && seconds > watch_->stuck_seconds) give_up(seconds);
  }
  peers_.clear();
}

void Requests::give_up(double seconds) {
  std::set<int> missing, all(watch_->ranks.begin(), watch_->ranks.end());
  for (std::size_t i = 0; i < list_.size(); ++i) {
    int done = 1;
    MPI_Request_get_status(list_[i], &done, MPI_STATUS_IGNORE);
    if (done == 0 && peers_[i] >= 0) missing.insert(watch_->ranks[peers_[i]]);
  }
  const std::string whom = missing.empty()
                               ? "ranks that say nothing here are missing"
                               : "nothing came from or went to ranks " + ranges(missing);
  std::fprintf(
      stderr,
      "ERROR: stuck: rank %d has waited %.0f seconds in %s, operation %lld of the "
      "group of ranks %s: %s (job/stuck_seconds)\n",
      watch_->ranks[watch_->rank], seconds, what_, static_cast<long long>(number_),
      ranges(all).c_str(), whom.c_str());
  std::fflush(stderr);
  unsigned turn = 0;
  for (int rank : all)
    if (rank < watch_->ranks[watch_->rank] && missing.count(rank) == 0) ++turn;
  sleep(kLastWordsSeconds * (1 + std::min(turn, kMostTurns)));
  abort(static_cast<int>(Exit::device));
}

}  // namespace capstan::mpi
#endif
