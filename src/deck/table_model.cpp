/// \file Blocks of the model: model, scale.
#include "deck/tables.hpp"

namespace capstan {
namespace {

std::vector<Key> shape_keys() {
  return {
      integer("hidden").required().at_least(1).at_most(1 << 20).fixed().doc(
          "Width D of the residual stream."),
      integer("layers").required().at_least(1).at_most(999).fixed().doc(
          "Number of blocks; each has attention and a mixture of experts."),
      integer("heads").required().at_least(1).at_most(65536).fixed().doc(
          "Query heads H. heads x head_dim need not equal hidden."),
      integer("kv_heads")
          .at_least(0)
          .fixed()
          .doc("Stored key/value heads; must divide heads. 0 = heads."),
      integer("kv_heads_global")
          .at_least(0)
          .fixed()
          .doc("Key/value heads that global layers use, the first ones of the stored; "
               "must "
               "divide heads. 0 = kv_heads."),
      integer("head_dim")
          .required()
          .at_least(1)
          .at_most(1024)
          .fixed()
          .doc("Width h of a head."),
      integer("vocab").required().at_least(2).at_most(1 << 24).fixed().doc(
          "Rows of the embedding and columns of the head. At least the tokenizer's "
          "number "
          "of ids; larger values pad."),
      integer("seq_len").required().at_least(2).at_most(1 << 24).warn().in("tokens").doc(
          "Context S: tokens of one training sequence."),
  };
}

std::vector<Key> attention_keys() {
  return {
      integer("window").at_least(0).warn().in("tokens").doc(
          "Keys that a query of a local layer sees, itself included. 0 = the whole "
          "context."),
      integer("global_every")
          .at_least(0)
          .fixed()
          .doc("Layer l (from 0) is global when (l + 1) is a multiple of this, and the "
               "last "
               "layer always: whole context, no rotary embedding, kv_heads_global. 0 = "
               "no global "
               "layer."),
      real("rope_theta")
          .otherwise("10000")
          .above(0)
          .warn()
          .doc("Base of the rotary embedding on local layers."),
      real("rope_fraction")
          .otherwise("1")
          .at_least(0)
          .at_most(1)
          .warn()
          .doc("Leading part of each head that rotates (adjacent pairs); times head_dim "
               "it must "
               "be an even whole number."),
      flag("qk_norm").otherwise("true").fixed().doc(
          "RMS-normalise each query and key head (no gain) before the rotary embedding."),
      real("qk_eps").otherwise("1e-06").above(0).warn().doc("Epsilon of qk_norm."),
      real("qk_multiplier")
          .otherwise("1")
          .above(0)
          .warn()
          .doc("Factor on the queries after norm and rotation; the softmax scale stays "
               "1/sqrt(head_dim)."),
      flag("xsa").fixed().doc("Remove from each head's output its projection on the "
                              "token's own value vector."),
      flag("head_gate")
          .fixed()
          .doc("Multiply each head's output by 2 sigmoid(x W), W zero at the start."),
  };
}

std::vector<Key> block_keys() {
  return {
      integer("gate_rank")
          .at_least(0)
          .fixed()
          .doc("GatedNorm: each RMSNorm output is multiplied by sigmoid(SiLU(x W_down) "
               "W_up) of "
               "this rank. 0 = plain RMSNorm."),
      texts("sconv")
          .otherwise("none")
          .one_of({"none", "k", "attn", "moe"})
          .fixed()
          .doc("Sites of the depthwise causal convolution (4 taps, identity at the "
               "start, never "
               "across documents): on the keys, on the attention branch, on the MoE "
               "branch."),
      real("norm_eps")
          .otherwise("1e-05")
          .above(0)
          .warn()
          .doc("Epsilon of every RMSNorm."),
      real("init_std")
          .at_least(0)
          .doc("Standard deviation of the normal, truncated at 3 sigma, from which every "
               "matrix "
               "starts. 0 = 0.5/sqrt(hidden)."),
      real("z_loss").at_least(0).warn().doc(
          "Weight of the mean of (log-sum-exp of the logits)^2 in the loss."),
      text("scalar")
          .otherwise("float")
          .one_of({"double", "float", "bf16"})
          .fixed()
          .doc("Type of weights and activations. Sums, statistics, masters, moments and "
               "gradients of weights are double for double, float otherwise: bf16 "
               "weights are copies, rounded from the masters after every update."),
      text("recompute")
          .otherwise("none")
          .one_of({"none", "moe", "full"})
          .doc("What backward computes again instead of storing: nothing, the expert "
               "part, or "
               "the whole block. The result is the same; memory shrinks, time grows."),
  };
}

}  // namespace

Block model_table() {
  Block b{"model", "Shape and arithmetic of the transformer.", false, {}};
  for (auto part : {shape_keys(), attention_keys(), block_keys()})
    b.keys.insert(b.keys.end(), part.begin(), part.end());
  return b;
}

Block scale_table() {
  Block b{"scale",
          "One knob: derive shape, batch, length and learning rates from a width.",
          false,
          {}};
  b.keys = {
      integer("hidden").at_least(0).fixed().doc(
          "Derive heads, widths, layers, batch, length, learning rates, betas and eps "
          "from this width by the published rule, and the published optimizer groups "
          "unless the deck has its own. 0 = off. What the deck gives stands; the echo "
          "(-n, "
          "deck.used) names the rule of every derived key. Widths outside the published "
          "table (768, 1024, 1536, 2048, 6144) need model/layers and batch/sequences."),
      real("tokens_per_active")
          .otherwise("791")
          .above(0)
          .warn()
          .in("tokens")
          .doc("Length of the run for each active parameter."),
      real("lr_multiplier")
          .otherwise("1")
          .above(0)
          .warn()
          .doc("Factor on the learning rates of the rule."),
      real("lr_cap").otherwise("0.05").above(0).warn().doc(
          "Highest learning rate of muonh and adamh groups."),
  };
  return b;
}

}  // namespace capstan
