/// \file Blocks of what a run writes: checkpoint, diagnostics.
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

}  // namespace capstan
