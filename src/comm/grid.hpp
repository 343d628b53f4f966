#pragma once
/// \file The grid of ranks: world = pipe x data x expert,
/// rank = (pipe * n_data + data) * n_expert + expert.
#include "comm/comm.hpp"

namespace capstan {

struct Grid {
  int n_pipe = 1, n_data = 1, n_expert = 1;
  int pipe = 0, data = 0, expert = 0;
  Comm world = Comm::self();
  /// data x expert of this stage: replicas of dense weights
  Comm dense = Comm::self();
  /// same expert, all data: replicas of this rank's experts
  Comm replicas = Comm::self();
  /// same data, all expert ranks: the all-to-all
  Comm expert_group = Comm::self();

  /// Collective over `world`. Error(Exit::deck) when pipe * data * expert is not its size
  /// (the message gives the nearest grids), or pipe > 1 (not yet supported).
  static Grid build(const Comm& world, int n_pipe, int n_data, int n_expert);
  /// Index among data x expert: the order in which ranks take sequences of a micro-batch.
  int dense_rank() const { return data * n_expert + expert; }
  int n_dense() const { return n_data * n_expert; }
};

}  // namespace capstan
