#include "model/norm_gate.hpp"

#include "kernels/linear.hpp"
#include "kernels/norm.hpp"

namespace capstan {

template <class S>
NormGate<S>::NormGate(const ModelShape& shape, const ParamStore<S>& params,
                      const std::string& prefix)
    : gain_(params.tensor(prefix + "/norm")),
      eps_(Acc<S>(shape.norm_eps)),
      rank_(shape.gate_rank) {
  if (rank_ > 0) {
    down_ = params.tensor(prefix + "/gate_down");
    up_ = params.tensor(prefix + "/gate_up");
  }
}

template <class S>
void NormGate<S>::forward(View2<const S> x, Saved& saved, View2<S> out,
                          Context& ctx) const {
  const Region region(ctx.timers, "norm");
  const index_t t = x.extent(0), d = x.extent(1);
  Arena& arena = ctx.arena;
  saved.inv = arena.take1<Acc<S>>("norm", t);
  if (rank_ == 0) {
    rms_norm<S>(x, gain_.w, eps_, out, saved.inv);
    return;
  }
  saved.y = arena.take2<S>("norm", t, d);
  saved.a = arena.take2<S>("norm", t, rank_);
  saved.z = arena.take2<S>("norm", t, d);
  rms_norm<S>(x, gain_.w, eps_, saved.y, saved.inv);
  linear<S>(saved.y, down_.matrix(), saved.a);
  const ArenaScope scope(arena);
  const auto h = arena.take2<S>("norm_scratch", t, rank_);
  silu_forward<S>(saved.a, h);
  linear<S>(h, up_.matrix(), saved.z);
  gate_forward<S>(saved.y, saved.z, out);
}

template <class S>
void NormGate<S>::backward(View2<const S> x, const Saved& saved, View2<S> d_out,
                           View2<S> dx, Context& ctx) const {
  const Region region(ctx.timers, "norm");
  const index_t t = x.extent(0), d = x.extent(1);
  Arena& arena = ctx.arena;
  if (rank_ > 0) {
    const ArenaScope scope(arena);
    const auto dz = arena.take2<S>("norm_scratch", t, d);
    const auto h = arena.take2<S>("norm_scratch", t, rank_);
    const auto dh = arena.take2<S>("norm_scratch", t, rank_);
    gate_backward<S>(saved.y, saved.z, d_out, d_out, dz);
    silu_forward<S>(saved.a, h);
    linear_weight<S>(h, dz, up_.d_matrix());
    linear_input<S>(dz, up_.matrix(), dh);
    silu_backward<S>(saved.a, dh, dh);
    linear_weight<S>(saved.y, dh, down_.d_matrix());
    linear_input<S>(dh, down_.matrix(), d_out, true);
  }
  rms_norm_backward<S>(x, gain_.w, saved.inv, d_out, true, dx, gain_.d);
}

#define CAPSTAN_NORM_GATE(S) template class NormGate<S>;
CAPSTAN_INSTANTIATE(CAPSTAN_NORM_GATE)

}  // namespace capstan
