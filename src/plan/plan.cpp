#include "plan/plan.hpp"

#include "optim/groups.hpp"

namespace capstan {

Plan make_plan(const Deck& deck) {
  Plan p;
  p.shape = ModelShape::from_deck(deck);
  const auto list = param_list(p.shape);
  p.parameters = param_totals(list);
  p.flops = published_flops(p.shape);
  p.n_pipe = deck.integer("grid/pipe");
  p.n_data = deck.integer("grid/data");
  p.n_expert = deck.integer("grid/expert");
  p.micro_batches = deck.integer("grid/micro_batches");
  p.tokens_per_step = deck.integer("batch/sequences") * p.shape.seq_len;
  p.rank_micro_tokens = p.tokens_per_step / (p.n_data * p.n_expert * p.micro_batches);
  p.steps = deck.integer("job/steps");
  const index_t tokens = deck.integer("schedule/tokens");
  if (p.steps == 0) p.steps = (tokens + p.tokens_per_step - 1) / p.tokens_per_step;
  Work work;  // of one rank, whose experts get the mean load
  work.seq_len = p.shape.seq_len;
  work.sequences = p.tokens_per_step / p.shape.seq_len / (p.n_data * p.n_expert);
  work.expert_rows = double(work.tokens()) * double(p.shape.top_k);
  p.issued = step_cost(p.shape, work);
  p.newton_schulz = orthogonalisation_flops(deck, list, p.n_expert);
  p.memory = memory_per_rank(deck, p.shape, list);
  p.peak_flops = deck.real("topology/peak_gflops") * 1e9;
  p.device_memory = deck.real("topology/device_memory_gb") * 1e9;
  p.host_memory = deck.real("topology/host_memory_gb") * 1e9;
  return p;
}

MemoryLine Plan::used() const {
  MemoryLine sum{"sum", 0, 0};
  for (const MemoryLine& line : memory) {
    sum.device += line.device;
    sum.host += line.host;
  }
  return sum;
}

bool Plan::fits() const {
  const MemoryLine sum = used();
  return (device_memory <= 0 || double(sum.device) <= device_memory) &&
         (host_memory <= 0 || double(sum.host) <= host_memory);
}

}  // namespace capstan
