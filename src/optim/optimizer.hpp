#pragma once
/// \file The optimizers over the parameters of this rank, by parameter group, and the
/// norms of a step.
#include <memory>
#include <vector>

#include "kernels/adamw.hpp"
#include "kernels/newton_schulz.hpp"
#include "model/param.hpp"
#include "optim/groups.hpp"
#include "optim/shard.hpp"

namespace capstan {

/// Norms over all ranks, every parameter counted once.
struct Norms {
  double total = 0;
  std::vector<double> by_kind;  ///< in the order of param_kinds()
};

/// What the optimizer keeps for the rows of one tensor that this rank owns, in
/// checkpoints too.
template <class S>
struct OptimizerSlot {
  std::size_t group = 0;
  BatchShape matrices;         ///< what this rank owns; a matrix of adamh as its rows
  View1<Acc<S>> first;         ///< moment, laid out as the rows
  View1<Acc<S>> second;        ///< extent 0: the kind has none
  std::vector<double> radius;  ///< kept norms, on the host: one of each matrix, or of all
  bool shared_radius = false;  ///< one norm for the matrices (or rows) of all ranks
  index_t block = 0;           ///< first of its blocks in the sums of the update
};

template <class S>
class Optimizer {
 public:
  /// With memory/optimizer = sharded it deals out the rows that each rank owns, also of
  /// `params`' masters. Error(Exit::deck) where a group's kind does not suit its tensors.
  Optimizer(const Deck& deck, ParamStore<S>& params, const Grid& grid, Context& ctx);

  /// Takes the norms that muonh and adamh keep from the masters: after their initial
  /// values, before a checkpoint is loaded. Error(Exit::deck) for a matrix of zeros.
  /// Collective over grid.dense.
  void start(Context& ctx);
  /// Sums the gradients of all replicas on the ranks that own them; other rows keep what
  /// they were. With sharded state in place of Model::reduce_gradients. Collective over
  /// grid.dense.
  void reduce_gradients(Context& ctx);
  /// One update with every group's learning rate times `lr_factor`, gradients times
  /// `grad_scale`. Collective over grid.dense.
  void step(double lr_factor, double grad_scale, Context& ctx);
  /// Weights from masters, on all ranks: what step does, for masters that were loaded.
  void refresh_weights(Context& ctx);
  /// Whole reduced gradients on every rank, for dumps.
  void gather_gradients(Context& ctx);

  /// Norm of what the last step took from the masters, every parameter counted once.
  /// Collective over the world.
  double update_norm(const Grid& grid) const;

  const std::vector<ParamGroup>& groups() const { return groups_; }
  /// In the order of params.slots().
  std::vector<OptimizerSlot<S>>& slots() { return slots_; }
  std::int64_t updates() const { return updates_; }
  void set_updates(std::int64_t updates) { updates_ = updates; }

 private:
  AdamStep adam_step(const ParamSlot& slot, const ParamGroup& group, double lr_factor,
                     double grad_scale) const;
  View1<S> weights_of(std::size_t i) const;
  void gather_weights(Context& ctx);
  void matrix_step(std::size_t i, const AdamStep& step, Context& ctx);
  void set_direction(std::size_t i, const AdamStep& step, View1<Acc<S>> direction,
                     Context& ctx);
  std::vector<double> matrix_sums(std::size_t i, View1<const Acc<S>> direction,
                                  Context& ctx) const;
  std::vector<double> norm_sums(std::size_t i, const std::vector<double>& sums) const;
  std::vector<double> step_factors(std::size_t i, const AdamStep& step,
                                   const std::vector<double>& sums) const;

  ParamStore<S>& params_;
  const Grid& grid_;
  std::vector<ParamGroup> groups_;
  bool ns_bf16_ = false;               ///< products of Newton-Schulz in bf16
  std::unique_ptr<Shards<S>> shards_;  ///< null: every rank keeps everything
  std::vector<OptimizerSlot<S>> slots_;
  View1<Acc<S>> first_, second_;
  /// Sums of squares of the last update by blocks of elements, and their sums by blocks:
  /// those of dense tensors, then those of experts.
  View1<double> squares_, square_sums_;
  index_t dense_blocks_ = 0;
  std::int64_t updates_ = 0;
};

/// Norms of the reduced gradients, and of the masters, every parameter counted once: on
/// the rank that owns it, or where all replicas own it on one of them. Collective over
/// the world.
template <class S>
Norms gradient_norms(const ParamStore<S>& params, const Grid& grid);
template <class S>
Norms master_norms(const ParamStore<S>& params, const Grid& grid);

/// sums[0, n) of dense tensors and sums[n, 2n) of experts, which this rank has of what it
/// owns, become those of all parameters of all stages. Collective over the world.
void sum_over_owners(const Grid& grid, bool sharded, double* sums, index_t n);

/// Names of tensors whose owned rows have elements that are not finite in `buffer`, on
/// any rank of any stage. Collective over the world.
template <class S>
std::vector<std::string> non_finite_tensors(const ParamStore<S>& params,
                                            View1<Acc<S>> buffer, const Grid& grid);

/// Norm of a gradient beyond which its square, or a moment made of it, may overflow: such
/// a gradient is treated as one that is not finite.
template <class T>
constexpr double largest_gradient_norm() {
  return sizeof(T) == 4 ? 1e18 : 1e150;
}

}  // namespace capstan
