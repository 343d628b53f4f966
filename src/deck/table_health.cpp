/// \file The block of the rules that watch a run.
#include "deck/tables.hpp"

namespace capstan {
namespace {

std::vector<Key> condition_keys() {
  return {
      text("metric").required().warn().doc(
          "Column of the history (postprocess/README), or eval_loss: the held-out loss, "
          "which has a value at each evaluation only."),
      text("condition")
          .required()
          .one_of({"above", "below", "above_least", "zscore", "slope", "sum_above",
                   "off_ladder"})
          .warn()
          .doc("above, below: the threshold. above_least: the least value of the window "
               "by more than the threshold. zscore: the mean of the window by more than "
               "threshold x its standard deviation, and by least_rise; a negative "
               "threshold looks below. slope: of a straight line through the window, a "
               "step (a negative threshold: falls faster). sum_above: the sum of the "
               "window. off_ladder: outside a band by more than the threshold. A value "
               "that is not finite is beyond above, above_least, zscore and off_ladder, "
               "and enters no window."),
      real("threshold").warn().doc("What the condition compares with."),
      real("least_rise")
          .at_least(0)
          .warn()
          .doc("Of zscore: a smaller distance from the mean does not count."),
      integer("window_steps")
          .otherwise("100")
          .at_least(2)
          .warn()
          .in("steps")
          .doc("Values that the condition looks at: those before the ones that are "
               "beyond it, so that a spike does not move its own measure. zscore and "
               "slope wait until there are so many."),
      integer("for_steps")
          .otherwise("1")
          .at_least(1)
          .warn()
          .in("steps")
          .doc("Fire when the condition has held for so many values in a row."),
      integer("from_tokens")
          .at_least(0)
          .warn()
          .in("tokens")
          .doc("Look at nothing before this token count: the start of a run is steep."),
      text("band").warn().doc(
          "Of off_ladder: file of the band, as postprocess/ladder.py writes it."),
  };
}

}  // namespace

Block health_table() {
  Block b{"health",
          "A rule that watches a number of each step and acts. Rules are numbered; decks "
          "of rules stack (inputs/health).",
          true,
          {}};
  b.keys = condition_keys();
  const std::vector<Key> actions = {
      text("action")
          .otherwise("warn")
          .one_of({"warn", "checkpoint", "skip", "rollback", "stop"})
          .warn()
          .doc("Every firing is a line in the log and an event. checkpoint: save. skip: "
               "leave the update of this step out (losses, gradient and parameter norms "
               "can be judged before it). rollback: load the newest intact checkpoint "
               "older than the trouble, drop the newer ones, and go on with data not "
               "seen yet. stop: end with exit code 3, without a new checkpoint. A rule "
               "fires again after its condition has been false; skip at every step."),
      integer("margin_steps")
          .at_least(0)
          .warn()
          .in("steps")
          .doc("Of rollback: the trouble began so many steps before the condition did."),
      real("rate_factor")
          .otherwise("1")
          .above(0)
          .at_most(1)
          .warn()
          .doc("Of rollback: all learning rates are multiplied by this from there on."),
      integer("limit").otherwise("3").at_least(1).warn().doc(
          "Of skip: updates left out in a row; of rollback: in the whole run. One "
          "more stops the run with exit code 3."),
  };
  b.keys.insert(b.keys.end(), actions.begin(), actions.end());
  return b;
}

}  // namespace capstan
