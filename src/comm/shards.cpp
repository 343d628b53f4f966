// The verbs of sharded state: sums that end on one rank each, and pieces that everybody
// gets.
#include <numeric>

#include "base/error.hpp"
#include "base/parallel.hpp"
#include "comm/staged.hpp"

namespace capstan {

namespace {

index_t total(const std::vector<index_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), index_t(0));
}

/// sum[i] = parts[0][i] + parts[1][i] + ..., from left to right.
template <class T>
void add_parts(const T* parts, index_t ranks, index_t n, T* sum) {
  constexpr index_t chunk = 2048;
  par_rows(
      "reduce_scatter", (n + chunk - 1) / chunk, 0,
      KOKKOS_LAMBDA(const Team& team, index_t block) {
        const index_t first = block * chunk;
        const index_t count = n - first < chunk ? n - first : chunk;
        const T* from = parts + first;
        T* to = sum + first;
        team.each(count, [&](index_t i) { to[i] = from[i]; });
        for (index_t r = 1; r < ranks; ++r) {
          team.barrier();
          const T* part = from + r * n;
          team.each(count, [&](index_t i) { to[i] += part[i]; });
        }
      });
}

}  // namespace

template <class T>
Pending Comm::reduce_scatter_v(const T* send, const std::vector<index_t>& counts,
                               T* scratch, T* receive) const {
  const index_t ranks = size(), mine = counts.at(static_cast<std::size_t>(rank()));
  const std::vector<index_t> from(static_cast<std::size_t>(ranks), mine);
  auto moved = std::make_shared<Pending>(all_to_all_v(send, counts, scratch, from, 1));
  return pending([=] {
    moved->wait();
    add_parts(scratch, ranks, mine, receive);
  });
}

template <class T>
Pending Comm::all_gather_v(const T* send, const std::vector<index_t>& counts,
                           T* receive) const {
  require(static_cast<int>(counts.size()) == size(),
          "all_gather_v: one count for each rank");
  const index_t all = total(counts), mine = counts[static_cast<std::size_t>(rank())];
  if (all == 0) return {};
  if (impl_->alone()) {
    if (send != receive)
      Kokkos::deep_copy(Exec(), View1<T>(receive, all), View1<const T>(send, all));
    return {};
  }
  std::vector<std::size_t> bytes;
  for (const index_t n : counts) bytes.push_back(static_cast<std::size_t>(n) * sizeof(T));
  if (impl_->nccl)
    return pending(impl_->nccl->gather_pieces(send, receive, bytes, stream_of(Exec())));
  auto out = std::make_shared<Staged<T>>(const_cast<T*>(send), mine);
  auto in = std::make_shared<Staged<T>>(receive, all);
  out->fetch();
  Finish finish = impl_->mpi->gather_pieces(out->host(), in->host(), std::move(bytes));
  return pending([=] {
    finish();
    (void)out;  // sent from until here
    in->put_back();
  });
}

// clang-format off
#define CAPSTAN_GATHERS(T) \
  template Pending Comm::all_gather_v<T>(const T*, const std::vector<index_t>&, T*) const;
#define CAPSTAN_SCATTERS(T) \
  template Pending Comm::reduce_scatter_v<T>(const T*, const std::vector<index_t>&, T*, \
                                             T*) const;
// clang-format on
CAPSTAN_GATHERS(bf16)
CAPSTAN_GATHERS(float)
CAPSTAN_GATHERS(double)
CAPSTAN_SCATTERS(float)
CAPSTAN_SCATTERS(double)

}  // namespace capstan
