#!/usr/bin/python3
"""Mixtures over token ranges: restarts inside them, changes on the way, grids, refusals.

The stages begin at steps 6 and 13 and inside step 16 (a step of tiny.deck has 256
tokens, a sequence 32), so that the runs below cross each of them.
"""
import unittest

import numpy as np

import runs

DECK, FILE = 2, 4
STEP = runs.TOKENS
COMMON = ["schedule/tokens=102400", "eval/at_end=false"]
EARLY = ["mixture1/files=corpus,small", "mixture1/weights=3,1"]
EARLY += [f"mixture1/first_tokens={5 * STEP}", f"mixture1/last_tokens={12 * STEP}"]
LATE = ["mixture2/files=small,rare", "mixture2/weights=0.97,0.03"]
LATE += [f"mixture2/first_tokens={15 * STEP + 100}"]


class Mixtures(runs.Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        rng = np.random.default_rng(5)
        for name, low in (("small", 97), ("rare", 48)):
            documents = [rng.integers(low, low + 10, 200) for _ in range(40)]
            runs.write_tokens(f"{cls.folder}/{name}", documents)

    def train(self, directory, steps, *words, ranks=1):
        words = [*COMMON, f"job/steps={steps}", *words]
        done = self.capstan(directory, *words, ranks=ranks, code=0)
        return done, runs.merged(self.history(directory))

    def test_a_restart_inside_a_block_is_the_same_run(self):
        _, whole = self.train("whole", 20, *EARLY, *LATE)
        for steps in (8, 16):
            name = f"stopped{steps}"
            self.train(name, steps, *EARLY, *LATE)
            done, rows = self.train(name, 20, *EARLY, *LATE, "-r", "latest")
            self.assertEqual(rows, whole)
            self.assertEqual(self.last_hash(name), self.last_hash("whole"))
            self.assertNotIn("mixture before token", done.output)

    def test_a_later_mixture_leaves_the_order_before_it(self):
        _, planned = self.train("planned", 20, *EARLY, *LATE)
        _, plain = self.train("plain", 5)
        self.assertEqual({step: planned[step] for step in plain}, plain)
        self.train("changed", 14, *EARLY)
        done, rows = self.train("changed", 20, *EARLY, *LATE, "-r", "latest")
        self.assert_says(done, "data source rare: new")
        self.assertNotIn("mixture before token", done.output)
        self.assertEqual(rows, planned)
        self.assertEqual(self.last_hash("changed"), self.last_hash("planned"))

    def test_a_mixture_changed_in_the_past_warns(self):
        self.train("past", 8, *EARLY)
        words = [*EARLY, "mixture1/weights=1,1", "-r", "latest"]
        done, _ = self.train("past", 10, *words)
        self.assert_says(done, f"mixture before token {8 * STEP} is not what")

    def test_the_grid_does_not_matter(self):
        _, one = self.train("one", 18, *EARLY, *LATE)
        _, two = self.train("two", 18, *EARLY, *LATE, "grid/data=2", ranks=2)
        loss = [s.values("loss") for n in ("one", "two") for s in self.history(n)]
        self.assert_close(loss[0], loss[1], 1e-5)

    def test_refusals(self):
        words = [*COMMON, "job/steps=2"]
        bad = ["mixture1/files=gone1,corpus", "mixture2/files=gone2"]
        bad += ["mixture1/last_tokens=512", "mixture2/first_tokens=512"]
        done = self.capstan("gone", *words, *bad, code=FILE)
        self.assert_says(done, "gone1", "gone2")
        done = self.capstan("weights", *words, *EARLY, "mixture1/weights=1,0", code=DECK)
        self.assert_says(done, "mixture1/weights")
        bad = [*EARLY, *LATE, f"mixture2/first_tokens={7 * STEP}"]
        done = self.capstan("overlap", *words, *bad, code=DECK)
        self.assert_says(done, "mixture2: overlaps")
        done = self.capstan("overlap", *words, *bad, "-n", code=DECK)
        self.assert_says(done, "mixture2: overlaps")
        done = self.capstan("gap", *words, *EARLY, "data/files=", code=DECK)
        self.assert_says(done, "no mixture holds at token 0")


if __name__ == "__main__":
    unittest.main()
