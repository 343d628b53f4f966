/// \file Blocks of training: optimizer, group, schedule, eval.
#include "deck/tables.hpp"

namespace capstan {
namespace {

const std::vector<std::string> kKinds = {"adamw", "adam", "adamh", "muonh", "muon"};

/// Norms, orthogonalisation, and what is done with steps that are not finite.
std::vector<Key> matrix_keys() {
  return {
      text("norm_scope")
          .otherwise("matrix")
          .one_of({"matrix", "layer"})
          .fixed()
          .doc(
              "Kept norm of adamh and muonh on routed experts: of each matrix, or one of "
              "the whole stack of a layer, over all ranks (as the published 535B run)."),
      text("ns_precision")
          .otherwise("float")
          .one_of({"float", "bf16"})
          .warn()
          .doc("Arithmetic of Newton-Schulz: that of the masters, or bf16 products."),
      text("non_finite")
          .otherwise("stop")
          .one_of({"stop", "skip"})
          .warn()
          .doc(
              "At a loss or gradient that is not finite, or whose square is not: stop "
              "with exit code 3, or leave parameters and optimizer as they are, name the "
              "tensors and go on with the next batch."),
      integer("max_skips")
          .otherwise("10")
          .at_least(1)
          .warn()
          .in("steps")
          .doc(
              "With non_finite = skip: stop with exit code 3 after so many skipped steps "
              "in a row."),
  };
}

}  // namespace

Block optimizer_table() {
  Block b{
      "optimizer", "The optimizer of every tensor that no <groupN> claims.", false, {}};
  b.keys = {
      text("kind").otherwise("adamw").one_of(kKinds).fixed().doc(
          "adamw: Adam with decoupled weight decay. adam: without. adamh: Adam "
          "direction, then each matrix returns to the norm it started with. muonh: "
          "momentum orthogonalised by Newton-Schulz, norm kept. muon: the same with the "
          "norm free, rate x sqrt(max(1, out/in)), decoupled weight decay. The last "
          "three "
          "take matrices only."),
      real("lr").otherwise("0.001").at_least(0).warn().doc(
          "Peak learning rate; <schedule> multiplies it."),
      reals("betas")
          .otherwise("0.9, 0.95")
          .length(2)
          .at_least(0)
          .below(1)
          .warn()
          .doc("Decay of the first and second moment. muonh and muon take the first as "
               "their Nesterov momentum (published: 0.95)."),
      real("eps").otherwise("1e-08").above(0).warn().doc(
          "Added to the root of the second moment."),
      real("weight_decay")
          .at_least(0)
          .warn()
          .doc("Decoupled: each step subtracts lr x weight_decay x parameter. Applies to "
               "matrices (embeddings and routers too); norm gains, head gates and "
               "convolutions have none unless a group says so."),
      real("clip_norm")
          .at_least(0)
          .warn()
          .doc("Scale gradients down to this global norm. 0 = no clipping."),
  };
  const auto more = matrix_keys();
  b.keys.insert(b.keys.end(), more.begin(), more.end());
  return b;
}

Block group_table() {
  Block b{
      "group",
      "Tensors with their own optimizer settings. A tensor takes the first group that "
      "matches its name; what a group does not give is as in <optimizer>.",
      true,
      {}};
  b.keys = {
      texts("match").required().warn().doc(
          "Tensor names or patterns, * for any characters: embed/table, */router, "
          "layer_*/moe/w_*."),
      text("kind").as("optimizer/kind").one_of(kKinds).fixed().doc("As optimizer/kind."),
      real("lr").as("optimizer/lr").at_least(0).warn().doc("As optimizer/lr."),
      reals("betas")
          .as("optimizer/betas")
          .length(2)
          .at_least(0)
          .below(1)
          .warn()
          .doc("As optimizer/betas."),
      real("eps").as("optimizer/eps").above(0).warn().doc("As optimizer/eps."),
      real("weight_decay")
          .as("optimizer/weight_decay")
          .at_least(0)
          .warn()
          .doc("As optimizer/weight_decay, but on every tensor of the group."),
  };
  return b;
}

Block schedule_table() {
  Block b{"schedule",
          "Learning rate over the run, a function of tokens: step n uses n x tokens per "
          "step.",
          false,
          {}};
  b.keys = {
      integer("tokens").at_least(0).warn().in("tokens").doc(
          "Length of the schedule, and of the run where job/steps = 0. 0 = constant at "
          "the peak (job/steps then says how long)."),
      real("warmup_fraction")
          .otherwise("0.01")
          .at_least(0)
          .at_most(1)
          .warn()
          .doc("Part of the run in which the rate rises linearly from 0 to its peak."),
      text("shape")
          .otherwise("linear")
          .one_of({"linear", "cosine", "wsd", "constant"})
          .warn()
          .doc("After the warm-up: linear or cosine decay to the end; wsd: stay at the "
               "peak, then linear decay over decay_fraction; constant: stay."),
      real("decay_fraction")
          .otherwise("0.2")
          .above(0)
          .at_most(1)
          .warn()
          .doc("Part of the run in which wsd decays."),
      real("final_fraction")
          .otherwise("0.05")
          .at_least(0)
          .at_most(1)
          .warn()
          .doc("Rate at the end of the run, as a part of the peak."),
      integer("reaim_from_tokens")
          .at_least(0)
          .warn()
          .in("tokens")
          .doc(
              "Re-aim the decay of a run whose length changed: up to this token count "
              "the rate is that of a schedule of planned_tokens; from there it goes in a "
              "straight line to final_fraction at schedule/tokens. 0 = off."),
      integer("planned_tokens")
          .at_least(0)
          .warn()
          .in("tokens")
          .doc("schedule/tokens of the run before it was re-aimed."),
      flag("allow_jump")
          .doc("Go on at a restart whose next learning rate differs by more than 1 % "
               "from what "
               "the run before it would have used; otherwise that is refused."),
  };
  return b;
}

Block eval_table() {
  Block b{"eval", "Evaluation on held-out documents, with nothing dropped.", false, {}};
  b.keys = {
      integer("every_tokens")
          .at_least(0)
          .in("tokens")
          .doc("Evaluate each time this many tokens have been trained on. 0 = not during "
               "the "
               "run."),
      integer("sequences")
          .otherwise("64")
          .at_least(1)
          .in("sequences")
          .doc("Held-out sequences of one evaluation, always the same ones."),
      flag("at_end").otherwise("true").doc("Evaluate after the last step."),
  };
  return b;
}

}  // namespace capstan
