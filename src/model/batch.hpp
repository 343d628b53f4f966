#pragma once
/// \file One micro-batch of this rank on the device.
#include <vector>

#include "base/context.hpp"
#include "kernels/embedding.hpp"

namespace capstan {

/// Views of T = sequences * seq_len tokens; they live in the arena of the caller.
struct DeviceBatch {
  index_t sequences = 0, seq_len = 0;
  index_t first_token =
      0;  ///< place of this micro-batch among the rank's tokens of the step
  View1<std::int32_t> tokens, targets, segments;
  /// Tokens grouped by id for the embedding's gradient (empty when only forward runs).
  View1<std::int32_t> order, starts, ids;
  index_t valid = 0;  ///< tokens that are no padding
  /// The same of every rank of the expert group, where the transport needs it.
  std::vector<index_t> valid_by_rank;
  index_t size() const { return sequences * seq_len; }
};

/// Copies a batch to the device. `for_backward` also groups the tokens.
DeviceBatch upload_batch(const std::vector<std::int32_t>& tokens,
                         const std::vector<std::int32_t>& targets,
                         const std::vector<std::int32_t>& segments, index_t seq_len,
                         index_t first_token, bool for_backward, Context& ctx);

}  // namespace capstan
