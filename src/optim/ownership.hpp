#pragma once
/// \file Who keeps the optimizer's state of what: rows of tensors dealt out to the ranks
/// that would otherwise keep copies of all of them.
#include <vector>

#include "optim/groups.hpp"

namespace capstan {

/// A tensor as it is dealt out: units that are not cut (a row, or a matrix that its
/// optimizer needs whole), one after the other.
struct DealtTensor {
  index_t units = 0, rows_per_unit = 1;
  double state = 0;  ///< size of a unit's state
  double work = 0;   ///< of a unit's update; 0 = dealt by size alone
};

/// For every tensor cuts [ranks + 1] in rows: rank r owns rows [cut[r], cut[r + 1]).
/// Units with work go by longest processing time first, each to the rank with the least
/// work so far (then the least state, then the lowest number); what is left fills up the
/// ranks with the least state. A pure function of its arguments.
std::vector<std::vector<index_t>> deal_out(const std::vector<DealtTensor>& tensors,
                                           index_t ranks);

/// A tensor of which a rank has 1 / n_expert of the rows where it is an expert's. Kinds
/// that orthogonalise get whole matrices, the others rows (of a stack: matrices).
DealtTensor dealt_tensor(const ParamSpec& spec, OptimizerKind kind, index_t n_expert);

/// Cuts of every tensor of `specs`, dense ones over data x expert, experts' over data.
std::vector<std::vector<index_t>> share_state(const std::vector<ParamSpec>& specs,
                                              const std::vector<ParamGroup>& groups,
                                              index_t n_data, index_t n_expert);

}  // namespace capstan
