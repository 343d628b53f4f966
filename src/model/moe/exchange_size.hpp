#pragma once
/// \file Sizes of the exchange's buffers before any token is routed: what the planner
/// says of a deck. `pooled_wave` has static shapes, so its sizes are exact; the others
/// move exact counts, and these are their largest sizes when no rank holds padding.
#include "model/moe/accept.hpp"

namespace capstan {

struct ExchangeSize {
  index_t sent = 0;     ///< rows of the send list of one rank
  index_t arrived = 0;  ///< rows of the largest wave, from all ranks
  index_t room = 0;     ///< rows of the largest wave that experts of a rank work on
  index_t waves = 1;
  bool travels = false;
  /// Elements of the send list, of the two lanes there and back, and of a wave's results,
  /// for rows of `width`.
  index_t list_elements(index_t width) const { return sent * width; }
  index_t lane_elements(index_t width) const {
    if (!travels) return 0;
    return ((waves > 1 ? 4 : 2) * arrived + room) * width;
  }
};

/// For `tokens` valid tokens of each rank in a micro-batch, top_k choices among `experts`
/// that n_ranks ranks share, rows of `width`.
ExchangeSize exchange_size(const TransportSpec& spec, index_t tokens, index_t top_k,
                           index_t experts, index_t n_ranks, index_t width);

}  // namespace capstan
