#pragma once
/// \file Every number of the model, taken from a deck and checked. No Kokkos here: the
/// planner and the help read it too.
#include <vector>

#include "deck/deck.hpp"
#include "model/moe/accept.hpp"

namespace capstan {

enum class Recompute { none, moe, full };
/// How the load of the experts is balanced: quantile bias, loss term, sign-updated bias,
/// not.
enum class Balance { none, qb, aux, sign };
/// The tokens whose assignment shares a balance loss multiplies with their probabilities:
/// a micro-batch on all ranks, one sequence, the whole step.
enum class AuxScope { micro_batch, sequence, global };

/// Layers [first, last).
struct LayerRange {
  index_t first = 0, last = 0;
  index_t count() const { return last - first; }
};

struct ModelShape {
  // <model>
  index_t hidden = 0, layers = 0;
  index_t heads = 0, kv_heads = 0, kv_heads_global = 0, head_dim = 0;
  index_t vocab = 0, seq_len = 0;
  index_t window = 0;        ///< keys i-window+1 .. i are seen by local layers; 0 = all
  index_t global_every = 0;  ///< 0 = no global layer
  double rope_theta = 0;
  index_t rope_dims = 0;  ///< leading dims of a head that rotate (local layers); even
  bool qk_norm = false;
  double qk_eps = 0, qk_multiplier = 1;
  bool xsa = false, head_gate = false;
  index_t gate_rank = 0;  ///< 0 = no GatedNorm
  bool sconv_k = false, sconv_attn = false, sconv_moe = false;
  static constexpr index_t sconv_taps = 4;
  double norm_eps = 0, init_std = 0, z_loss = 0;
  Recompute recompute = Recompute::none;
  // <moe>
  index_t experts = 0, top_k = 0, shared_experts = 0;
  index_t expert_width = 0, shared_width = 0;
  index_t latent_width =
      0;                 ///< 0 = no latent projection: experts work on the full stream
  bool softmax = false;  ///< router scores: softmax, else sigmoid
  double score_sum = 0;  ///< the combine weights of a token sum to this
  bool router_bf16_out = false;
  Balance balance = Balance::none;
  index_t qb_bins = 0;
  double aux_loss = 0, router_z_loss = 0;
  AuxScope aux_scope = AuxScope::global;
  TransportSpec transport;
  double sign_rate = 0;  ///< step of the bias per optimizer step, Balance::sign
  // <grid>
  std::vector<index_t> layers_per_stage;  ///< empty: balanced by cost (model/stage.hpp)

  /// A loaded deck is sound (deck/rules.cpp); values of 0 that stand for another key are
  /// filled.
  static ModelShape from_deck(const Deck& deck);

  /// Global layers see the whole context, have no rotary embedding, use kv_heads_global.
  bool is_global(index_t layer) const {
    return global_every > 0 && ((layer + 1) % global_every == 0 || layer == layers - 1);
  }
  /// Stored KV heads are kv_heads; a layer uses the first kv_heads_of(layer) of them.
  index_t kv_heads_of(index_t layer) const {
    return is_global(layer) ? kv_heads_global : kv_heads;
  }
  /// Attention window of a layer; 0 = all earlier keys.
  index_t window_of(index_t layer) const { return is_global(layer) ? 0 : window; }
  index_t rope_dims_of(index_t layer) const { return is_global(layer) ? 0 : rope_dims; }
  index_t q_width() const { return heads * head_dim; }
  index_t kv_width() const { return kv_heads * head_dim; }
  /// Width that the routed experts read and write.
  index_t latent() const { return latent_width > 0 ? latent_width : hidden; }
  bool has_latent() const { return latent_width > 0; }
  bool has_gates() const { return gate_rank > 0; }
};

}  // namespace capstan
