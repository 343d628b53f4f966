#include "plan/memory.hpp"

#include <algorithm>

#include "kernels/newton_schulz.hpp"
#include "optim/ownership.hpp"
#include "optim/shard.hpp"
#include "plan/activations.hpp"

namespace capstan {
namespace {

struct Bytes {
  index_t weight = 4;  ///< of the model's scalar
  index_t sum = 4;     ///< of masters, gradients, moments
};

Bytes bytes_of(const std::string& scalar) {
  if (scalar == "double") return {8, 8};
  return scalar == "bf16" ? Bytes{2, 4} : Bytes{4, 4};
}

index_t ceil_div(index_t a, index_t b) {
  return (a + b - 1) / b;
}

/// Masters and moments of the rank that keeps most, of tensors whose state is dealt out
/// as the optimizer deals it out.
void add_owned(const Deck& deck, const std::vector<ParamSpec>& specs,
               const std::vector<ParamGroup>& groups, StageParams& out) {
  const index_t n_data = deck.integer("grid/data"),
                n_expert = deck.integer("grid/expert");
  const auto cuts = share_state(specs, groups, n_data, n_expert);
  std::vector<index_t> masters(static_cast<std::size_t>(n_data * n_expert), 0);
  std::vector<index_t> moments = masters;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const index_t row = specs[i].size() / specs[i].shape[0];
    const index_t kept = moments_of(groups[group_of(groups, specs[i].name)].kind);
    for (std::size_t r = 0; r < masters.size(); ++r) {
      const std::size_t part =
          specs[i].expert ? r / static_cast<std::size_t>(n_expert) : r;
      const index_t n = (cuts[i][part + 1] - cuts[i][part]) * row;
      masters[r] += n;
      moments[r] += n * kept;
    }
  }
  for (std::size_t r = 0; r < masters.size(); ++r) {
    if (masters[r] + moments[r] <= out.owned + out.owned_moments) continue;
    out.owned = masters[r];
    out.owned_moments = moments[r];
  }
}

std::vector<MemoryLine> stage_memory(const Deck& deck, const ModelShape& shape,
                                     const StageParams& p, index_t layers) {
  const Bytes bytes = bytes_of(deck.text("model/scalar"));
  const index_t data = deck.integer("grid/data"), expert = deck.integer("grid/expert");
  const bool dense_sharded = deck.text("memory/dense") == "sharded";
  const std::string& place = deck.text("memory/optimizer");
  const bool whole = place == "replicated", host = place == "host";
  const index_t dense_copies = dense_sharded ? data * expert : 1;
  const index_t local = ceil_div(p.dense, dense_copies) + p.expert;
  // Masters of the weights' type are the weights, where both are on the device.
  const bool separate = bytes.weight != bytes.sum || host || dense_sharded;
  const index_t masters = (whole || !separate ? p.dense + p.expert : p.owned) * bytes.sum;
  const index_t moments =
      (whole ? p.dense_moments + p.expert_moments : p.owned_moments) * bytes.sum;
  const index_t tokens =
      deck.integer("batch/sequences") * shape.seq_len / (data * expert);

  std::vector<MemoryLine> out;
  if (separate) out.push_back({"weights", local * bytes.weight, 0});
  out.push_back({"masters", host ? 0 : masters, host ? masters : 0});
  out.push_back({"gradients", local * bytes.sum, 0});
  out.push_back({"moments", host ? 0 : moments, host ? moments : 0});
  out.push_back({"router_logits", layers * tokens * (shape.experts + 1) * bytes.sum, 0});
  index_t router = layers * (shape.experts * (bytes.sum + 16) + 8) + tokens * 4 + 16;
  if (shape.balance == Balance::qb) router += shape.experts * shape.qb_bins * 4;
  if (shape.balance == Balance::sign) router += layers * shape.experts * 8;
  if (shape.balance == Balance::aux) {
    const bool each = shape.aux_scope == AuxScope::micro_batch;
    const index_t rows = each ? deck.integer("grid/micro_batches") : 1;
    router += layers * (rows * shape.experts + 1) * 8;
  }
  out.push_back({"router", router, 0});
  // Of one layer at a time, in both directions.
  const ExchangeSize e =
      even_exchange(shape, tokens / deck.integer("grid/micro_batches"), expert);
  if (e.travels)
    out.push_back({"exchange", e.lane_elements(shape.latent()) * bytes.weight, 0});
  return out;
}

/// Working arrays of the update of the largest tensor, and of the moves of sharded state.
index_t update_scratch(const Deck& deck, const std::vector<ParamSpec>& list,
                       const StageParams& p) {
  const index_t sum = bytes_of(deck.text("model/scalar")).sum;
  const bool whole = deck.text("memory/optimizer") == "replicated";
  const index_t data = deck.integer("grid/data"), n_expert = deck.integer("grid/expert");
  const auto groups = groups_from_deck(deck);
  const index_t moved = std::min(kShardBucket, std::max(p.dense, p.expert));
  index_t most = whole || data * n_expert == 1 ? 0 : 2 * moved * sum;
  for (const ParamSpec& spec : list) {
    const OptimizerKind kind = groups[group_of(groups, spec.name)].kind;
    const std::size_t axes = spec.shape.size();
    if (!orthogonalises(kind) || axes < 2) continue;
    BatchShape m{1, spec.shape[axes - 2], spec.shape[axes - 1]};
    m.count = spec.size() / m.size() / (spec.expert ? n_expert : 1);
    if (spec.expert && !whole) m.count = ceil_div(m.count, data);
    most = std::max(most, (m.count * m.size() + newton_schulz_scratch(m)) * sum);
  }
  return most;
}

/// What comes and goes within a step, in the fuller of its two halves.
void add_activations(const Deck& deck, const ModelShape& shape,
                     const std::vector<ParamSpec>& list, const StageParams& params,
                     StageWork work, std::vector<MemoryLine>& lines) {
  const Bytes bytes = bytes_of(deck.text("model/scalar"));
  const index_t micro = deck.integer("grid/micro_batches");
  work.n_expert = deck.integer("grid/expert");
  work.tokens = deck.integer("batch/sequences") * shape.seq_len /
                (deck.integer("grid/data") * work.n_expert * micro);
  work.in_flight = std::min(work.in_flight, micro);
  work.weight_bytes = bytes.weight;
  work.sum_bytes = bytes.sum;
  const ActivationMemory m = activation_memory(shape, work);
  const bool host = deck.text("memory/carry") == "host";
  const index_t passes = (host ? 0 : m.carry) + m.saved + m.scratch;
  const index_t update = update_scratch(deck, list, params);
  lines.push_back({"carry", host ? 0 : m.carry, host ? m.carry : 0});
  lines.push_back({"saved", m.saved, 0});
  lines.push_back({"scratch", m.scratch + std::max<index_t>(0, update - passes), 0});
}

index_t total(const std::vector<MemoryLine>& lines) {
  index_t sum = 0;
  for (const auto& line : lines) sum += line.device + line.host;
  return sum;
}

}  // namespace

