#pragma once
/// \file From assignments to rows on the ranks that own the experts, and back. A plan is
/// made once by a transport (transport.hpp) and serves forward and backward.
#include <functional>
#include <vector>

#include "base/context.hpp"
#include "comm/grid.hpp"
#include "kernels/dispatch.hpp"
#include "model/moe/accept.hpp"

namespace capstan {

/// A part of the exchange: it travels while the wave before it is computed.
struct Wave {
  index_t first = 0, rows = 0;  ///< rows of the send list
  index_t arrived = 0;          ///< rows that come from all ranks
  index_t computed = 0;         ///< rows that experts of this rank work on
  index_t room = 0;             ///< the most that `computed` can be
  std::vector<index_t> send_rows, receive_rows;  ///< by rank of the expert group
  std::vector<index_t> offsets;  ///< [E_local + 1] rows of each local expert
  /// Arrived row of each row in expert order, and its inverse (-1 = not computed: a row
  /// of zeros goes back). Empty when rows do not travel.
  View1<std::int32_t> arrange, restore;
};

/// Assignments of one micro-batch and layer on this rank, and what became of them.
struct DropTally {
  std::int64_t assignments = 0, kept = 0;
  std::int64_t sender = 0, receiver = 0;  ///< dropped, by the capacity that was full
  std::int64_t spilled = 0;               ///< kept by another expert than first chosen
  std::int64_t computed = 0;              ///< rows that experts of this rank worked on
  /// Capacity of a sender's pool (or cell) and of a receiver's bank (or chunk) in rows,
  /// and the factors that their rounding gave; 0 = the transport has none.
  double pool_rows = 0, pool_factor = 0, bank_rows = 0, bank_factor = 0;
};

/// Views lie in the arena of the caller.
struct DispatchPlan {
  index_t sent = 0;           ///< rows of the send list, unused and header rows included
  View1<std::int32_t> order;  ///< [sent] row -> assignment t * K + k, -1 = unused
  View1<std::int32_t> slot;   ///< [T * K] assignment -> row, -1 = dropped or padding
  std::vector<Wave> waves;
  bool travels =
      false;  ///< else the send list is in expert order and all experts are here
  DropTally tally;
  /// pooled_wave: the ids of the rows travel in header rows, so that a wave's `offsets`,
  /// `arrange` and `restore` are known when it has arrived for the first time.
  bool headers = false;
  PoolLayout layout;
  ArrivedBlocks blocks;
  std::vector<index_t> block_first, block_pool;  ///< of `blocks`
  index_t bank_capacity = 0;
};

/// What a transport decides on. experts [T, K], -1 = padding.
struct Assignments {
  View2<const std::int32_t> experts;
  /// [T, K] the experts that compute: spill writes its replacements here; others leave
  /// it.
  View2<std::int32_t> routed;
  View2<const std::int32_t> next;  ///< [T, kSpillChoices] of spill
  /// Combine weights of all assignments on the host, for DropPolicy::weight.
  std::function<std::vector<double>()> weights;
  std::vector<index_t>
      valid;  ///< tokens that are no padding, by rank of the expert group
  index_t n_experts = 0;
  index_t width = 0;  ///< Z, of a row
};

/// The local experts' part of an exchange: x [computed, Z] in expert order -> y alike.
template <class S>
using WaveWork = std::function<void(index_t wave, View2<S> x, View2<S> y)>;

/// Sends the list `send` [sent, Z] to the experts, wave by wave, has `work` done on each
/// wave and brings the results back into `back` [sent, Z], which may be `send` when rows
/// travel. Wave w + 1 travels during the work on w, and so do results. rows[w] [room, Z]
/// takes the wave in expert order; on return it has the rows that were computed (a part
/// of `send` when rows do not travel). Collective over grid.expert_group.
template <class S>
void through_experts(DispatchPlan& plan, View2<S> send, View2<S> back,
                     std::vector<View2<S>>& rows, const WaveWork<S>& work,
                     const Grid& grid, Context& ctx);

/// After the first way back: pooled_wave's senders learn what receivers dropped. Fills
/// the rest of plan.tally and checks that assignments = kept + drops.
template <class S>
void settle(DispatchPlan& plan, View2<const S> back, Context& ctx);

}  // namespace capstan
