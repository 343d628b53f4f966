#pragma once
/// \file The step on a hyperball: matrices move along a direction and return to the norm
/// they started with (MuonH and AdamH of marin-community/marin#8435), and the plain step
/// of Muon.
#include "base/types.hpp"

namespace capstan {

/// Least norm that is divided by.
inline constexpr double kLeastNorm = 1e-10;

/// Elements of the `partial` sums of a batch.
index_t hyperball_partials(index_t count, index_t size);

/// sums [count, 3] = u.u, p.u and p.p of each of `count` matrices of `size` elements, in
/// double, in an order that depends on the extents alone. T: type of masters.
template <class T>
void hyperball_sums(index_t count, index_t size, View1<const T> p, View1<const T> u,
                    View1<double> partial, View1<double> sums);

/// What a step does to one norm: with c = lr R / max(|u|, 1e-10) and p' = p - c u, the
/// matrix becomes keep * p - move * u, which has the norm R.
struct HyperballFactors {
  double keep = 1, move = 0;
};
/// From the sums u.u, p.u, p.p. A zero direction gives exactly keep 1 and move 0.
HyperballFactors hyperball_factors(double lr, double radius, const double* sums);
/// Sum of squares of (keep p - move u) - p.
double change_squares(double keep, double move, const double* sums);

/// p = keep(m) p - move(m) u for every matrix m; factors [count, 2]. Computed in double,
/// so that the norm is off by the rounding of the elements alone. `weights` (storage
/// type, may have extent 0) gets the rounded copy.
template <class S>
void keep_and_move(index_t count, index_t size, View1<const double> factors,
                   View1<const Acc<S>> u, View1<Acc<S>> p, View1<S> weights);

}  // namespace capstan