StageParams stage_params(const Deck& deck, const std::vector<ParamSpec>& list,
                         const Stage& stage) {
  const index_t n_expert = deck.integer("grid/expert");
  const auto groups = groups_from_deck(deck);
  StageParams out;
  std::vector<ParamSpec> specs;  // with state
  for (const auto& spec : list) {
    if (!stage.holds(spec)) continue;
    const auto& group = groups[group_of(groups, spec.name)];
    const index_t moments = moments_of(group.kind);
    const index_t n = spec.expert ? spec.size() / n_expert : spec.size();
    (spec.expert ? out.expert : out.dense) += n;
    (spec.expert ? out.expert_moments : out.dense_moments) += n * moments;
    if (spec.kind != ParamSpec::state) specs.push_back(spec);
  }
  add_owned(deck, specs, groups, out);
  return out;
}

std::vector<MemoryLine> memory_per_rank(const Deck& deck, const ModelShape& shape,
                                        const std::vector<ParamSpec>& list) {
  std::vector<MemoryLine> fullest;
  const index_t stages = deck.integer("grid/pipe");
  for (index_t i = 0; i < stages; ++i) {
    const Stage stage = stage_of(shape, stages, i);
    const StageParams params = stage_params(deck, list, stage);
    auto lines = stage_memory(deck, shape, params, stage.layers.count());
    StageWork work{stage.layers.first, stage.layers.last, stage.first, stage.last};
    work.in_flight = stages - i;
    add_activations(deck, shape, list, params, work, lines);
    if (total(lines) > total(fullest)) fullest = std::move(lines);
  }
  return fullest;
}

}  // namespace capstan
