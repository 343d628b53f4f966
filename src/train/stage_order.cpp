#include "train/stage_order.hpp"

#include <algorithm>

namespace capstan {

std::vector<StagePass> one_forward_one_backward(index_t stages, index_t stage,
                                                index_t micro_batches) {
  const index_t ahead = std::min(micro_batches, stages - 1 - stage);
  std::vector<StagePass> order;
  for (index_t i = 0; i < micro_batches + ahead; ++i) {
    if (i < micro_batches) order.push_back({true, i});
    if (i >= ahead) order.push_back({false, i - ahead});
  }
  return order;
}

index_t most_in_flight(index_t stages, index_t stage, index_t micro_batches) {
  return std::min(micro_batches, stages - stage);
}

double bubble_fraction(index_t stages, index_t micro_batches) {
  return double(stages - 1) / double(micro_batches + stages - 1);
}

}  // namespace capstan
