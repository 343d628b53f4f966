#!/usr/bin/python3
"""model/scalar = bf16: it learns as float does, restarts bit for bit, and serves every
mode.

bf16 keeps 8 bits, so a figure may be off by 2^-8 = 0.4 % for each rounding it depends on
directly; a loss is a mean over many tokens, whose errors cancel. QuickstartCurve (slow)
trains the quickstart deck for 100 steps in both types.
"""
import os
import unittest

import runs
import h5py
import numpy as np

QUICKSTART = os.path.join(runs.SOURCE, "inputs", "quickstart.deck")
BF16 = "model/scalar=bf16"


def curve(segment):
    return segment.values("loss")


class Curves(runs.Case):
    """The loss of both types, step by step."""

    def compare(self, steps, *words, deck=runs.TINY, window=10):
        curves = []
        for scalar in ("float", "bf16"):
            words_of = [*words, f"job/steps={steps}", f"model/scalar={scalar}"]
            self.capstan(scalar, *words_of, deck=deck, code=0)
            (segment,) = self.history(scalar)
            curves.append(curve(segment))
            self.assertEqual(len(curves[-1]), steps)
        evals = [float(self.history(s)[0].evals[steps]) for s in ("float", "bf16")]
        for step in range(0, steps, max(1, steps // 20)):
            print(f"step {step + 1:4d} float {curves[0][step]:.4f} "
                  f"bf16 {curves[1][step]:.4f}")
        print("held out float %.4f bf16 %.4f" % tuple(evals))
        # It learned at all, so that equal curves mean something.
        self.assertLess(curves[0][-window:].mean(), 0.9 * curves[0][0])
        smooth = [np.convolve(c, np.ones(window) / window, "valid") for c in curves]
        self.assert_close(smooth[1], smooth[0], 0.01, f"means of {window} steps")
        self.assert_close(curves[1], curves[0], 0.03, "single steps")
        self.assert_close(evals[1:], evals[:1], 0.01, "held-out loss")
        norms = [self.history(s)[0].values("grad_norm") for s in ("float", "bf16")]
        self.assertTrue(np.isfinite(norms).all())


class SmallCurve(Curves):
    def test_loss_follows_float(self):
        self.compare(120, "eval/sequences=32")


class QuickstartCurve(Curves):
    def test_loss_follows_float(self):
        words = ["schedule/tokens=409600", "checkpoint/every_tokens=0", "grid/expert=1"]
        self.compare(100, *words, deck=QUICKSTART)


class Runs(runs.Case):
    """Restart, modes and grids of short runs."""

    def train(self, name, *words, ranks=1):
        words = [BF16, "schedule/tokens=25600", "eval/sequences=8", *words]
        self.capstan(name, *words, ranks=ranks, code=0)
        return self.history(name)

    def test_restart_bit_for_bit(self):
        self.train("whole", "job/steps=12")
        self.train("parts", "job/steps=5")
        segments = self.train("parts", "job/steps=12", "-r", "latest")
        self.assertEqual(len(segments), 2)
        self.assertEqual(runs.merged(segments), runs.merged(self.history("whole")))
        self.assertEqual(self.last_hash("parts"), self.last_hash("whole"))

    def test_checkpoint_and_dump_hold_masters(self):
        self.train("kept", "job/steps=4", "job/dump_step=3")
        folder = runs.checkpoints(self.path("kept"))[4]
        shards = [n for n in os.listdir(folder) if n.endswith(".h5") and n != "meta.h5"]
        with h5py.File(os.path.join(folder, "meta.h5")) as meta:
            self.assertEqual(meta.attrs["scalar"], b"bf16")
        self.assertTrue(shards)
        dump = self.path("kept", "diag", "dump.3.h5")
        with h5py.File(dump) as file:
            master = file["params/head/table"][()]
            gradient = file["grads/head/table"][()]
            logits = file["router/layer_000/logits"][()]
        for values in (master, gradient, logits):
            self.assertEqual(values.dtype, np.float32)
            # more bits than bf16 has: neither was rounded on its way
            self.assertGreater((values.view(np.uint32) & 0xFFFF != 0).mean(), 0.9)

    def test_router_rounds_its_output_when_asked(self):
        words = ["job/steps=2", "job/dump_step=2", "moe/router_precision=bf16_out"]
        self.train("rounded", *words)
        with h5py.File(self.path("rounded", "diag", "dump.2.h5")) as file:
            logits = file["router/layer_000/logits"][()]
        self.assertEqual((logits.view(np.uint32) & 0xFFFF != 0).sum(), 0)

    def test_eval_and_generate(self):
        (segment,) = self.train("modes", "job/steps=6")
        done = self.capstan("modes", "--eval", "-r", "latest", deck=None, code=0)
        loss = float(done.output.partition(" loss=")[2].split()[0])
        self.assertAlmostEqual(loss, float(segment.evals[6]), delta=1e-6)
        words = ["--generate", "def main", "-r", "latest"]
        one = self.capstan("modes", *words, deck=None, code=0)
        again = self.capstan("modes", *words, deck=None, code=0)
        self.assert_says(one, "def main")
        self.assertEqual(one.output, again.output)

    def test_grids_agree(self):
        # The sums over ranks are in float; what differs is the order of sums, which tips
        # the rounding of single weights and activations to a neighbour, 2^-8 away.
        (one,) = self.train("one", "job/steps=20")
        for data, expert in ((1, 2), (2, 1)):
            name = f"{data}x{expert}"
            grid = [f"grid/data={data}", f"grid/expert={expert}"]
            (other,) = self.train(name, "job/steps=20", *grid, ranks=2)
            error = np.abs(curve(other) / curve(one) - 1)
            print(f"grid {name}: worst relative difference of the loss {error.max():.2e}")
            self.assertLess(error[0], 1e-5)
            self.assertLess(error.max(), 2e-3)

    def test_same_run_same_bits_on_two_ranks(self):
        words = ["job/steps=5", "grid/expert=2", "moe/transport=pooled_wave"]
        for name in ("a", "b"):
            self.train(name, *words, "moe/capacity_send=2", "moe/waves=2", ranks=2)
        self.assertEqual(self.last_hash("a"), self.last_hash("b"))


if __name__ == "__main__":
    unittest.main()
