#include "model/model.hpp"

#include "kernels/embedding.hpp"

namespace capstan {

template <class S>
Model<S>::Model(const ModelShape& shape, const Grid& grid, index_t step_tokens,
                Context& ctx)
    : shape_(shape),
      grid_(grid),
      params_(shape, grid, ctx),
      routers_(shape, step_tokens, ctx),
      table_(params_.tensor("embed/table")),
      embed_norm_(shape, params_, "embed"),
      head_(shape, params_) {
  for (index_t l = 0; l < shape.layers; ++l) {
    blocks_.emplace_back(shape, params_, routers_, grid_, l);
  }
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
  embed_norm_.forward(raw, norm, x, ctx);
}

template <class S>
void Model<S>::embed_backward(const DeviceBatch& batch,
                              const typename NormGate<S>::Saved& norm, View2<const S> raw,
                              View2<S> d, Context& ctx) {
  const Region region(ctx.timers, "embedding");
  const ArenaScope scope(ctx.arena);
  const auto d_raw = ctx.arena.take2<S>("embedding", raw.extent(0), raw.extent(1));
  fill(d_raw, S(0));
  embed_norm_.backward(raw, norm, d, d_raw, ctx);
  embedding_backward<S>(batch.order, batch.starts, batch.ids, d_raw, table_.d_matrix());
}

template <class S>
void Model<S>::train(const DeviceBatch& own, double scale, LossSums& sums, Context& ctx) {
  Arena& arena = ctx.arena;
  const DeviceBatch batch = with_group(own);
  const ArenaScope scope(arena);
  const index_t t = batch.size(), d = shape_.hidden;
  routers_.set_segments(batch.segments, batch.first_token);
  const auto gradient = arena.take2<S>("block", t, d);
  const auto raw = arena.take2<S>("embedding", t, d);
  std::vector<View2<S>> x;  // input of every block, and the output of the last
  for (index_t l = 0; l <= shape_.layers; ++l) x.push_back(arena.take2<S>("block", t, d));
  typename NormGate<S>::Saved embed_norm;
  embed(batch, embed_norm, raw, x[0], ctx);
  std::vector<typename Block<S>::Saved> saved(shape_.layers);
  for (index_t l = 0; l < shape_.layers; ++l) {
    blocks_[l].forward(x[l], batch, Pass::train, saved[l], x[l + 1], ctx);
    if (probe_ != nullptr) probe_(probe_user_, l, batch, saved[l].moe);
  }
  head_.run(x[shape_.layers], batch, scale, gradient, sums, ctx);
  for (index_t l = shape_.layers - 1; l >= 0; --l) {
    blocks_[l].backward(batch, saved[l], gradient, ctx);
  }
  embed_backward(batch, embed_norm, raw, gradient, ctx);
}

template <class S>
View2<S> Model<S>::forward_alone(const DeviceBatch& batch, Pass pass, Context& ctx) {
  Arena& arena = ctx.arena;
  const index_t t = batch.size(), d = shape_.hidden;
  const auto a = arena.take2<S>("block", t, d);
  const auto b = arena.take2<S>("block", t, d);
  {
    const ArenaScope scope(arena);
    typename NormGate<S>::Saved norm;
    embed(batch, norm, b, a, ctx);
  }
  View2<S> in = a, out = b;
  for (index_t l = 0; l < shape_.layers; ++l) {
    typename Block<S>::Saved saved;
    blocks_[l].forward(in, batch, pass, saved, out, ctx);
    std::swap(in, out);
  }
  return in;
}

template <class S>
void Model<S>::count(const DeviceBatch& batch, Context& ctx) {
  const ArenaScope scope(ctx.arena);
  forward_alone(with_group(batch), Pass::count, ctx);
}

template <class S>
void Model<S>::evaluate(const DeviceBatch& batch, LossSums& sums, Context& ctx) {
  const ArenaScope scope(ctx.arena);
  const auto x = forward_alone(batch, Pass::eval, ctx);
  head_.run(x, batch, 0.0, View2<S>(), sums, ctx);
}

template <class S>
std::vector<double> Model<S>::logits_at(const DeviceBatch& batch, index_t position,
                                        Context& ctx) {
  const ArenaScope scope(ctx.arena);
  const auto x = forward_alone(batch, Pass::eval, ctx);
  const auto row = ctx.arena.take2<S>("head", 1, shape_.vocab);
  head_.logits(x, position, row, ctx);
  const auto values = to_host<S>(flat(row));
  return std::vector<double>(values.begin(), values.end());
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
