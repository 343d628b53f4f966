/// \file The block moe: experts, router, balance, transport.
#include "deck/tables.hpp"

namespace capstan {
namespace {

std::vector<Key> expert_keys() {
  return {
      integer("experts").required().at_least(1).at_most(65536).fixed().doc(
          "Routed experts E of each layer."),
      integer("top_k").required().at_least(1).at_most(256).fixed().doc(
          "Experts K that each token is sent to."),
      integer("shared_experts")
          .at_least(0)
          .at_most(256)
          .fixed()
          .doc("Experts N that every token uses, at full width; no routing."),
      integer("expert_width")
          .required()
          .at_least(1)
          .at_most(1 << 20)
          .fixed()
          .doc("Inner width F of a routed SwiGLU expert."),
      integer("shared_width")
          .at_least(0)
          .at_most(1 << 20)
          .fixed()
          .doc("Inner width G of a shared expert. 0 = expert_width."),
      integer("latent_width")
          .at_least(0)
          .at_most(1 << 20)
          .fixed()
          .doc("Width Z in which routed experts read and write: tokens are projected "
               "down to it "
               "and RMS-normed before the exchange, and up after the combine; the router "
               "sees "
               "the full width. 0 = no projection, Z = hidden."),
  };
}

std::vector<Key> router_keys() {
  return {
      text("score")
          .otherwise("sigmoid")
          .one_of({"sigmoid", "softmax"})
          .fixed()
          .doc("Score of a selected expert from its logit, before normalisation."),
      real("score_sum")
          .otherwise("1")
          .above(0)
          .fixed()
          .doc("The combine weights of a token sum to this."),
      text("router_precision")
          .otherwise("float")
          .one_of({"float", "bf16_out"})
          .warn()
          .doc("Router logits: kept as accumulated, or rounded to bf16 and widened again "
               "(as the "
               "published 535B run does)."),
      text("balance")
          .otherwise("qb")
          .one_of({"qb", "aux", "sign", "none"})
          .warn()
          .doc("How load is balanced. qb: a bias on the selection, set each step to the "
               "quantile of the experts' margins. aux: a loss term. sign: a bias moved "
               "by sign_rate against the load. none: not. Counts are those before any "
               "drop, of valid tokens of the whole step on all ranks."),
      integer("qb_bins").otherwise("10000").at_least(2).at_most(1e7).warn().doc(
          "Bins of the margin histogram of balance = qb."),
      real("sign_rate")
          .otherwise("0.001")
          .above(0)
          .warn()
          .doc("What the bias of an expert gains per optimizer step when its load is "
               "below the mean, and loses when above, balance = sign."),
      real("aux_loss")
          .at_least(0)
          .warn()
          .doc("Weight of the load-balancing loss E sum_e f_e P_e, balance = aux: f_e = "
               "share of the assignments, P_e = mean softmax probability over valid "
               "tokens; 1 when balanced; mean over layers."),
      text("aux_scope")
          .otherwise("global")
          .one_of({"micro_batch", "sequence", "global"})
          .warn()
          .doc("Tokens over which the shares f_e of aux_loss are taken. global: the "
               "whole step on all ranks, whatever the split; with micro_batches > 1 "
               "each micro-batch runs forward once more, to count first. micro_batch: a "
               "micro-batch on all ranks. sequence: each sequence alone."),
      real("router_z_loss")
          .at_least(0)
          .warn()
          .doc("Weight of the mean of (log-sum-exp of the router logits)^2 over valid "
               "tokens and layers in the loss."),
  };
}

std::vector<Key> transport_keys() {
  return {
      text("transport")
          .otherwise("dropless")
          .one_of({"reference", "cells", "spill", "pooled_wave", "ragged", "waterfill",
                   "dropless"})
          .warn()
          .doc(
              "How tokens reach the experts, and which are dropped where room is short. "
              "T = tokens of a rank in a micro-batch that are no padding, R = "
              "grid/expert, E_local = E / R, W = waves; a capacity is the ceiling of the "
              "exact product, at least 1, and what the rounding made of the factor is "
              "reported. dropless: exact counts, nothing lost. reference: the same with "
              "every expert on every rank (grid/expert = 1). cells: capacity_send T K / "
              "E rows per sender and expert. spill: cells; what they drop is tried on "
              "the token's choices K+1 to K+3, in one round each. pooled_wave: "
              "capacity_send T K / (R W) rows per sender, destination rank and wave; "
              "there, capacity_receive T K / (E_local W) rows per expert and wave, "
              "granted by turns over the senders. ragged: capacity_receive T K / W rows "
              "per part of a receiver's experts, the experts in order. waterfill: "
              "capacity_receive R T K / E rows per expert, lent among the experts of a "
              "rank. Evaluation is dropless always."),
      real("capacity_send")
          .otherwise("1.15")
          .above(0)
          .at_most(1e6)
          .warn()
          .doc("Sender capacity as a multiple of the mean load (cells, spill, "
               "pooled_wave)."),
      real("capacity_receive")
          .otherwise("1.15")
          .above(0)
          .at_most(1e6)
          .warn()
          .doc("Receiver capacity as a multiple of the mean load (pooled_wave, ragged, "
               "waterfill)."),
      integer("waves").otherwise("1").at_least(1).at_most(1024).warn().doc(
          "Parts in which the exchange travels, wave w+1 during the computation of wave "
          "w. Must divide the experts of a rank."),
      text("drop_policy")
          .otherwise("position")
          .one_of({"position", "weight", "rotate"})
          .warn()
          .doc("Which assignments a sender keeps where it must choose: the first in "
               "token order (position, rotate), or those of largest combine weight "
               "(weight). Which senders a receiver of ragged or waterfill serves: the "
               "first ranks first, or with rotate all evenly. cells and spill have no "
               "room that senders compete for, and pooled_wave takes turns always."),
  };
}

}  // namespace

Block moe_table() {
  Block b{"moe",
          "The mixture of experts of each layer: experts, router, balance, transport.",
          false,
          {}};
  for (auto part : {expert_keys(), router_keys(), transport_keys()})
    b.keys.insert(b.keys.end(), part.begin(), part.end());
  return b;
}

}  // namespace capstan
