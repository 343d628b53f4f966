#include "model/flops.hpp"

#include <algorithm>

#include "model/param_list.hpp"

namespace capstan {

PublishedFlops published_flops(const ModelShape& s) {
  const auto real = [](index_t n) { return static_cast<double>(n); };
  const index_t n_global = s.global_every > 0 ? s.layers / s.global_every : 0;
  const index_t n_local = s.layers - n_global;
  const index_t window = s.window > 0 ? std::min(s.window, s.seq_len) : s.seq_len;
  const double active = real(param_totals(param_list(s)).active);

  // Global layers project fewer key and value heads than are stored.
  const double unused = 4 * real(s.hidden) * real(s.head_dim) *
                        real(s.kv_heads - s.kv_heads_global) * real(n_global);
  const double attention =
      4 * real(s.q_width()) *
      (real(s.seq_len) * real(n_global) + real(window) * real(n_local));
  const double neurons =
      real(s.top_k * s.expert_width + s.shared_experts * s.shared_width);

  PublishedFlops f;
  f.forward_without_head =
      2 * active - unused + attention + 12 * real(s.layers) * neurons;
  f.head = 2 * real(s.hidden) * real(s.vocab);
  return f;
}

}  // namespace capstan
