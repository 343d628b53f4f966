#pragma once
/// \file par_elements: elementwise kernels on flat ranges, vectorised on hosts also when
/// an output is an input's memory (what a plain par_for can not prove).
#include "base/parallel.hpp"

namespace capstan {

/// f(i) for i in [0, n), independent of each other. Element i of an output may be element
/// i of an input.
template <class F>
void par_elements(const char* label, index_t n, const F& f) {
  constexpr index_t chunk = 2048;
  par_rows(
      label, (n + chunk - 1) / chunk, 0, KOKKOS_LAMBDA(const Team& team, index_t block) {
        const index_t first = block * chunk;
        const index_t count = n - first < chunk ? n - first : chunk;
        team.each(count, [&](index_t i) { f(first + i); });
      });
}

}  // namespace capstan
