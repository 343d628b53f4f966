#include "model/moe/dispatch.hpp"

#include <algorithm>

#include "base/stream.hpp"

namespace capstan {

namespace {

template <class S>
View2<S> slice(const View2<S>& v, index_t first, index_t rows) {
  const index_t width = v.extent(1);
  return View2<S>(v.data() + first * width, rows, width);
}

/// Reads the headers of a wave that has arrived and grants its rows room in the bank. The
/// host waits for the compute stream only: the next wave is on its way.
template <class S>
void open_wave(DispatchPlan& plan, Wave& wave, View2<const S> arrived, Context& ctx) {
  const Region region(ctx.timers, "dispatch_plan");
  const ArenaScope scope(ctx.arena);
  const auto ids = ctx.arena.take1<std::int32_t>("dispatch", wave.arrived);
  unpack_ids<S>(arrived, plan.blocks, ids);
  const index_t local = static_cast<index_t>(wave.offsets.size()) - 1;
  std::vector<std::int32_t> host_ids(wave.arrived);
  stream_to_host(ids.data(), host_ids.data(), wave.arrived);
  const Bank bank =
      grant_bank(host_ids, plan.block_first, plan.block_pool, local, plan.bank_capacity);
  wave.offsets = bank.offsets;
  wave.computed = bank.offsets.back();
  require(wave.computed <= wave.room, "pooled_wave: more rows than the bank has");
  wave.arrange = View1<std::int32_t>(wave.arrange.data(), wave.computed);
  stream_to_device(bank.arrange.data(), wave.arrange.data(), wave.computed);
  stream_to_device(bank.restore.data(), wave.restore.data(), wave.arrived);
}

/// The waves of one call on their way: two buffers each way.
template <class S>
class Traffic {
 public:
  Traffic(DispatchPlan& plan, View2<S> send, View2<S> back, const Grid& grid,
          Context& ctx)
      : plan_(plan), send_(send), back_(back), grid_(grid), ctx_(ctx) {
    const index_t width = send.extent(1);
    index_t most = 0, computed = 0;
    for (const Wave& w : plan.waves) {
      most = std::max(most, w.arrived);
      computed = std::max(computed, w.room);
    }
    const std::size_t lanes = std::min<std::size_t>(2, plan.waves.size());
    for (std::size_t i = 0; i < lanes; ++i) {
      coming_[i] = ctx.arena.take2<S>("exchange", most, width);
      going_[i] = ctx.arena.take2<S>("exchange", most, width);
    }
    y_ = ctx.arena.take2<S>("exchange", computed, width);
  }

  void start(std::size_t w) {
    if (w >= plan_.waves.size()) return;
    const Region region(ctx_.timers, "exchange");
    const Wave& wave = plan_.waves[w];
    const auto rows = slice<S>(send_, wave.first, wave.rows);
    there_[w % 2] = grid_.expert_group.template all_to_all_v<S>(
        rows.data(), wave.send_rows, coming_[w % 2].data(), wave.receive_rows,
        send_.extent(1));
  }

  /// Waits for wave w and puts it in expert order.
  View2<S> arrange(std::size_t w, View2<S> room) {
    finish(there_[w % 2]);
    Wave& wave = plan_.waves[w];
    const auto arrived = slice<S>(coming_[w % 2], 0, wave.arrived);
    if (plan_.headers && wave.computed < 0) open_wave<S>(plan_, wave, arrived, ctx_);
    const Region region(ctx_.timers, "permute");
    const auto x = slice<S>(room, 0, wave.computed);
    permute_rows<S>(arrived, wave.arrange, x);
    return x;
  }

  View2<S> result(std::size_t w) { return slice<S>(y_, 0, plan_.waves[w].computed); }

  void send_back(std::size_t w) {
    finish(home_[w % 2]);  // of wave w - 2, from the same buffer
    const Wave& wave = plan_.waves[w];
    const auto leaving = slice<S>(going_[w % 2], 0, wave.arrived);
    {
      const Region region(ctx_.timers, "permute");
      permute_rows<S>(result(w), wave.restore, leaving);
      if (plan_.headers) pack_flags<S>(wave.restore, plan_.blocks, leaving);
    }
    const Region region(ctx_.timers, "exchange");
    const auto rows = slice<S>(back_, wave.first, wave.rows);
    home_[w % 2] = grid_.expert_group.template all_to_all_v<S>(
        leaving.data(), wave.receive_rows, rows.data(), wave.send_rows, send_.extent(1));
  }

  void finish_all() {
    const std::size_t n = plan_.waves.size();
    if (n > 1) finish(home_[n % 2]);
    finish(home_[(n + 1) % 2]);
  }

 private:
  void finish(Pending& pending) {
    const Region region(ctx_.timers, "exchange_wait");
    pending.wait();
  }

  DispatchPlan& plan_;
  View2<S> send_, back_, coming_[2], going_[2], y_;
  const Grid& grid_;
  Context& ctx_;
  Pending there_[2], home_[2];
};

}  // namespace

template <class S>
void through_experts(DispatchPlan& plan, View2<S> send, View2<S> back,
                     std::vector<View2<S>>& rows, const WaveWork<S>& work,
                     const Grid& grid, Context& ctx) {
  const index_t n = static_cast<index_t>(plan.waves.size());
  if (!plan.travels) {
    for (index_t w = 0; w < n; ++w) {
      const Wave& wave = plan.waves[w];
      rows[w] = slice<S>(send, wave.first, wave.rows);
      work(w, rows[w], slice<S>(back, wave.first, wave.rows));
    }
    return;
  }
  const ArenaScope scope(ctx.arena);
  Traffic<S> traffic(plan, send, back, grid, ctx);
  traffic.start(0);
  for (index_t w = 0; w < n; ++w) {
    traffic.start(w + 1);
    rows[w] = traffic.arrange(w, rows[w]);
    work(w, rows[w], traffic.result(w));
    traffic.send_back(w);
  }
  traffic.finish_all();
}

template <class S>
void settle(DispatchPlan& plan, View2<const S> back, Context& ctx) {
  const Region region(ctx.timers, "dispatch_plan");
  DropTally& tally = plan.tally;
  if (plan.headers) {
    const std::int64_t travelled = count_kept(plan.slot);
    drop_refused<S>(back, plan.layout, plan.order, plan.slot);
    tally.receiver = travelled - count_kept(plan.slot);
  }
  tally.kept = count_kept(plan.slot);
  tally.computed = 0;
  for (const Wave& wave : plan.waves) tally.computed += wave.computed;
  require(tally.assignments == tally.kept + tally.sender + tally.receiver,
          "exchange: assignments are not kept + dropped");
}

#define CAPSTAN_DISPATCH(S)                                                    \
  template void through_experts<S>(DispatchPlan&, View2<S>, View2<S>,          \
                                   std::vector<View2<S>>&, const WaveWork<S>&, \
                                   const Grid&, Context&);                     \
  template void settle<S>(DispatchPlan&, View2<const S>, Context&);
CAPSTAN_INSTANTIATE(CAPSTAN_DISPATCH)

}  // namespace capstan
