#!/usr/bin/python3
"""The big grid rehearsed: 64 ranks train on 2 pipe x 2 data x 16 expert, write a
checkpoint, and go on as 1 x 1 x 64; losses are those of one rank.
"""
import unittest

import runs

DECK = ["moe/experts=64", "batch/sequences=64", "model/seq_len=16", "job/log_every=1"]
DECK += ["eval/at_end=false"]
RANKS, TIMEOUT = 64, 280


class Wide(runs.Case):
    def wide(self, *words):
        done = self.start("wide", *DECK, *words, ranks=RANKS).wait(TIMEOUT)
        self.assertEqual(done.code, 0, done.output)
        print(f"64 ranks: {done.seconds:.0f} seconds")

    def test_sixty_four_ranks(self):
        self.capstan("one", *DECK, "job/steps=10", code=0)
        (one,) = self.history("one")
        first = ["grid/pipe=2", "grid/data=2", "grid/expert=16", "grid/micro_batches=2"]
        self.wide(*first, "job/steps=5")
        self.wide("grid/expert=64", "job/steps=10", "-r", "latest")
        segments = self.history("wide")
        self.assertEqual([len(s.rows) for s in segments], [5, 5])
        for column in ("loss", "grad_norm", "param_norm", "load_max_over_mean"):
            values = [x for s in segments for x in s.values(column)]
            self.assert_close(values, one.values(column), 1e-9, column)


if __name__ == "__main__":
    unittest.main()
