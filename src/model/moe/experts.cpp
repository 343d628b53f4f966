#include "model/moe/experts.hpp"

#include "blas/gemm.hpp"
#include "kernels/swiglu.hpp"

namespace capstan {

using blas::grouped_gemm;
using blas::grouped_gemm_weights;
using blas::Op;

template <class S>
void experts_forward(const ExpertWeights<S>& w, const std::vector<index_t>& offsets,
                     View2<const S> x, View2<S> gate, View2<S> up, View2<S> y,
                     Context& ctx) {
  const ArenaScope scope(ctx.arena);
  const auto h = ctx.arena.take2<S>("experts", x.extent(0), w.width);
  const index_t* rows = offsets.data();
  {
    const Region region(ctx.timers, "experts_gemm");
    grouped_gemm<S>(Op::N, w.count, rows, w.in, w.width, 1, x.data(), w.gate.w.data(), 0,
                    gate.data());
    grouped_gemm<S>(Op::N, w.count, rows, w.in, w.width, 1, x.data(), w.up.w.data(), 0,
                    up.data());
  }
  {
    const Region region(ctx.timers, "swiglu");
    swiglu<S>(flat(gate), flat(up), flat(h));
  }
  const Region region(ctx.timers, "experts_gemm");
  grouped_gemm<S>(Op::N, w.count, rows, w.width, w.in, 1, h.data(), w.down.w.data(), 0,
                  y.data());
}

template <class S>
void experts_backward(const ExpertWeights<S>& w, const std::vector<index_t>& offsets,
                      View2<const S> x, View2<S> gate, View2<S> up, View2<const S> dy,
                      View2<S> dx, bool add, Context& ctx) {
  const ArenaScope scope(ctx.arena);
  const auto h = ctx.arena.take2<S>("experts", x.extent(0), w.width);
  const auto dh = ctx.arena.take2<S>("experts", x.extent(0), w.width);
  const index_t* rows = offsets.data();
  {
    const Region region(ctx.timers, "experts_gemm");
    grouped_gemm<S>(Op::T, w.count, rows, w.in, w.width, 1, dy.data(), w.down.w.data(), 0,
                    dh.data());
  }
  {
    const Region region(ctx.timers, "swiglu");
    swiglu_backward<S>(flat(gate), flat(up), flat(dh), flat(gate), flat(up), flat(h));
  }
  const Region region(ctx.timers, "experts_gemm");
  const Acc<S> beta = add ? 1 : 0;
  grouped_gemm_weights<S, Acc<S>>(w.count, rows, w.width, w.in, 1, h.data(), dy.data(),
                                  beta, w.down.d.data());
  grouped_gemm_weights<S, Acc<S>>(w.count, rows, w.in, w.width, 1, x.data(), gate.data(),
                                  beta, w.gate.d.data());
  grouped_gemm_weights<S, Acc<S>>(w.count, rows, w.in, w.width, 1, x.data(), up.data(),
                                  beta, w.up.d.data());
  grouped_gemm<S>(Op::T, w.count, rows, w.width, w.in, 1, gate.data(), w.gate.w.data(), 0,
                  dx.data());
  grouped_gemm<S>(Op::T, w.count, rows, w.width, w.in, 1, up.data(), w.up.w.data(), 1,
                  dx.data());
}

#define CAPSTAN_EXPERTS(S)                                                               \
  template void experts_forward<S>(const ExpertWeights<S>&, const std::vector<index_t>&, \
                                   View2<const S>, View2<S>, View2<S>, View2<S>,         \
                                   Context&);                                            \
  template void experts_backward<S>(                                                     \
      const ExpertWeights<S>&, const std::vector<index_t>&, View2<const S>, View2<S>,    \
      View2<S>, View2<const S>, View2<S>, bool, Context&);
CAPSTAN_INSTANTIATE(CAPSTAN_EXPERTS)

}  // namespace capstan
