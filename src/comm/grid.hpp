#pragma once
/// \file The grid of ranks: world = pipe x data x expert,
/// rank = (pipe * n_data + data) * n_expert + expert.
#include "comm/comm.hpp"

namespace capstan {

/// What goes between two neighbouring stages: a group of two for each direction, so that
/// no message waits behind one of the other way. Rank 0 is the earlier stage.
struct StageEdge {
  Comm activations = Comm::self();  ///< rank 0 to rank 1
  Comm gradients = Comm::self();    ///< rank 1 to rank 0
};

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
  /// same data and expert, all stages in order: sums over the whole model
  Comm pipeline = Comm::self();
  StageEdge to_previous, to_next;  ///< of one rank where there is no such stage

  /// Collective over `world`. Error(Exit::deck) when pipe * data * expert is not its size
  /// (the message gives the nearest grids).
  static Grid build(const Comm& world, int n_pipe, int n_data, int n_expert);
  /// Index among data x expert: the order in which ranks take sequences of a micro-batch.
  int dense_rank() const { return data * n_expert + expert; }
  int n_dense() const { return n_data * n_expert; }
  bool first_stage() const { return pipe == 0; }
  bool last_stage() const { return pipe == n_pipe - 1; }
};

}  // namespace capstan
