#pragma once
/// \file The three ways to run a kernel: par_for, par_rows, par_sum. The label comes
/// first and names the kernel in profilers. All are asynchronous on GPUs except par_sum.
#include <utility>

#include "base/types.hpp"

namespace capstan {

/// f(i) for i in [0, n), independent of each other.
template <class F>
void par_for(const char* label, index_t n, const F& f) {
  if (n <= 0) return;
  Kokkos::parallel_for(label, Kokkos::RangePolicy<Exec, Kokkos::IndexType<index_t>>(0, n),
                       f);
}

/// sum of f(i, sum) over [0, n): f adds its term to its second argument. The order of the
/// sum depends on the number of threads only.
template <class T, class F>
T par_sum(const char* label, index_t n, const F& f) {
  T total{};
  if (n <= 0) return total;
  Kokkos::parallel_reduce(
      label, Kokkos::RangePolicy<Exec, Kokkos::IndexType<index_t>>(0, n), f, total);
  return total;
}

/// The worker of one row on a host: plain loops that the compiler vectorises. Inlined by
/// force: out of line, what a lambda captures would be read through memory in every
/// iteration.
class HostTeam {
 public:
  explicit HostTeam(char* scratch) : scratch_(scratch) {}
  /// f(i) for i in [0, n), independent of each other.
  template <class F>
  KOKKOS_FORCEINLINE_FUNCTION void each(index_t n, const F& f) const {
#pragma omp simd
    for (index_t i = 0; i < n; ++i) f(i);
  }
  /// Sum of f(i); every worker gets it. T is what f returns. Lanes are summed apart and
  /// folded at the end, so that the order does not depend on the width of the machine's
  /// vectors.
  template <class F>
  KOKKOS_FORCEINLINE_FUNCTION auto sum(index_t n, const F& f) const {
    using T = decltype(f(index_t(0)));
    constexpr int lanes = 64 / static_cast<int>(sizeof(T));
    T lane[lanes] = {};
    const index_t whole = n / lanes * lanes;
    for (index_t i = 0; i < whole; i += lanes) {
#pragma omp simd
      for (int l = 0; l < lanes; ++l) lane[l] += f(i + l);
    }
    T total = fold<lanes>(lane, [](T x, T y) { return x + y; });
    for (index_t i = whole; i < n; ++i) total += f(i);
    return total;
  }
  /// Maximum of f(i) and `least`.
  template <class F, class T>
  KOKKOS_FORCEINLINE_FUNCTION T max(index_t n, T least, const F& f) const {
    constexpr int lanes = 64 / static_cast<int>(sizeof(T));
    const auto larger = [](T x, T y) { return y > x ? y : x; };
    T lane[lanes];
    for (int l = 0; l < lanes; ++l) lane[l] = least;
    const index_t whole = n / lanes * lanes;
    for (index_t i = 0; i < whole; i += lanes) {
#pragma omp simd
      for (int l = 0; l < lanes; ++l) lane[l] = larger(lane[l], static_cast<T>(f(i + l)));
    }
    T best = fold<lanes>(lane, larger);
    for (index_t i = whole; i < n; ++i) best = larger(best, static_cast<T>(f(i)));
    return best;
  }
  /// What one worker does for all (for example a store of one value).
  template <class F>
  KOKKOS_FORCEINLINE_FUNCTION void once(const F& f) const {
    f();
  }
  inline void barrier() const {}
  /// Start of the row's scratch memory (the bytes that par_rows was asked for), 64-byte
  /// aligned.
  inline char* scratch() const {
    return scratch_;
  }

