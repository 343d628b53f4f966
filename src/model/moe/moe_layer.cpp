#include "model/moe/moe_layer.hpp"

#include <algorithm>

#include "base/parallel.hpp"
#include "kernels/linear.hpp"
#include "kernels/norm.hpp"
#include "kernels/swiglu.hpp"

namespace capstan {

namespace {

/// Rounds router logits to bf16, as the reference run's matrix product does on output.
template <class T>
void round_to_bf16(View1<T> x) {
  par_for(
      "router_round", x.extent(0),
      KOKKOS_LAMBDA(index_t i) { x(i) = T(float(bf16(float(x(i))))); });
}

/// x as products take it: itself, or a rounded copy in the arena.
template <class S>
View2<S> stored(View2<Acc<S>> x, Context& ctx) {
  if constexpr (std::is_same_v<S, Acc<S>>) {
    return x;
  } else {
    const auto y = ctx.arena.take2<S>("router_scratch", x.extent(0), x.extent(1));
    round_to<S>(flat(x), flat(y));
    return y;
  }
}

}  // namespace

template <class S>
MoeLayer<S>::MoeLayer(const ModelShape& shape, const ParamStore<S>& params,
                      RouterState<Acc<S>>& routers, const Grid& grid, index_t layer)
    : shape_(shape),
      routers_(&routers),
      grid_(&grid),
      layer_(layer - routers.layers().first) {
  const std::string prefix = format("layer_%03d/moe/", static_cast<int>(layer));
  router_ = params.tensor(prefix + "router");
  if (shape.has_latent()) {
    latent_down_ = params.tensor(prefix + "latent_down");
    latent_norm_ = params.tensor(prefix + "latent_norm");
    latent_up_ = params.tensor(prefix + "latent_up");
  }
  experts_ = {params.tensor(prefix + "w_gate"),
              params.tensor(prefix + "w_up"),
              params.tensor(prefix + "w_down"),
              shape.experts / grid.n_expert,
              shape.latent(),
              shape.expert_width};
  if (shape.shared_experts > 0) {
    shared_gate_ = params.tensor(prefix + "shared_gate");
    shared_up_ = params.tensor(prefix + "shared_up");
    shared_down_ = params.tensor(prefix + "shared_down");
  }
}

/// The n-th matrix of a stacked shared-expert tensor.
template <class S>
Tensor<S> MoeLayer<S>::shared(const Tensor<S>& all, index_t n) const {
  const index_t rows = all.rows / shape_.shared_experts, size = rows * all.cols;
  return {View1<S>(all.w.data() + n * size, size),
          View1<Acc<S>>(all.d.data() + n * size, size), rows, all.cols};
}

template <class S>
void MoeLayer<S>::forward_router(View2<const S> x, const DeviceBatch& batch, Pass pass,
                                 Saved& s, Context& ctx) const {
  const Region region(ctx.timers, "router");
  Arena& arena = ctx.arena;
  const index_t t = batch.size();
  s.experts = arena.take2<std::int32_t>("router", t, shape_.top_k);
  s.weights = arena.take2<Acc<S>>("router", t, shape_.top_k);
  const bool spill = pass != Pass::eval && shape_.transport.kind == Transport::spill;
  s.next = spill ? arena.take2<std::int32_t>("router", t, kSpillChoices)
                 : View2<std::int32_t>();
  View1<Acc<S>> alpha;
  if (forward_only(pass)) {
    s.logits = arena.take2<Acc<S>>("router", t, shape_.experts);
    alpha = arena.take1<Acc<S>>("router", t);
  } else {
    s.logits = routers_->logits(layer_, batch.first_token, t);
    alpha = routers_->alpha(layer_, batch.first_token, t);
  }
  linear<S>(x, router_.matrix(), s.logits);
  if (shape_.router_bf16_out) round_to_bf16(flat(s.logits));
  route<Acc<S>>(s.logits, routers_->bias(layer_), batch.segments, score(),
                Acc<S>(shape_.score_sum), s.experts, s.weights, alpha, s.next);
  if (pass == Pass::train) {
    routers_->record(layer_, batch, s.experts, s.logits, *grid_, ctx);
  } else if (pass == Pass::count) {
    routers_->count(layer_, s.experts, ctx);
  }
}

/// What travels and what is dropped. Evaluation drops nothing, whatever the transport.
template <class S>
void MoeLayer<S>::make_plan(const DeviceBatch& batch, Pass pass, Saved& s,
                            Context& ctx) const {
  Assignments a;
  a.experts = s.experts;
  a.next = s.next;
  a.n_experts = shape_.experts;
  a.width = shape_.latent();
  a.valid = batch.valid_by_rank;
  a.weights = [&] {
    const auto w = to_host<Acc<S>>(flat(s.weights));
    return std::vector<double>(w.begin(), w.end());
  };
  s.routed = s.experts;
  const bool spill = s.next.size() > 0;
  if (spill)
    s.routed =
        ctx.arena.template take2<std::int32_t>("router", batch.size(), shape_.top_k);
  a.routed = s.routed;
  TransportSpec spec = shape_.transport;
  if (pass == Pass::eval) spec.kind = Transport::dropless;
  s.plan = make_dispatch(spec, a, *grid_, ctx);
  const Region region(ctx.timers, "dispatch_plan");
  if (spill)
    spill_weights<Acc<S>>(s.logits, s.experts, s.routed, score(),
                          Acc<S>(shape_.score_sum), s.weights);
}

/// source [T, Z] -> s.returned, rows of the send list.
template <class S>
void MoeLayer<S>::forward_experts(View2<const S> source, Pass pass, Saved& s,
                                  Context& ctx) const {
  Arena& arena = ctx.arena;
  const index_t z = shape_.latent(), f = shape_.expert_width;
  DispatchPlan& plan = s.plan;
  const auto sent = arena.take2<S>("dispatch", plan.sent, z);
  {
    const Region region(ctx.timers, "permute");
    gather_rows<S>(source, plan.order, shape_.top_k, sent);
    if (plan.headers)
      pack_ids<S>(plan.order, flat(s.experts), experts_.count, plan.layout, sent);
  }
  s.returned = plan.travels ? sent : arena.take2<S>("dispatch", plan.sent, z);
  s.rows.clear(), s.gate.clear(), s.up.clear();
  for (const Wave& wave : plan.waves) {
    s.rows.push_back(plan.travels ? arena.take2<S>("dispatch", wave.room, z) : sent);
    s.gate.push_back(arena.take2<S>("experts", wave.room, f));
    s.up.push_back(arena.take2<S>("experts", wave.room, f));
  }
  const auto work = [&](index_t w, View2<S> x, View2<S> y) {
    s.gate[w] = View2<S>(s.gate[w].data(), x.extent(0), f);
    s.up[w] = View2<S>(s.up[w].data(), x.extent(0), f);
    experts_forward<S>(experts_, plan.waves[w].offsets, x, s.gate[w], s.up[w], y, ctx);
  };
  through_experts<S>(plan, sent, s.returned, s.rows, work, *grid_, ctx);
  settle<S>(plan, s.returned, ctx);
  if (pass == Pass::train) routers_->drops().add(layer_, plan.tally);
}

template <class S>
void MoeLayer<S>::forward_routed(View2<const S> x, const DeviceBatch& batch, Pass pass,
                                 Saved& s, View2<S> out, Context& ctx) const {
  Arena& arena = ctx.arena;
  const index_t t = batch.size(), z = shape_.latent();
  View2<const S> source = x;
  if (shape_.has_latent()) {
    const Region region(ctx.timers, "latent");
    s.latent_raw = arena.take2<S>("latent", t, z);
    s.latent = arena.take2<S>("latent", t, z);
    s.latent_inv = arena.take1<Acc<S>>("latent", t);
    linear<S>(x, latent_down_.matrix(), s.latent_raw);
    rms_norm<S>(s.latent_raw, latent_norm_.w, Acc<S>(shape_.norm_eps), s.latent,
                s.latent_inv);
    source = s.latent;
  }
  make_plan(batch, pass, s, ctx);
  forward_experts(source, pass, s, ctx);
  s.combined = shape_.has_latent() ? arena.take2<S>("latent", t, z) : out;
  {
    const Region region(ctx.timers, "permute");
    combine<S>(s.returned, s.plan.slot, s.weights, s.combined);
  }
  const Region region(ctx.timers, "latent");
  if (shape_.has_latent()) linear<S>(s.combined, latent_up_.matrix(), out);
}

template <class S>
void MoeLayer<S>::forward_shared(View2<const S> x, Saved& s, View2<S> out,
                                 Context& ctx) const {
  const Region region(ctx.timers, "shared_experts");
  Arena& arena = ctx.arena;
  const index_t t = x.extent(0), g = shape_.shared_width, n = shape_.shared_experts;
  s.shared_gate = arena.take2<S>("shared_experts", n * t, g);
  s.shared_up = arena.take2<S>("shared_experts", n * t, g);
  const ArenaScope scope(arena);
  const auto h = arena.take2<S>("shared_experts", t, g);
  for (index_t i = 0; i < n; ++i) {
    const View2<S> gate(s.shared_gate.data() + i * t * g, t, g);
    const View2<S> up(s.shared_up.data() + i * t * g, t, g);
    linear<S>(x, shared(shared_gate_, i).matrix(), gate);
    linear<S>(x, shared(shared_up_, i).matrix(), up);
    swiglu<S>(flat(gate), flat(up), flat(h));
    linear<S>(h, shared(shared_down_, i).matrix(), out, true);
  }
}

template <class S>
void MoeLayer<S>::forward(View2<const S> x, const DeviceBatch& batch, Pass pass, Saved& s,
                          View2<S> out, Context& ctx) const {
  forward_router(x, batch, pass, s, ctx);
  forward_routed(x, batch, pass, s, out, ctx);
  forward_shared(x, s, out, ctx);
}

/// Gradient of the send list, from that of s.returned.
template <class S>
View2<S> MoeLayer<S>::backward_experts(View2<S> d_returned, Saved& s,
                                       Context& ctx) const {
  Arena& arena = ctx.arena;
  const index_t z = shape_.latent();
  DispatchPlan& plan = s.plan;
  const auto d_sent =
      plan.travels ? d_returned : arena.take2<S>("dispatch_scratch", plan.sent, z);
  index_t most = 0;
  for (const Wave& wave : plan.waves) most = std::max(most, wave.computed);
  const auto dy = arena.take2<S>("dispatch_scratch", plan.travels ? most : 0, z);
  std::vector<View2<S>> arrived(plan.waves.size(), dy);
  // More waves than one add up: each has some of the experts, or some of their rows.
  const bool add = s.add || plan.waves.size() != 1;
  if (add && !s.add)
    for (const auto* w : {&experts_.gate, &experts_.up, &experts_.down})
      fill(w->d, Acc<S>(0));
  const auto work = [&](index_t w, View2<S> d_y, View2<S> d_x) {
    experts_backward<S>(experts_, plan.waves[w].offsets, s.rows[w], s.gate[w], s.up[w],
                        d_y, d_x, add, ctx);
  };
  through_experts<S>(plan, d_returned, d_sent, arrived, work, *grid_, ctx);
  return d_sent;
}

template <class S>
void MoeLayer<S>::backward_routed(View2<const S> x, Saved& s, View2<const S> d_out,
                                  View2<Acc<S>> d_weights, View2<S> dx,
                                  Context& ctx) const {
  Arena& arena = ctx.arena;
  const ArenaScope scope(arena);
  const index_t t = x.extent(0), z = shape_.latent();
  View2<const S> d_combined = d_out;
  if (shape_.has_latent()) {
    const Region region(ctx.timers, "latent");
    const auto d = arena.take2<S>("latent_scratch", t, z);
    linear_weight<S>(s.combined, d_out, latent_up_.d_matrix());
    linear_input<S>(d_out, latent_up_.matrix(), d);
    d_combined = d;
  }
  const auto d_returned = arena.take2<S>("dispatch_scratch", s.plan.sent, z);
  {
    const Region region(ctx.timers, "permute");
    combine_backward<S>(s.returned, s.plan.order, s.plan.slot, s.weights, d_combined,
                        d_returned, d_weights);
  }
  const auto d_sent = backward_experts(d_returned, s, ctx);
  const auto d_source = arena.take2<S>("latent_scratch", t, z);
  {
    const Region region(ctx.timers, "permute");
    gather_rows_backward<S>(d_sent, s.plan.slot, shape_.top_k, d_source);
  }
  const Region region(ctx.timers, "latent");
  if (!shape_.has_latent()) {
    add_to<S>(flat(d_source), flat(dx));
    return;
  }
  const auto d_raw = arena.take2<S>("latent_scratch", t, z);
  rms_norm_backward<S>(s.latent_raw, latent_norm_.w, s.latent_inv, d_source, false, d_raw,
                       latent_norm_.d);
  linear_weight<S>(x, d_raw, latent_down_.d_matrix());
  linear_input<S>(d_raw, latent_down_.matrix(), dx, true);
}

template <class S>
void MoeLayer<S>::backward_router(View2<const S> x, const DeviceBatch& batch,
                                  const Saved& s, View2<const Acc<S>> d_weights,
                                  View2<S> dx, Context& ctx) const {
  const Region region(ctx.timers, "router");
  const ArenaScope scope(ctx.arena);
  const auto d_logits =
      ctx.arena.take2<Acc<S>>("router_scratch", x.extent(0), shape_.experts);
  route_backward<Acc<S>>(s.logits, s.experts, s.weights, score(),
                         Acc<S>(shape_.score_sum), d_weights, d_logits, s.routed);
  routers_->add_gradient(layer_, batch, s.experts, s.logits, d_logits, ctx);
  const View2<S> d = stored<S>(d_logits, ctx);
  linear_weight<S>(x, d, router_.d_matrix());
  linear_input<S>(d, router_.matrix(), dx, true);
}

template <class S>
void MoeLayer<S>::backward_shared(View2<const S> x, const Saved& s, View2<const S> d_out,
                                  View2<S> dx, Context& ctx) const {
  const Region region(ctx.timers, "shared_experts");
  Arena& arena = ctx.arena;
  const ArenaScope scope(arena);
  const index_t t = x.extent(0), g = shape_.shared_width;
  const auto h = arena.take2<S>("shared_scratch", t, g);
  const auto dh = arena.take2<S>("shared_scratch", t, g);
  fill(dx, S(0));
  for (index_t i = 0; i < shape_.shared_experts; ++i) {
    const View2<S> gate(s.shared_gate.data() + i * t * g, t, g);
    const View2<S> up(s.shared_up.data() + i * t * g, t, g);
    const Tensor<S> w_gate = shared(shared_gate_, i), w_up = shared(shared_up_, i);
    const Tensor<S> w_down = shared(shared_down_, i);
    linear_input<S>(d_out, w_down.matrix(), dh);
    swiglu_backward<S>(flat(gate), flat(up), flat(dh), flat(gate), flat(up), flat(h));
    linear_weight<S>(h, d_out, w_down.d_matrix());
    linear_weight<S>(x, gate, w_gate.d_matrix());
    linear_weight<S>(x, up, w_up.d_matrix());
    linear_input<S>(gate, w_gate.matrix(), dx, i > 0);
    linear_input<S>(up, w_up.matrix(), dx, true);
  }
}

template <class S>
void MoeLayer<S>::backward(View2<const S> x, const DeviceBatch& batch, Saved& s,
                           View2<const S> d_out, View2<S> dx, Context& ctx) const {
  const ArenaScope scope(ctx.arena);
  s.add = batch.first_token > 0;
  const auto d_weights =
      ctx.arena.take2<Acc<S>>("router_scratch", batch.size(), shape_.top_k);
  backward_shared(x, s, d_out, dx, ctx);
  backward_routed(x, s, d_out, d_weights, dx, ctx);
  backward_router(x, batch, s, d_weights, dx, ctx);
}

#define CAPSTAN_MOE_LAYER(S) template class MoeLayer<S>;
CAPSTAN_INSTANTIATE(CAPSTAN_MOE_LAYER)

}  // namespace capstan
