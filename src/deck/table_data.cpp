/// \file Blocks of the data: batch, data, mixture.
#include "deck/tables.hpp"

namespace capstan {

Block batch_table() {
  Block b{"batch", "How much is trained on in one optimizer step.", false, {}};
  b.keys = {
      integer("sequences")
          .required()
          .at_least(1)
          .warn()
          .in("sequences")
          .doc("Sequences of model/seq_len tokens per optimizer step, over all ranks. "
               "Must be a "
               "multiple of data x expert x micro_batches."),
  };
  return b;
}

Block data_table() {
  Block b{"data", "Where the training tokens come from.", false, {}};
  b.keys = {
      texts("files").warn().doc(
          "Token files without their ending: X stands for the pair X.bin, X.idx that "
          "capstan-prep writes. Relative to the directory where capstan is started."),
      reals("weights").above(0).warn().doc(
          "Share of each file in the tokens seen, in the order of files, not necessarily "
          "normalised. Empty = by size."),
      real("valid_fraction")
          .otherwise("0.01")
          .at_least(0)
          .below(1)
          .fixed()
          .doc("Part of the documents held out for evaluation; never trained on."),
      text("tokenizer")
          .otherwise("byte")
          .fixed()
          .doc("What turns text into tokens for --generate: byte, or the path of a "
               "tokenizer.json."),
      integer("window_tokens")
          .otherwise("1048576")
          .at_least(2)
          .fixed()
          .in("tokens")
          .doc("Each source is shuffled inside windows of this many tokens. Larger = "
               "better "
               "mixed, more scattered reads. At least model/seq_len."),
  };
  return b;
}

Block mixture_table() {
  Block b{
      "mixture",
      "A mixture of sources over a range of the run (pretraining, cooldown); replaces "
      "data/files and data/weights inside that range.",
      true,
      {}};
  b.keys = {
      texts("files").required().warn().doc("Token files, as data/files."),
      reals("weights").above(0).warn().doc("Shares, as data/weights."),
      integer("first_tokens")
          .at_least(0)
          .warn()
          .in("tokens")
          .doc("The mixture starts when this many tokens have been seen."),
      integer("last_tokens")
          .at_least(0)
          .warn()
          .in("tokens")
          .doc("The mixture ends when this many tokens have been seen. 0 = the end of "
               "the run."),
  };
  return b;
}

}  // namespace capstan
