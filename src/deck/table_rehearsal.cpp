/// \file Block of the rehearsal of a big grid.
#include "deck/tables.hpp"

namespace capstan {

Block rehearsal_table() {
  Block b{
      "rehearsal",
      "Drop rates of the deck's grid, simulated on one machine (--rehearse, and the drop "
      "line of -m).",
      false,
      {}};
  b.keys = {
      integer("layers").otherwise("12").at_least(1).at_most(200).doc(
          "Layers to simulate: that many quantiles of the distribution of correlations "
          "that "
          "reproduces the drop rates of the reference run."),
      reals("correlation")
          .at_least(0)
          .below(1)
          .doc("Instead of them: the share of router-logit variance that the tokens of a "
               "sequence "
               "have in common, one value a layer. postprocess/router_correlation.py "
               "measures it "
               "in a dump of a trained model."),
      text("dump").doc(
          "Instead of simulated routers: the dump of a step of a trained model "
          "(job/dump_step). Its tokens are split over grid/expert ranks in data order."),
      integer("steps").otherwise("2").at_least(1).in("steps").doc(
          "Steps that are counted, after two for the router bias to settle."),
      integer("tokens").otherwise("4096").at_least(1).in("tokens").doc(
          "At most this many tokens of each rank are simulated: its sequences are kept "
          "and shortened. Drops depend on the number of sequences, hardly on their "
          "length."),
      reals("factors")
          .otherwise("1, 1.0625, 1.15, 1.25, 1.33, 1.5, 2")
          .above(0)
          .doc("Capacity factors of the table."),
  };
  return b;
}

}  // namespace capstan
