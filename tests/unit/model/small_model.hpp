#pragma once
/// \file A small model and a batch with several documents and padding, for tests of the
/// model.
#include "model/model.hpp"
#include "unit/check.hpp"

namespace capstan::test {

inline ModelShape small_shape() {
  ModelShape s;
  s.hidden = 12;
  s.layers = 2;
  s.heads = 4;
  s.kv_heads = 2;
  s.kv_heads_global = 1;
  s.head_dim = 4;
  s.vocab = 17;
  s.seq_len = 10;
  s.window = 4;
  s.global_every = 2;
  s.rope_theta = 100;
  s.rope_dims = 2;
  s.qk_norm = true;
  s.qk_eps = 1e-6;
  s.qk_multiplier = 1.3;
  s.xsa = s.head_gate = true;
  s.gate_rank = 3;
  s.sconv_k = s.sconv_attn = s.sconv_moe = true;
  s.norm_eps = 1e-5;
  s.init_std = 0.3;
  s.z_loss = 1e-2;
  s.experts = 8;
  s.top_k = 2;
  s.shared_experts = 2;
  s.expert_width = 5;
  s.shared_width = 6;
  s.latent_width = 7;
  s.score_sum = 2.5;
  s.balance = Balance::qb;
  s.qb_bins = 1000;
  return s;
}

/// Derivative of loss() by one element of device memory, by central differences of fourth
/// order. The element is put back.
inline double difference(double* at, const std::function<double()>& loss) {
  double kept = 0;
  copy_to_host(at, &kept, 1);
  const double step = 1e-4;
  const auto shifted = [&](double by) {
    const double value = kept + by;
    copy_to_device(&value, at, 1);
    return loss();
  };
  const double near = shifted(step) - shifted(-step);
  const double far = shifted(2 * step) - shifted(-2 * step);
  copy_to_device(&kept, at, 1);
  return (8 * near - far) / (12 * step);
}

struct HostBatch {
  std::vector<std::int32_t> tokens, targets, segments;
};

/// `sequences` sequences with documents that end inside, and padding at the end of the
/// last.
inline HostBatch small_batch(const ModelShape& s, index_t sequences, std::uint64_t seed) {
  HostBatch b;
  const Rng rng(seed, 5);
  for (index_t i = 0; i < sequences * s.seq_len; ++i) {
    const index_t place = i % s.seq_len;
    const bool padding = i >= sequences * s.seq_len - 2;
    const int document = place < 3 ? 0 : place < 7 ? 1 : 2;
    const bool last = place == 2 || place == 6 || place == s.seq_len - 1;
    b.tokens.push_back(static_cast<std::int32_t>(rng.bits(i) % s.vocab));
    b.targets.push_back(
        padding || last ? -1 : static_cast<std::int32_t>(rng.bits(1000 + i) % s.vocab));
    b.segments.push_back(padding ? -1 : document);
  }
  return b;
}

/// Model, context and the whole batch of a step, of which a rank of the grid takes its
/// part.
template <class S>
struct Rig {
  explicit Rig(const ModelShape& shape, index_t sequences = 2, std::uint64_t seed = 3,
               const Grid& on = {})
      : ctx(0, true),
        grid(on),
        host(small_batch(shape, sequences, seed)),
        model(shape, grid, sequences * shape.seq_len / grid.n_dense(), ctx) {
    model.params().initialise(seed);
    // Gates start at zero and convolutions at the identity: move them, so that they
    // matter.
    for (const ParamSlot& slot : model.params().slots()) {
      if (slot.spec.kind == ParamSpec::matrix) continue;
      const auto part = model.params().part(model.params().masters(), slot);
      Values v = values(part);
      const Values noise = normal_values(slot.size(), stream_of(slot.spec.name), 0.2);
      for (std::size_t i = 0; i < v.size(); ++i) v[i] += noise[i];
      const std::vector<Acc<S>> typed(v.begin(), v.end());
      copy_to_device<Acc<S>>(typed.data(), part.data(), slot.size());
    }
    model.params().refresh_weights();
  }
  /// Runs forward and backward; returns the loss whose gradient was taken. Collective.
  double train(int micro_batches = 1) {
    LossSums sums;
    const auto valid = std::count_if(host.segments.begin(), host.segments.end(),
                                     [](std::int32_t s) { return s >= 0; });
    model.begin_step(valid);
    RouterState<Acc<S>>& routers = model.routers();
    if (routers.counts_first(micro_batches)) {
      each_part(micro_batches, [&](const DeviceBatch& b) { model.count(b, ctx); });
      routers.share_counts(grid);
    }
    each_part(micro_batches,
              [&](const DeviceBatch& b) { model.train(b, scale, sums, ctx); });
    model.reduce_gradients(ctx);
    return loss_of(sums) + routers.terms(grid).total();
  }
  /// f(micro-batch) for each micro-batch of this rank.
  template <class F>
  void each_part(int micro_batches, const F& f) {
    const index_t ranks = grid.n_dense(), rank = grid.dense_rank();
    const index_t n = static_cast<index_t>(host.tokens.size()) / (micro_batches * ranks);
    for (int m = 0; m < micro_batches; ++m) {
      const ArenaScope scope(ctx.arena);
      const auto part = [&](const std::vector<std::int32_t>& v) {
        const auto first = v.begin() + (m * ranks + rank) * n;
        return std::vector<std::int32_t>(first, first + n);
      };
      f(upload_batch(part(host.tokens), part(host.targets), part(host.segments),
                     model.shape().seq_len, m * n, true, ctx));
    }
  }
  double evaluate() {
    LossSums sums;
    each_part(1, [&](const DeviceBatch& b) { model.evaluate(b, sums, ctx); });
    return loss_of(sums);
  }
  double loss_of(const LossSums& sums) const {
    double total = scale * (sums.cross_entropy + model.shape().z_loss * sums.z_loss);
    grid.dense.all_reduce_host(&total, 1, Reduce::sum);
    return total;
  }

  Context ctx;
  Grid grid;
  HostBatch host;
  Model<S> model;
  double scale = 0.1;
};

}  // namespace capstan::test
