#pragma once
/// \file Memory of one rank that comes and goes within a step: what forward passes leave
/// for backward passes, and the working arrays beside it. Each array is counted where the
/// model takes it (src/model), with the mean load of the experts.
#include "model/moe/exchange_size.hpp"
#include "model/shape.hpp"

namespace capstan {

/// One pipeline stage's share of a step on one rank.
struct StageWork {
  index_t first_layer = 0, last_layer = 0;  ///< [first, last)
  bool embedding = true, head = true;
  index_t tokens = 0;     ///< of a micro-batch
  index_t n_expert = 1;   ///< ranks of the expert axis
  index_t in_flight = 1;  ///< micro-batches whose backward pass is still to come
  index_t weight_bytes = 4, sum_bytes = 4;  ///< of an element of S, of Acc<S>
};

/// Sizes of the exchange when the experts are evenly loaded: exact where they are static
/// (pooled_wave), else the rows that come on average, within the capacities.
ExchangeSize even_exchange(const ModelShape& shape, index_t tokens, index_t n_expert);

struct ActivationMemory {
  index_t carry = 0;    ///< inputs of the layers
  index_t saved = 0;    ///< what the layers keep for their backward passes
  index_t scratch = 0;  ///< the most that lies beside both, less the exchange's lanes
};

/// At the highest point of a step's forward and backward passes.
ActivationMemory activation_memory(const ModelShape& shape, const StageWork& work);

}  // namespace capstan
