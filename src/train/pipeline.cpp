#include "train/pipeline.hpp"

#include <algorithm>

namespace capstan {

namespace {

std::vector<index_t> token_counts(const std::vector<Batch>& batches) {
  std::vector<index_t> counts;
  for (const Batch& b : batches) counts.push_back(static_cast<index_t>(b.tokens.size()));
  return counts;
}

/// Places of the micro-batches among the tokens of the step.
std::vector<index_t> first_tokens(const std::vector<Batch>& batches) {
  std::vector<index_t> first = {0};
  for (const index_t n : token_counts(batches)) first.push_back(first.back() + n);
  return first;
}

}  // namespace

std::string pipeline_line(const StageTime& time, LayerRange layers, const Grid& grid) {
  if (grid.n_pipe == 1) return "";
  // A stage is idle from the first pass of any to the last pass of any, less its work:
  // the stages start together, and the first ends last.
  double busy = time.seconds - time.waited, span = time.seconds;
  grid.world.all_reduce_host(&busy, 1, Reduce::sum);
  grid.world.all_reduce_host(&span, 1, Reduce::max);
  const auto by_stage = [&](const char* pattern, double mine) {
    std::string text;
    for (const double x : grid.pipeline.gather_lists(std::vector<double>{mine}))
      text += (text.empty() ? "" : ",") + format(pattern, x);
    return text;
  };
  const std::string counts = by_stage("%.0f", double(layers.count()));
  const std::string flights = by_stage("%.0f", double(time.in_flight));
  const std::string kept = by_stage("%.2f", double(time.activation_bytes) / (1 << 20));
  const double formula =
      bubble_fraction(grid.n_pipe, std::max<index_t>(1, time.micro_batches));
  return format(
      "#pipeline stages=%d micro_batches=%lld bubble_formula=%.4f bubble_measured=%.4f "
      "layers=%s in_flight=%s micro_batch_mib=%s\n",
      grid.n_pipe, static_cast<long long>(time.micro_batches), formula,
      span > 0 ? 1 - busy / (grid.world.size() * span) : 0.0, counts.c_str(),
      flights.c_str(), kept.c_str());
}

template <class S>
DeviceBatch Pipeline<S>::upload(const Batch& b, index_t first_token, bool for_backward) {
  return upload_batch(b.tokens, b.targets, b.segments, b.seq_len, first_token,
                      for_backward && grid_.first_stage(), ctx_);
}

template <class S>
void Pipeline<S>::train(const std::vector<Batch>& batches, double scale, LossSums& sums) {
  const double begin = ctx_.timers.wall();
  Arena& arena = ctx_.arena;
  const ArenaScope scope(arena);
  const auto m = static_cast<index_t>(batches.size());
  const index_t most = most_in_flight(grid_.n_pipe, grid_.pipe, m);
  StageLinks<S> links(grid_, {token_counts(batches), model_.shape().hidden, most, true},
                      ctx_);
  const std::vector<index_t> first_token = first_tokens(batches);
  // Where several are in flight, each has a lane of the arena: the first to come is the
  // first to go, which one stack could not serve.
  std::vector<Flight<S>> flights(static_cast<std::size_t>(most));
  std::vector<Arena::Mark> marks(flights.size());
  for (const auto& [forward, i] : one_forward_one_backward(grid_.n_pipe, grid_.pipe, m)) {
    const auto slot = static_cast<std::size_t>(i % most);
    arena.use_lane(grid_.n_pipe == 1 ? 0 : 1 + slot);
    if (forward) {
      marks[slot] = arena.mark();
      const DeviceBatch batch = upload(batches[i], first_token[i], true);
      model_.forward(batch, links.input(i), links.output(i), flights[slot], ctx_);
      links.send_output(i);
      time_.activation_bytes = std::max(time_.activation_bytes, arena.held());
    } else {
      model_.backward(flights[slot], links.gradient(i), scale, sums, ctx_);
      links.send_gradient(i);
      arena.release(marks[slot]);
    }
  }
  links.finish();
  arena.use_lane(0);
  time_.seconds += ctx_.timers.wall() - begin;
  time_.waited += links.waited();
  time_.micro_batches = m;
  time_.in_flight = most;
}

/// use(batch, x) with the output x of the last stage for every batch, there.
template <class S>
template <class F>
void Pipeline<S>::forward_only(const std::vector<Batch>& batches, Pass pass,
                               const F& use) {
  const ArenaScope scope(ctx_.arena);
  StageLinks<S> links(grid_, {token_counts(batches), model_.shape().hidden, 1, false},
                      ctx_);
  const std::vector<index_t> first_token = first_tokens(batches);
  for (std::size_t i = 0; i < batches.size(); ++i) {
    const ArenaScope inner(ctx_.arena);
    const DeviceBatch batch = upload(batches[i], first_token[i], false);
    const auto x =
        model_.forward_alone(batch, pass, links.input(i), links.output(i), ctx_);
    links.send_output(i);
    if (grid_.last_stage()) use(batch, x);
  }
  links.finish();
}

template <class S>
void Pipeline<S>::count(const std::vector<Batch>& batches) {
  forward_only(batches, Pass::count, [](const DeviceBatch&, View2<S>) {});
}

template <class S>
void Pipeline<S>::evaluate(const std::vector<Batch>& batches, LossSums& sums) {
  forward_only(batches, Pass::eval, [&](const DeviceBatch& batch, View2<S> x) {
    model_.add_loss(x, batch, sums, ctx_);
  });
}

template <class S>
std::vector<double> Pipeline<S>::logits(const Batch& batch, index_t position) {
  std::vector<double> values(static_cast<std::size_t>(model_.shape().vocab));
  forward_only({batch}, Pass::eval, [&](const DeviceBatch&, View2<S> x) {
    values = model_.logits(x, position, ctx_);
  });
  grid_.pipeline.broadcast_host(values.data(), index_t(values.size()), grid_.n_pipe - 1);
  return values;
}

#define CAPSTAN_PIPELINE(S) template class Pipeline<S>;
CAPSTAN_INSTANTIATE(CAPSTAN_PIPELINE)

}  // namespace capstan
