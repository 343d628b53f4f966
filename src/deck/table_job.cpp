/// \file Blocks of the run as a whole: job, grid, topology, memory, experiment.
#include "deck/tables.hpp"

namespace capstan {

Block job_table() {
  Block b{"job", "The run as a whole: name, seed, length, threads, console.", false, {}};
  b.keys = {
      text("name").otherwise("capstan").doc(
          "Name of the run: titles of plots, status file, log."),
      integer("seed").otherwise("1").at_least(0).warn().doc(
          "Seed of initial values, of the order of data and of sampled text. The "
          "position in "
          "the data is a function of seed and token count alone, so a changed seed at a "
          "restart changes which text is seen next."),
      integer("steps").at_least(0).warn().doc(
          "Number of optimizer steps of the whole run, restarts included. 0 = as many as "
          "schedule/tokens needs. A smaller number stops early and leaves the schedule "
          "as "
          "it is."),
      integer("threads").at_least(0).at_most(1024).warn().doc(
          "Host threads of each rank. 0 = the cores of the node divided by the ranks on "
          "it. "
          "Results are bit for bit the same only for the same number of threads."),
      integer("log_every")
          .otherwise("1")
          .at_least(1)
          .in("steps")
          .doc("Print a console line every so many steps. The history has every step."),
      integer("dump_step")
          .at_least(0)
          .doc("Write diag/dump.<step>.h5 at this step: the batch, every parameter "
               "before the "
               "update, every gradient, loss and routing, for a check with another "
               "framework. "
               "0 = never."),
      real("stuck_seconds")
          .otherwise("900")
          .at_least(0)
          .in("seconds")
          .doc(
              "A rank that waits for others longer than this ends the run with exit code "
              "5; the message names the operation and the ranks. 0 = waits for ever. "
              "Must exceed the time that the slowest rank may need between two "
              "exchanges, a checkpoint included."),
      real("wall_limit_seconds")
          .at_least(0)
          .in("seconds")
          .doc("Stop with a complete checkpoint and exit code 75 before this much wall "
               "time has "
               "passed. 0 = no limit. The option -t HH:MM:SS wins over it."),
  };
  return b;
}

Block grid_table() {
  Block b{
      "grid",
      "How ranks are laid out: world = pipe x data x expert, rank = (pipe * data axis + "
      "data) * expert axis + expert.",
      false,
      {}};
  b.keys = {
      integer("pipe").otherwise("1").at_least(1).at_most(65536).warn().doc(
          "Pipeline stages: each holds a contiguous part of the layers, the first the "
          "embedding too, the last the head. Micro-batches run through them (1F1B): "
          "a part (pipe - 1) / (micro_batches + pipe - 1) of the time is idle."),
      integers("layers_per_stage")
          .at_least(1)
          .warn()
          .doc(
              "Layers of each pipeline stage, first stage first. Empty = the split whose "
              "dearest stage costs least, embedding and head counted."),
      integer("data").otherwise("1").at_least(1).at_most(65536).warn().doc(
          "Data axis: replicas of the experts, each with its own tokens."),
      integer("expert").otherwise("1").at_least(1).at_most(65536).warn().doc(
          "Expert axis: routed experts are split over it, expert e on rank e div "
          "(moe/experts / expert); its ranks have their own tokens too. It must divide "
          "moe/experts."),
      integer("micro_batches")
          .otherwise("1")
          .at_least(1)
          .warn()
          .doc("Parts into which the tokens of a step are cut on each rank; gradients "
               "add up "
               "over them. The result of a step does not depend on it."),
      integer("stages_per_rank")
          .otherwise("1")
          .at_least(1)
          .doc("Pipeline stages held by one rank (interleaved schedule)."),
      flag("allow_split")
          .doc("Permit an expert axis that crosses NVLink domains "
               "(topology/nvlink_ranks); "
               "otherwise such a grid is refused, because its all-to-all would be slow."),
  };
  return b;
}

namespace {

/// What the plan's step time is made of.
std::vector<Key> rate_keys() {
  return {
      real("gemm_efficiency")
          .otherwise("0.6")
          .above(0)
          .at_most(1)
          .doc(
              "Part of peak_gflops that the model's matrix products reach, all sizes and "
              "what stands between them included; for the plan's step time."),
      real("attention_efficiency")
          .otherwise("0.4")
          .above(0)
          .at_most(1)
          .doc("Part of peak_gflops that attention reaches, forward and backward."),
      real("memory_gbs")
          .at_least(0)
          .in("GB/s")
          .doc("Bandwidth of a rank's device memory. 0 = unknown: no step time is "
               "planned."),
      real("nvlink_gbs")
          .at_least(0)
          .in("GB/s")
          .doc(
              "What a rank sends to others of its fast domain (nvlink_ranks), each way."),
      real("network_gbs")
          .at_least(0)
          .in("GB/s")
          .doc("What a rank sends to ranks of other domains, each way."),
      real("host_gbs")
          .at_least(0)
          .in("GB/s")
          .doc("Between the memories of a rank's device and of its host, each way."),
      real("storage_gbs")
          .at_least(0)
          .in("GB/s")
          .doc("What all ranks together write to the file system."),
  };
}

}  // namespace

Block topology_table() {
  Block b{"topology",
          "The machine, as far as the layout of ranks and the planner need it.",
          false,
          {}};
  b.keys = {
      integer("nvlink_ranks")
          .at_least(0)
          .doc("Consecutive ranks that share a fast all-to-all domain (NVLink, or one "
               "node). "
               "0 = all ranks."),
      integer("rack_ranks")
          .at_least(0)
          .doc("Consecutive ranks in one rack. 0 = all ranks."),
      real("peak_gflops")
          .at_least(0)
          .in("GFLOP/s")
          .doc("Peak matrix rate of one rank, the denominator of the MFU column. 0 = "
               "unknown: "
               "the column says 0."),
      real("device_memory_gb")
          .at_least(0)
          .in("GB")
          .doc("Memory that one rank may use on its device (on a host: of the node, "
               "divided by its ranks), in 1e9 bytes. The plan says whether the deck fits "
               "and ends with exit code 2 where it does not. 0 = unknown."),
      real("host_memory_gb")
          .at_least(0)
          .in("GB")
          .doc("Host memory of a node divided by its ranks, in 1e9 bytes: what "
               "memory/optimizer = host may fill. 0 = unknown."),
  };
  const auto rates = rate_keys();
  b.keys.insert(b.keys.end(), rates.begin(), rates.end());
  return b;
}

Block memory_table() {
  Block b{"memory", "Where the large arrays live.", false, {}};
  b.keys = {
      text("dense")
          .otherwise("replicated")
          .one_of({"replicated", "sharded"})
          .doc("Non-expert weights: replicated on every rank of data x expert, or "
               "sharded over "
               "them and gathered layer by layer."),
      text("optimizer")
          .otherwise("replicated")
          .one_of({"replicated", "sharded", "host"})
          .doc("Optimizer moments and master weights: as the weights, sharded over the "
               "replicas, or sharded and kept in host memory."),
      text("carry")
          .otherwise("device")
          .one_of({"device", "host"})
          .doc("Layer inputs saved for recomputation: in device or in host memory."),
  };
  return b;
}

Block experiment_table() {
  Block b{
      "experiment",
      "The question behind the run, written before it starts; copied into every output.",
      false,
      {}};
  b.keys = {
      text("goal").doc("What the run is for."),
      text("hypothesis").doc("What is expected, with numbers where possible."),
      text("falsified_by").doc("What outcome would show that the hypothesis is wrong."),
      texts("links").doc("Issues, papers, earlier runs."),
  };
  return b;
}

}  // namespace capstan
