#include "model/stage.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/error.hpp"
#include "base/log.hpp"
#include "model/cost.hpp"

namespace capstan {

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

/// Costs of stages as differences of sums over layers.
class Sums {
 public:
  Sums(const StageCosts& costs, index_t stages) : costs_(costs), stages_(stages) {
    for (const double c : costs.layer) sums_.push_back(sums_.back() + c);
  }
  double stage(index_t s, index_t first, index_t last) const {
    return sums_[last] - sums_[first] + (s == 0 ? costs_.embedding : 0) +
           (s == stages_ - 1 ? costs_.head : 0);
  }

 private:
  const StageCosts& costs_;
  index_t stages_;
  std::vector<double> sums_ = {0};
};

/// The best split of all layers, where best[s][l] = the least join(best[s - 1][k],
/// cost of stage s with layers k .. l - 1) over k, and a stage of more than `most` is
/// out.
template <class Join>
std::vector<LayerRange> best_split(const Sums& sums, index_t layers, index_t stages,
                                   double most, const Join& join) {
  std::vector<std::vector<double>> best(stages + 1,
                                        std::vector<double>(layers + 1, kNever));
  std::vector<std::vector<index_t>> from(stages + 1, std::vector<index_t>(layers + 1));
  best[0][0] = 0;
  for (index_t s = 0; s < stages; ++s)
    for (index_t last = s + 1; last <= layers - (stages - 1 - s); ++last)
      for (index_t first = s; first < last; ++first) {
        const double cost = sums.stage(s, first, last);
        const double total = cost > most ? kNever : join(best[s][first], cost);
        if (total >= best[s + 1][last]) continue;
        best[s + 1][last] = total;
        from[s + 1][last] = first;
      }
  std::vector<LayerRange> split(stages);
  for (index_t s = stages, last = layers; s > 0; last = from[s][last], --s)
    split[s - 1] = {from[s][last], last};
  return split;
}

std::vector<LayerRange> given_split(const ModelShape& shape, index_t stages) {
  const auto& given = shape.layers_per_stage;
  const index_t sum = std::accumulate(given.begin(), given.end(), index_t(0));
  const bool positive =
      std::all_of(given.begin(), given.end(), [](index_t n) { return n > 0; });
  if (index_t(given.size()) != stages || sum != shape.layers || !positive)
    throw Error(
        Exit::deck,
        format("grid/layers_per_stage has %zu stages with %lld layers: it must "
               "give each of the %lld stages a part of the %lld layers",
               given.size(), static_cast<long long>(sum), static_cast<long long>(stages),
               static_cast<long long>(shape.layers)));
  std::vector<LayerRange> split;
  for (index_t first = 0; const index_t n : given) {
    split.push_back({first, first + n});
    first += n;
  }
  return split;
}

}  // namespace

bool Stage::holds(const ParamSpec& spec) const {
  if (spec.layer >= 0) return spec.layer >= layers.first && spec.layer < layers.last;
  return spec.name.rfind("embed/", 0) == 0 ? first : last;
}

StageCosts stage_costs(const ModelShape& shape) {
  Work work;
  work.sequences = 1;
  work.seq_len = shape.seq_len;
  work.expert_rows = double(work.tokens()) * double(shape.top_k);
  StageCosts costs;
  costs.embedding = norm_gate_cost(shape, work).total();
  costs.head = head_cost(shape, work).total();
  for (index_t l = 0; l < shape.layers; ++l)
    costs.layer.push_back(layer_cost(shape, work, l).total());
  return costs;
}

std::vector<LayerRange> balanced_split(const StageCosts& costs, index_t stages) {
  const auto layers = static_cast<index_t>(costs.layer.size());
  if (stages > layers)
    throw Error(Exit::deck,
                format("grid/pipe = %lld: more stages than layers (%lld)",
                       static_cast<long long>(stages), static_cast<long long>(layers)));
  const Sums sums(costs, stages);
  const auto dearest = best_split(sums, layers, stages, kNever,
                                  [](double a, double b) { return std::max(a, b); });
  double most = 0;
  for (index_t s = 0; s < stages; ++s)
    most = std::max(most, sums.stage(s, dearest[s].first, dearest[s].last));
  return best_split(sums, layers, stages, most,
                    [](double a, double b) { return a + b * b; });
}

std::vector<LayerRange> split_layers(const ModelShape& shape, index_t stages) {
  if (!shape.layers_per_stage.empty()) return given_split(shape, stages);
  return balanced_split(stage_costs(shape), stages);
}

Stage stage_of(const ModelShape& shape, index_t stages, index_t stage) {
  return {split_layers(shape, stages).at(stage), stage == 0, stage == stages - 1};
}

}  // namespace capstan
