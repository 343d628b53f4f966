#!/usr/bin/python3
"""Health rules on real runs: a run that diverges is caught, rolled back, and finishes."""
import os
import shutil
import subprocess
import sys
import unittest

import runs

import capstan_run  # noqa: E402 (runs has set the path)
import h5py  # noqa: E402
import numpy as np  # noqa: E402

INPUTS = os.path.join(runs.SOURCE, "inputs")
ROLLBACK = os.path.join(INPUTS, "health", "rollback.deck")
PUBLISHED = os.path.join(INPUTS, "health", "marin.deck")
# Nothing that holds the logits; a rate that this model bears.
SHARP = ["optimizer/lr=0.01", "optimizer/clip_norm=0", "optimizer/weight_decay=0"]
SHARP += ["model/z_loss=0", "batch/sequences=16", "data/window_tokens=1048576"]
SHARP += ["checkpoint/every_tokens=5120", "checkpoint/keep_last=4"]
# Far too high, from step 61 on.
DIVERGES = [*SHARP, "optimizer/lr=3", "schedule/allow_jump=true", "job/steps=100"]


def rule(number=1, **keys):
    return [f"health{number}/{key}={value}" for key, value in keys.items()]


class Health(runs.Case):
    def events(self, directory, kind):
        """[(step, text)] of all segments."""
        segments = self.history(directory)
        found = [event for segment in segments for event in segment.events]
        return [(step, text) for step, name, text in found if name == kind]

    def losses(self, directory):
        run = capstan_run.Run(self.path(directory))
        np.testing.assert_array_equal(
            run.columns["step"], np.arange(1, len(run.columns["step"]) + 1)
        )
        return run.columns["loss"]

    def test_a_run_that_diverges_is_caught_and_finishes(self):
        self.capstan("free", *SHARP, "job/steps=60", code=0)
        shutil.copytree(self.path("free"), self.path("held"))
        self.capstan("free", "-r", "latest", *DIVERGES, code=0)
        free = self.losses("free")
        self.assertGreater(free[60:].max(), 3 * free[30:60].max(), "it does not diverge")
        # The windows come from before the restart: 50 steps are looked at, one is new.
        words = ["-i", ROLLBACK, *(f"health{n}/rate_factor=0.003" for n in range(21, 25))]
        done = self.capstan("held", "-r", "latest", *words, *DIVERGES, code=0)
        self.assert_says(done, "health24: update_ratio", "rollback 1: from step 61 to 50")
        self.assertEqual(len(self.events("held", "rollback")), 1, done.output)
        self.assertEqual(len(self.history("held")), 3)
        held = self.losses("held")
        self.assertEqual(len(held), 100)
        # Caught before it explodes, what was undone included; and it goes on learning.
        run = capstan_run.Run(self.path("held"))
        undone = np.concatenate([gone["loss"] for gone in run.discarded])
        self.assertLess(max(undone.max(), held[50:].max()), free[20:60].max() + 0.5)
        self.assertLess(held[-20:].mean(), held[40:60].mean())
        ends = [self.history(name)[-1].evals[100] for name in ("free", "held")]
        self.assertLess(float(ends[1]), float(ends[0]) - 0.5)
        np.testing.assert_allclose(run.columns["lr"][50:], 3 * 0.003)
        self.check_picture("held")

    def check_picture(self, directory):
        script = os.path.join(runs.SOURCE, "postprocess", "plot_run.py")
        command = [sys.executable, script, self.path(directory), "-o", self.path("plot")]
        subprocess.run(command, check=True, capture_output=True)
        with open(self.path("plot.svg")) as file:
            picture = file.read()
        for words in ("rolled back", "dotted: rollback at step", "skipped, rates x"):
            self.assertIn(words, picture)

    def spike(self, steps=24, first=10):
        """(step, threshold) of the highest loss from step `first` on, in a plain run."""
        if not os.path.exists(self.path("plain")):
            self.capstan("plain", f"job/steps={steps}", "job/dump_step=13", code=0)
        loss = self.history("plain")[0].values("loss")
        step = int(first + loss[first - 1 : 18].argmax())
        return step, loss[step - 1] - 1e-3

    def rollback_words(self, threshold):
        words = ["job/steps=24", f"checkpoint/every_tokens={4 * runs.TOKENS}"]
        keys = {"metric": "loss", "condition": "above", "action": "rollback"}
        keys.update(threshold=threshold, from_tokens=10 * runs.TOKENS)
        return [*words, "checkpoint/keep_last=9", *rule(**keys)]

    def test_the_data_that_was_seen_is_skipped(self):
        words = ["job/steps=24", f"checkpoint/every_tokens={4 * runs.TOKENS}"]
        words += ["checkpoint/keep_last=9", "job/dump_step=9"]
        words += rule(metric="step", condition="above", threshold=11, action="rollback")
        words += rule(limit=1, margin_steps=3)
        self.spike()  # its dump is of step 13
        done = self.capstan("skips", *words, code=3)
        self.assert_says(done, "from step 12 to 8, data of tokens 2048 to 3072 skipped")
        self.assert_says(done, "stop, after 1 rollbacks")
        with h5py.File(self.path("plain/diag/dump.13.h5"), "r") as plain:
            with h5py.File(self.path("skips/diag/dump.9.h5"), "r") as file:
                for name in ("tokens", "targets", "segments"):
                    np.testing.assert_array_equal(
                        file["batch"][name][:], plain["batch"][name][:]
                    )
        # The stop saved nothing, the roll back dropped nothing older.
        self.assertEqual(sorted(runs.checkpoints(self.path("skips"))), [4, 8])
        with open(self.path("skips/status")) as file:
            self.assertIn("state=stopped step=12", file.read())

    def test_a_restart_after_a_rollback_goes_on_alike(self):
        step, threshold = self.spike()
        words = self.rollback_words(threshold)
        done = self.capstan("whole", *words, code=0)
        rolled = self.events("whole", "rollback")
        self.assertEqual(len(rolled), 1, done.output)
        self.assertIn(f"from step {step} to ", rolled[0][1])
        self.assertLess(rolled[0][0], step)
        for steps in (8, step + 1, 24):
            restart = ["-r", "latest"] if os.path.exists(self.path("parts")) else []
            self.capstan("parts", *restart, *words, f"job/steps={steps}", code=0)
        self.assertEqual(self.events("parts", "rollback"), rolled)
        self.assertEqual(self.last_hash("parts"), self.last_hash("whole"))
        one, other = self.history("whole"), self.history("parts")
        last = 24
        self.assertEqual(runs.merged(one)[last], runs.merged(other)[last])

    def test_ranks_agree(self):
        step, threshold = self.spike()
        words = self.rollback_words(threshold)
        self.capstan("two", *words, "grid/expert=2", ranks=2, code=0)
        rolled = self.events("two", "rollback")
        self.assertEqual(len(rolled), 1)
        self.assertIn(f"from step {step} to ", rolled[0][1])

    def test_an_update_is_left_out(self):
        step, threshold = self.spike()
        keys = {"metric": "loss", "condition": "above", "action": "skip"}
        keys.update(threshold=threshold, from_tokens=10 * runs.TOKENS)
        self.capstan("skip", "job/steps=24", *rule(**keys), code=0)
        history = self.history("skip")[0]
        skipped = history.values("skipped_steps")
        above = (history.values("loss") > threshold) & (np.arange(24) >= 9)
        self.assertEqual(skipped.tolist(), above.astype(float).tolist())
        self.assertEqual(skipped[step - 1], 1)
        same = np.diff(history.values("param_norm")) == 0
        self.assertEqual(same.tolist(), (skipped[:-1] == 1).tolist())
        self.assertIn("health1: loss = ", self.events("skip", "skip")[0][1])

    def test_warnings_and_checkpoints_change_nothing(self):
        step, threshold = self.spike()
        keys = {"metric": "loss", "condition": "above", "from_tokens": 10 * runs.TOKENS}
        words = rule(**keys, threshold=threshold, action="warn")
        words += rule(2, **keys, threshold=threshold, action="checkpoint")
        done = self.capstan("warn", "job/steps=24", *words, code=0)
        self.assert_says(done, f"WARNING: step {step}: health1: loss = ")
        self.assertEqual([at for at, _ in self.events("warn", "health")], [step] * 2)
        self.assertIn(step, runs.checkpoints(self.path("warn")))
        self.assertEqual(
            runs.merged(self.history("warn")), runs.merged(self.history("plain"))
        )

    def test_the_published_rules_run(self):
        self.capstan("published", "-i", PUBLISHED, "job/steps=3", code=0)
        with open(self.path("published/deck.used")) as file:
            self.assertEqual(file.read().count("<health"), 11)

    def test_refused(self):
        words = rule(metric="los", condition="above")
        done = self.capstan("refused", *words, code=2)
        self.assert_says(done, "health1/metric = los", "nearest is loss")
        words = rule(metric="step", condition="above", threshold=2, action="rollback")
        done = self.capstan("none", "job/steps=8", *words, code=3)
        self.assert_says(done, "no intact checkpoint", "cannot roll back")


if __name__ == "__main__":
    unittest.main()
