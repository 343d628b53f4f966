#pragma once
/// \file AdamW over the parameters of this rank, by parameter group, and the norms of a
/// step.
#include <vector>

#include "kernels/adamw.hpp"
#include "model/param.hpp"
#include "optim/groups.hpp"

namespace capstan {

/// Norms over all ranks, every parameter counted once.
struct Norms {
  double total = 0;
  std::vector<double> by_kind;  ///< in the order of param_kinds()
};

template <class S>
class Optimizer {
 public:
  Optimizer(const Deck& deck, ParamStore<S>& params, Context& ctx);

  /// One update with every group's learning rate times `lr_factor`, gradients times
  /// `grad_scale`.
  void step(double lr_factor, double grad_scale, Context& ctx);

  /// Norm of what the last step took from the masters, every parameter counted once.
  /// Collective over grid.expert_group.
  double update_norm(const Grid& grid) const;

  const std::vector<ParamGroup>& groups() const { return groups_; }
  View1<Acc<S>> first() const { return first_; }
  View1<Acc<S>> second() const { return second_; }
  std::int64_t updates() const { return updates_; }
  void set_updates(std::int64_t updates) { updates_ = updates; }

 private:
  ParamStore<S>& params_;
  std::vector<ParamGroup> groups_;
  std::vector<std::size_t> group_;  ///< of each slot
  View1<Acc<S>> first_, second_;
  /// Sums of squares of the last update by blocks of elements, and their sums by blocks:
  /// those of dense tensors, then those of experts.
  View1<double> squares_, square_sums_;
  index_t dense_blocks_ = 0;
  std::int64_t updates_ = 0;
};

/// Norms of a flat buffer laid out as the parameters (gradients, masters). Collective
/// over grid.expert_group: dense tensors are equal on all ranks, experts are not.
template <class S>
Norms norms_of(const ParamStore<S>& params, View1<Acc<S>> buffer, const Grid& grid);

/// Names of tensors of this rank with elements that are not finite in `buffer`.
template <class S>
std::vector<std::string> non_finite_tensors(const ParamStore<S>& params,
                                            View1<Acc<S>> buffer);

}  // namespace capstan
