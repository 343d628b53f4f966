/// \file Blocks of training: optimizer, group, schedule, eval.
#include "deck/tables.hpp"

namespace capstan {
namespace {

const std::vector<std::string> kKinds = {"adamw", "adam", "adamh", "muonh"};

}  // namespace

Block optimizer_table() {
  Block b{
      "optimizer", "The optimizer of every tensor that no <groupN> claims.", false, {}};
  b.keys = {
      text("kind").otherwise("adamw").one_of(kKinds).fixed().doc(
          "adamw: Adam with decoupled weight decay. adam: without. adamh: Adam "
          "direction, "
          "norm of each matrix kept. muonh: orthogonalised momentum, norm kept (matrices "
          "only)."),
      real("lr").otherwise("0.001").at_least(0).warn().doc(
          "Peak learning rate; <schedule> multiplies it."),
      reals("betas")
          .otherwise("0.9, 0.95")
          .length(2)
          .at_least(0)
          .below(1)
          .warn()
          .doc("Decay of the first and second moment. muonh takes the first as its "
               "momentum."),
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
      text("norm_scope")
          .otherwise("matrix")
          .one_of({"matrix", "layer"})
          .warn()
          .doc("Kept norm of adamh and muonh on stacked expert tensors: of each matrix, "
               "or one "
               "of the whole stack of a layer (as the published 535B run)."),
  };
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
          .one_of({"linear"})
          .warn()
          .doc("Form of the decay after the warm-up."),
      real("final_fraction")
          .otherwise("0.05")
          .at_least(0)
          .at_most(1)
          .warn()
          .doc("Rate at the end of the run, as a part of the peak."),
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
