#include "model/model.hpp"

#include "kernels/embedding.hpp"

namespace capstan {

template <class S>
Model<S>::Model(const ModelShape& shape, const Grid& grid, index_t step_tokens,
                Context& ctx)
    : shape_(shape),
      grid_(grid),
      stage_(stage_of(shape, grid)),
      params_(shape, grid, ctx),
      routers_(shape, stage_.layers, step_tokens, ctx) {
  if (stage_.first) {
    table_ = params_.tensor("embed/table");
    embed_norm_.emplace(shape, params_, "embed");
  }
  for (index_t l = stage_.layers.first; l < stage_.layers.last; ++l) {
    blocks_.emplace_back(shape, params_, routers_, grid_, l);
  }
  if (stage_.last) head_.emplace(shape, params_);
}

template <class S>
void Model<S>::begin_step(std::int64_t valid_tokens) {
  fill(params_.dense_gradients(), Acc<S>(0));  // experts: MoeLayer::backward
  routers_.begin_step(valid_tokens);
}

/// The batch with what a transport must know of the other ranks. Collective over
/// grid.expert_group.
template <class S>
DeviceBatch Model<S>::with_group(const DeviceBatch& batch) const {
  DeviceBatch out = batch;
  out.valid_by_rank.assign(grid_.n_expert, batch.valid);
  if (shape_.transport.drops())
    grid_.expert_group.all_gather_host(&batch.valid, out.valid_by_rank.data(), 1);
  return out;
}

template <class S>
void Model<S>::embed(const DeviceBatch& batch, typename NormGate<S>::Saved& norm,
                     View2<S> raw, View2<S> x, Context& ctx) {
  const Region region(ctx.timers, "embedding");
  embedding<S>(batch.tokens, table_.matrix(), raw);
  embed_norm_->forward(raw, norm, x, ctx);
}

template <class S>
void Model<S>::embed_backward(const Flight<S>& flight, View2<S> d, Context& ctx) {
  const Region region(ctx.timers, "embedding");
  const ArenaScope scope(ctx.arena);
  const DeviceBatch& batch = flight.batch;
  const auto d_raw = ctx.arena.take2<S>("embedding", d.extent(0), d.extent(1));
  fill(d_raw, S(0));
  embed_norm_->backward(flight.raw, flight.embed_norm, d, d_raw, ctx);
  embedding_backward<S>(batch.order, batch.starts, batch.ids, d_raw, table_.d_matrix());
}

template <class S>
void Model<S>::forward(const DeviceBatch& batch, View2<S> in, View2<S> out,
                       Flight<S>& flight, Context& ctx) {
  Arena& arena = ctx.arena;
  flight.batch = with_group(batch);
  const index_t t = batch.size(), d = shape_.hidden;
  const std::size_t layers = blocks_.size();
  routers_.set_segments(batch.segments, batch.first_token);
  auto& x = flight.x;
  x.clear();
  x.push_back(stage_.first ? arena.take2<S>("block", t, d) : in);
  for (std::size_t l = 1; l < layers; ++l) x.push_back(arena.take2<S>("block", t, d));
  x.push_back(stage_.last ? arena.take2<S>("block", t, d) : out);
  if (stage_.first) {
    flight.raw = arena.take2<S>("embedding", t, d);
    embed(batch, flight.embed_norm, flight.raw, x[0], ctx);
  }
  flight.blocks.assign(layers, {});
  for (std::size_t l = 0; l < layers; ++l) {
    blocks_[l].forward(x[l], flight.batch, Pass::train, flight.blocks[l], x[l + 1], ctx);
    if (probe_ != nullptr)
      probe_(probe_user_, index_t(l), flight.batch, flight.blocks[l].moe);
  }
}

template <class S>
void Model<S>::backward(Flight<S>& flight, View2<S> d, double scale, LossSums& sums,
                        Context& ctx) {
  if (stage_.last) head_->run(flight.x.back(), flight.batch, scale, d, sums, ctx);
  for (std::size_t l = blocks_.size(); l-- > 0;)
    blocks_[l].backward(flight.batch, flight.blocks[l], d, ctx);
  if (stage_.first) embed_backward(flight, d, ctx);
}

template <class S>
View2<S> Model<S>::forward_alone(const DeviceBatch& own, Pass pass, View2<S> in,
                                 View2<S> out, Context& ctx) {
  Arena& arena = ctx.arena;
  const DeviceBatch batch = pass == Pass::eval ? own : with_group(own);
  const index_t t = batch.size(), d = shape_.hidden;
  auto from = arena.take2<S>("block", t, d), to = arena.take2<S>("block", t, d);
  if (stage_.first) {
    const ArenaScope scope(arena);
    typename NormGate<S>::Saved norm;
    embed(batch, norm, to, from, ctx);
  }
  for (std::size_t l = 0; l < blocks_.size(); ++l) {
    typename Block<S>::Saved saved;
    const auto source = l == 0 && !stage_.first ? in : from;
    const auto target = l + 1 == blocks_.size() && !stage_.last ? out : to;
    blocks_[l].forward(source, batch, pass, saved, target, ctx);
    to = from;
    from = target;
  }
  return from;
}

template <class S>
void Model<S>::add_loss(View2<const S> x, const DeviceBatch& batch, LossSums& sums,
                        Context& ctx) {
  head_->run(x, batch, 0.0, View2<S>(), sums, ctx);
}

template <class S>
std::vector<double> Model<S>::logits(View2<const S> x, index_t position, Context& ctx) {
  const ArenaScope scope(ctx.arena);
  const auto row = ctx.arena.take2<Acc<S>>("head", 1, shape_.vocab);
  head_->logits(x, position, row, ctx);
  const auto values = to_host<Acc<S>>(flat(row));
  return std::vector<double>(values.begin(), values.end());
}

template <class S>
void Model<S>::count(const DeviceBatch& batch, Context& ctx) {
  const ArenaScope scope(ctx.arena);
  forward_alone(batch, Pass::count, View2<S>(), View2<S>(), ctx);
}

template <class S>
void Model<S>::train(const DeviceBatch& batch, double scale, LossSums& sums,
                     Context& ctx) {
  const ArenaScope scope(ctx.arena);
  const auto d = ctx.arena.take2<S>("block", batch.size(), shape_.hidden);
  Flight<S> flight;
  forward(batch, View2<S>(), View2<S>(), flight, ctx);
  backward(flight, d, scale, sums, ctx);
}

template <class S>
void Model<S>::evaluate(const DeviceBatch& batch, LossSums& sums, Context& ctx) {
  const ArenaScope scope(ctx.arena);
  const auto x = forward_alone(batch, Pass::eval, View2<S>(), View2<S>(), ctx);
  add_loss(x, batch, sums, ctx);
}

template <class S>
void Model<S>::reduce_gradients(Context& ctx) {
  const Region region(ctx.timers, "reduce_gradients");
  fence();
  if (grid_.dense.size() > 1) {
    grid_.dense.all_reduce(params_.dense_gradients(), Reduce::sum).wait();
  }
  if (grid_.replicas.size() > 1) {
    grid_.replicas.all_reduce(params_.expert_gradients(), Reduce::sum).wait();
  }
}

#define CAPSTAN_MODEL(S) template class Model<S>;
CAPSTAN_INSTANTIATE(CAPSTAN_MODEL)

}  // namespace capstan