 private:
  /// lane[0] op ... op lane[N - 1] by halving.
  template <int N, class T, class Op>
  static KOKKOS_FORCEINLINE_FUNCTION T fold(T* lane, const Op& op) {
    if constexpr (N == 1) {
      return lane[0];
    } else {
#pragma omp simd
      for (int l = 0; l < N / 2; ++l) lane[l] = op(lane[l], lane[l + N / 2]);
      return fold<N / 2>(lane, op);
    }
  }
  char* scratch_;
};

#if defined(KOKKOS_ENABLE_CUDA)
/// The worker of one row on a GPU: a thread block of a TeamPolicy.
class DeviceTeam {
 public:
  using Member = Kokkos::TeamPolicy<Exec>::member_type;
  KOKKOS_FUNCTION DeviceTeam(const Member& m, char* scratch) : m_(m), scratch_(scratch) {}
  template <class F>
  KOKKOS_INLINE_FUNCTION void each(index_t n, const F& f) const {
    for (index_t i = m_.team_rank(); i < n; i += m_.team_size()) f(i);
  }
  template <class F>
  KOKKOS_INLINE_FUNCTION auto sum(index_t n, const F& f) const {
    using T = decltype(f(index_t(0)));
    T total = 0;
    for (index_t i = m_.team_rank(); i < n; i += m_.team_size()) total += f(i);
    T all = total;
    m_.team_reduce(Kokkos::Sum<T>(all));
    return all;
  }
  template <class F, class T>
  KOKKOS_INLINE_FUNCTION T max(index_t n, T least, const F& f) const {
    T best = least;
    for (index_t i = m_.team_rank(); i < n; i += m_.team_size()) {
      const T v = f(i);
      best = v > best ? v : best;
    }
    m_.team_reduce(Kokkos::Max<T>(best));
    return best;
  }
  template <class F>
  KOKKOS_INLINE_FUNCTION void once(const F& f) const {
    if (m_.team_rank() == 0) f();
  }
  KOKKOS_INLINE_FUNCTION void barrier() const { m_.team_barrier(); }
  KOKKOS_INLINE_FUNCTION char* scratch() const { return scratch_; }

 private:
  const Member& m_;
  char* scratch_;
};
using Team = DeviceTeam;

template <class F>
struct RowRunner {
  F f;
  index_t rows;
  int bytes;
  KOKKOS_FUNCTION void operator()(const DeviceTeam::Member& m) const {
    char* scratch = bytes > 0
                        ? static_cast<char*>(m.team_shmem().get_shmem_aligned(bytes, 64))
                        : nullptr;
    DeviceTeam team(m, scratch);
    for (index_t r = m.league_rank(); r < rows; r += m.league_size()) {
      f(team, r);
      m.team_barrier();
    }
  }
};

/// f(team, row) for row in [0, rows) with scratch_bytes of fast scratch memory for each
/// row. team.each loops end without a barrier: call team.barrier() before one worker
/// reads what another wrote.
template <class F>
void par_rows(const char* label, index_t rows, int scratch_bytes, const F& f) {
  if (rows <= 0) return;
  const int league = static_cast<int>(rows < (1 << 20) ? rows : (1 << 20));
  Kokkos::TeamPolicy<Exec> policy(league, 128);
  policy.set_scratch_size(0, Kokkos::PerTeam(scratch_bytes > 0 ? scratch_bytes + 64 : 0));
  Kokkos::parallel_for(label, policy, RowRunner<F>{f, rows, scratch_bytes});
}
#else
using Team = HostTeam;

/// Scratch memory of the calling thread, grown when needed and kept.
char* thread_scratch(index_t bytes);

/// f(team, row) for row in [0, rows) with scratch_bytes of scratch memory for each row.
/// team.each loops end without a barrier: call team.barrier() before one worker reads
/// what another wrote.
template <class F>
void par_rows(const char* label, index_t rows, int scratch_bytes, const F& f) {
  if (rows <= 0) return;
  Kokkos::parallel_for(
      label, Kokkos::RangePolicy<Exec, Kokkos::IndexType<index_t>>(0, rows),
      [=](index_t row) {
        const Team team(scratch_bytes > 0 ? thread_scratch(scratch_bytes) : nullptr);
        f(team, row);
      });
}
#endif

}  // namespace capstan
