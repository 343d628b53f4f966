#include "base/math.hpp"
#include "base/parallel.hpp"
#include "kernels/limits.hpp"
#include "kernels/routing.hpp"

namespace capstan {

namespace {
/// Tokens summed by one row of router_statistics: the blocks of sort_by_expert.
constexpr index_t kTokens = 256;

/// p [E] = exp(logit - highest); sum = their sum, and the logsumexp.
template <class A>
struct Softmax {
  A sum;
  double logsumexp;

  KOKKOS_INLINE_FUNCTION Softmax(const Team& team, const A* logit, index_t e, A* p) {
    const A top = team.max(e, kLowest<A>, [=](index_t i) { return logit[i]; });
    team.each(e, [=](index_t i) { p[i] = fexp(logit[i] - top); });
    team.barrier();
    sum = team.sum(e, [=](index_t i) { return p[i]; });
    logsumexp = double(top) + ::log(double(sum));
  }
};
}  // namespace

template <class S>
void router_statistics(View2<const Acc<S>> logits, View1<const std::int32_t> segments,
                       View2<double> block_sums, View2<double> probability_sum,
                       View1<double> z_sum) {
  using A = Acc<S>;
  const index_t e = index_t(logits.extent(1)),
                groups = index_t(probability_sum.extent(0));
  if (groups == 0) return;
  const index_t size = index_t(logits.extent(0)) / groups, per_group = sort_blocks(size);
  par_rows(
      "router_statistics", groups * per_group, static_cast<int>(e * index_t(sizeof(A))),
      KOKKOS_LAMBDA(const Team& team, index_t b) {
        A* p = reinterpret_cast<A*>(team.scratch());
        double* sums = &block_sums(b, 0);
        team.each(e + 1, [&](index_t i) { sums[i] = 0; });
        const index_t start = b / per_group * size, at = b % per_group * kTokens;
        const index_t last = start + (at + kTokens < size ? at + kTokens : size);
        for (index_t t = start + at; t < last; ++t) {
          if (segments(t) < 0) continue;
          const Softmax<A> softmax(team, &logits(t, 0), e, p);
          const double inverse = 1.0 / double(softmax.sum);
          team.each(e, [&](index_t i) { sums[i] += inverse * double(p[i]); });
          team.once([&] { sums[e] += softmax.logsumexp * softmax.logsumexp; });
          team.barrier();
        }
      });
  par_for(
      "router_statistics_sum", groups * (e + 1), KOKKOS_LAMBDA(index_t i) {
        const index_t g = i / (e + 1), column = i % (e + 1);
        double sum = 0;
        for (index_t b = g * per_group; b < (g + 1) * per_group; ++b)
          sum += block_sums(b, column);
        if (column < e)
          probability_sum(g, column) = sum;
        else
          z_sum(g) = sum;
      });
}

void assignment_shares(View2<const std::int64_t> counts, View2<double> shares) {
  const index_t e = index_t(counts.extent(1));
  par_rows(
      "assignment_shares", index_t(counts.extent(0)), 0,
      KOKKOS_LAMBDA(const Team& team, index_t g) {
        const std::int64_t* count = &counts(g, 0);
        double* share = &shares(g, 0);
        const std::int64_t total = team.sum(e, [&](index_t i) { return count[i]; });
        const double inverse = total > 0 ? 1.0 / double(total) : 0.0;
        team.each(e, [&](index_t i) { share[i] = inverse * double(count[i]); });
      });
}

template <class S>
void router_losses_backward(View2<const Acc<S>> logits,
                            View1<const std::int32_t> segments,
                            View2<const double> shares, double balance, double z,
                            View2<Acc<S>> d_logits) {
  using A = Acc<S>;
  const index_t tokens = index_t(logits.extent(0)), e = index_t(logits.extent(1));
  const index_t groups = index_t(shares.extent(0));
  if (groups == 0) return;
  const index_t size = tokens / groups;
  const A a = A(balance);
  par_rows(
      "router_losses_backward", tokens, static_cast<int>(e * index_t(sizeof(A))),
      KOKKOS_LAMBDA(const Team& team, index_t t) {
        if (segments(t) < 0) return;
        A* p = reinterpret_cast<A*>(team.scratch());
        const double* share = &shares(t / size, 0);
        const Softmax<A> softmax(team, &logits(t, 0), e, p);
        const A inverse = A(1) / softmax.sum;
        // d p_j / d logit_i = p_j (delta_ij - p_i): the mean of f under p is subtracted.
        const A mean =
            inverse * team.sum(e, [&](index_t i) { return p[i] * A(share[i]); });
        const A constant = A(2 * z * softmax.logsumexp) - a * mean;
        A* d = &d_logits(t, 0);
        team.each(
            e, [&](index_t i) { d[i] += inverse * p[i] * (a * A(share[i]) + constant); });
      });
}

template <class S>
void sign_bias(View1<const std::int64_t> load, double rate, View1<Acc<S>> bias) {
  using A = Acc<S>;
  const index_t e = index_t(bias.extent(0));
  par_rows(
      "sign_bias", 1, 0, KOKKOS_LAMBDA(const Team& team, index_t) {
        const std::int64_t total = team.sum(e, [&](index_t i) { return load(i); });
        team.each(e, [&](index_t i) {
          const std::int64_t excess = e * load(i) - total;
          if (excess != 0) bias(i) += A(excess < 0 ? rate : -rate);
        });
      });
}

#define CAPSTAN_ROUTER_LOSSES(S)                                                     \
  template void router_statistics<S>(View2<const Acc<S>>, View1<const std::int32_t>, \
                                     View2<double>, View2<double>, View1<double>);   \
  template void router_losses_backward<S>(                                           \
      View2<const Acc<S>>, View1<const std::int32_t>, View2<const double>, double,   \
      double, View2<Acc<S>>);                                                        \
  template void sign_bias<S>(View1<const std::int64_t>, double, View1<Acc<S>>);
CAPSTAN_INSTANTIATE_ACC(CAPSTAN_ROUTER_LOSSES)

}  // namespace capstan
