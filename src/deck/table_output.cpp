/// \file Blocks of what a run writes and watches: checkpoint, diagnostics, health.
#include "deck/tables.hpp"

namespace capstan {

Block checkpoint_table() {
  Block b{
      "checkpoint",
      "When restart files are written and which are kept. A run that ends or is asked to "
      "stop writes one always.",
      false,
      {}};
  b.keys = {
      integer("every_tokens")
          .at_least(0)
          .in("tokens")
          .doc("Save each time this many tokens have been trained on. 0 = only at the "
               "end."),
      integer("keep_last")
          .otherwise("2")
          .at_least(1)
          .doc("Newest checkpoints that are kept."),
      integer("keep_every")
          .at_least(0)
          .doc("Besides them, keep every so many-th checkpoint for ever. 0 = none."),
      flag("check_replicas")
          .otherwise("true")
          .doc("Before each save, compare what several ranks hold copies of, bit for "
               "bit; stop with exit code 3 where they differ."),
      integer("ranks_per_file")
          .otherwise("1")
          .at_least(1)
          .doc("Ranks whose pieces go into one shard file."),
  };
  return b;
}

Block diagnostics_table() {
  Block b{"diagnostics", "What is recorded besides the text history.", false, {}};
  b.keys = {
      flag("history").otherwise("true").doc("Write diag/history.<segment>.h5: one row a "
                                            "step, readable while the run goes on."),
      integer("experts_every")
          .otherwise("1")
          .at_least(0)
          .in("steps")
          .doc("Write the load of every expert of every layer to "
               "diag/experts.<segment>.h5 every "
               "so many steps. 0 = never."),
  };
  return b;
}

Block health_table() {
  Block b{"health", "A rule that watches a column of the history and acts.", true, {}};
  b.keys = {
      text("metric").required().warn().doc(
          "Column of the history: loss, gradient_norm, ..."),
      text("condition")
          .required()
          .one_of({"above", "below", "zscore", "slope", "off_ladder"})
          .warn()
          .doc("When the rule fires: the value is above or below the threshold; it is so "
               "many deviations from the mean of the window; the slope over the window "
               "exceeds the threshold; it leaves the band of the ladder."),
      real("threshold").warn().doc("What the condition compares with."),
      integer("window_steps")
          .otherwise("100")
          .at_least(2)
          .warn()
          .in("steps")
          .doc("Steps that zscore and slope look at."),
      text("action")
          .otherwise("warn")
          .one_of({"warn", "checkpoint", "skip", "rollback", "stop"})
          .warn()
          .doc("What is done: a line in the log; a checkpoint; the update is skipped; "
               "back "
               "to the last checkpoint and past the data; an orderly stop."),
  };
  return b;
}

}  // namespace capstan
