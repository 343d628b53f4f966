#include "optim/shard.hpp"

#include <algorithm>

#include "kernels/pieces.hpp"

namespace capstan {

namespace {

using Run = ShardGroup::Run;

index_t length(const std::vector<Run>& stream) {
  index_t n = 0;
  for (const Run& run : stream) n += run.n;
  return n;
}

/// Elements [begin, end) of a stream as pieces of the table, packed from `at` on.
void add_pieces(const std::vector<Run>& stream, index_t begin, index_t end, index_t at,
                std::vector<index_t>& table) {
  index_t passed = 0;
  for (const Run& run : stream) {
    index_t from = std::max(begin - passed, index_t(0));
    const index_t to = std::min(end - passed, run.n);
    for (; from < to; from += kPieceElements) {
      const index_t n = std::min(kPieceElements, to - from);
      table.insert(table.end(), {run.first + from, at, n});
      at += n;
    }
    passed += run.n;
  }
}

}  // namespace

ShardGroup::ShardGroup(const Comm& group, const std::vector<std::vector<Run>>& streams,
                       index_t bucket, Ledger& ledger)
    : group_(group) {
  if (group.size() == 1) return;
  index_t longest = 0;
  for (const auto& stream : streams) longest = std::max(longest, length(stream));
  const index_t step = std::max<index_t>(1, bucket / group.size());
  std::vector<index_t> table;
  const auto pieces = [&] { return index_t(table.size()) / kPieceTerms; };
  for (index_t begin = 0; begin < longest; begin += step) {
    Bucket b;
    b.first = pieces();
    for (int r = 0; r < group.size(); ++r) {
      const auto& stream = streams[static_cast<std::size_t>(r)];
      const index_t end = std::min(begin + step, length(stream));
      const index_t before = pieces();
      b.counts.push_back(std::max(end - begin, index_t(0)));
      add_pieces(stream, begin, end, b.total, table);
      if (r == group.rank()) {
        b.mine = b.total;
        b.first_mine = before;
        b.pieces_mine = pieces() - before;
      }
      b.total += b.counts.back();
    }
    b.pieces = pieces() - b.first;
    buckets_.push_back(b);
  }
  table_ = make1<index_t>(ledger, "shards", index_t(table.size()));
  copy_to_device(table.data(), table_.data(), index_t(table.size()));
}

template <class T>
void ShardGroup::reduce(const View1<T>& buffer, Context& ctx) const {
  for (const Bucket& b : buckets_) {
    const ArenaScope scope(ctx.arena);
    const index_t mine = b.counts[static_cast<std::size_t>(group_.rank())];
    const auto send = ctx.arena.take1<T>("shards", b.total);
    const auto parts = ctx.arena.take1<T>("shards", mine * group_.size());
    pack_pieces<T>(table_, b.first, b.pieces, 0, buffer.data(), send.data());
    // The sum may overwrite this rank's piece of what was sent: it was copied to `parts`.
    group_.reduce_scatter_v(send.data(), b.counts, parts.data(), send.data() + b.mine)
        .wait();
    unpack_pieces<T>(table_, b.first_mine, b.pieces_mine, b.mine, send.data() + b.mine,
                     buffer.data());
    fence();
  }
}

template <class T>
void ShardGroup::gather(const View1<T>& buffer, Context& ctx) const {
  for (const Bucket& b : buckets_) {
    const ArenaScope scope(ctx.arena);
    const auto all = ctx.arena.take1<T>("shards", b.total);
    pack_pieces<T>(table_, b.first_mine, b.pieces_mine, 0, buffer.data(), all.data());
    group_.all_gather_v(all.data() + b.mine, b.counts, all.data()).wait();
    unpack_pieces<T>(table_, b.first, b.pieces, 0, all.data(), buffer.data());
    fence();
  }
}

template <class S>
Shards<S>::Shards(const ParamStore<S>& params,
                  const std::vector<std::vector<index_t>>& cuts, const Grid& grid,
                  index_t bucket, Ledger& ledger) {
  const auto& slots = params.slots();
  owned_.resize(slots.size());
  for (const bool expert : {false, true}) {
    const Comm& group = expert ? grid.replicas : grid.dense;
    const auto me = static_cast<std::size_t>(group.rank());
    std::vector<std::vector<Run>> streams(static_cast<std::size_t>(group.size()));
    for (std::size_t i = 0; i < slots.size(); ++i) {
      const ParamSlot& slot = slots[i];
      if (slot.spec.expert != expert) continue;
      for (std::size_t r = 0; r < streams.size(); ++r) {
        const index_t first = cuts[i].at(r), rows = cuts[i].at(r + 1) - first;
        if (rows > 0)
          streams[r].push_back(
              {slot.offset + first * slot.row_size, rows * slot.row_size});
        if (r == me) owned_[i] = {first, rows};
      }
    }
    groups_.emplace_back(group, streams, bucket, ledger);
  }
}

#define CAPSTAN_SHARD_GROUP(T)                                          \
  template void ShardGroup::reduce<T>(const View1<T>&, Context&) const; \
  template void ShardGroup::gather<T>(const View1<T>&, Context&) const;
CAPSTAN_SHARD_GROUP(float)
CAPSTAN_SHARD_GROUP(double)
template void ShardGroup::gather<bf16>(const View1<bf16>&, Context&) const;

#define CAPSTAN_SHARDS(S) template class Shards<S>;
CAPSTAN_INSTANTIATE(CAPSTAN_SHARDS)

}  // namespace capstan
