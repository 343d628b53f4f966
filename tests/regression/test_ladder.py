#!/usr/bin/python3
"""The ladder: the published table, runs that follow a known law, and what is refused."""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
PUBLISHED = os.path.join(ROOT, "inputs", "ladder", "published.table")
SCRIPT = os.path.join(ROOT, "postprocess", "ladder.py")
sys.path[:0] = [os.path.join(ROOT, "postprocess")]
sys.dont_write_bytecode = True

import numpy as np  # noqa: E402

import ladder_fit  # noqa: E402
import ladder_runs  # noqa: E402

# A, alpha, forecast and the range with one rung left out, as published for each 5 %.
PRINTED = """67.55 .08130 2.3921 2.3855 2.4135
57.69 .07875 2.3261 2.3205 2.3379
59.43 .07960 2.2872 2.2816 2.2999
63.29 .08104 2.2571 2.2524 2.2664
64.11 .08136 2.2402 2.2295 2.2642
64.26 .08155 2.2234 2.2213 2.2285
64.18 .08153 2.2142 2.2099 2.2270
72.75 .08435 2.1853 2.1759 2.1993
64.11 .08172 2.1918 2.1850 2.2033
67.30 .08295 2.1724 2.1697 2.1740
73.27 .08497 2.1491 2.1425 2.1566
74.84 .08561 2.1352 2.1317 2.1407
76.17 .08612 2.1237 2.1215 2.1300
77.03 .08659 2.1105 2.1061 2.1166
78.78 .08729 2.0971 2.0946 2.1031
80.38 .08791 2.0852 2.0830 2.0899
78.67 .08766 2.0775 2.0769 2.0791
80.52 .08840 2.0643 2.0635 2.0650
83.07 .08931 2.0505 2.0494 2.0521
84.79 .08998 2.0388 2.0378 2.0415"""


class Published(unittest.TestCase):
    def setUp(self):
        self.ladder = ladder_fit.read_table(PUBLISHED)
        self.forecast = ladder_fit.forecast_of(self.ladder, self.ladder.asymptote)
        rows = [line.split() for line in PRINTED.splitlines()]
        self.printed = np.array(rows, dtype=float)

    def test_twenty_rows(self):
        self.assertEqual(len(self.ladder.fractions), 20)
        a, alpha, loss, low, high = self.printed.T
        self.assertLess(np.abs(self.forecast.loss - loss).max(), 1e-4)
        self.assertLess(np.abs(self.forecast.left_out[0] - low).max(), 2e-4)
        self.assertLess(np.abs(self.forecast.left_out[1] - high).max(), 2e-4)
        self.assertLess(np.abs(self.forecast.a - a).max(), 0.05)
        self.assertLess(np.abs(self.forecast.alpha - alpha).max(), 2e-5)

    def test_the_end_of_the_run(self):
        self.assertAlmostEqual(self.forecast.a[-1], 84.79, delta=0.05)
        self.assertAlmostEqual(self.forecast.alpha[-1], 0.08998, delta=2e-5)
        self.assertAlmostEqual(self.forecast.loss[-1], 2.0388, delta=1e-4)

    def test_what_was_seen_of_the_target(self):
        off = {round(f, 3): e for f, _, _, e in self._errors()}
        # The public residuals; the first points lie before the first fraction.
        told = {0.054: -0.082, 0.1: -0.056, 0.146: -0.038, 0.538: -0.020, 0.546: -0.014}
        for fraction, error in told.items():
            self.assertAlmostEqual(off[fraction], error, delta=6e-4)
        self.assertEqual(len(off), 6)

    def _errors(self):
        return ladder_fit.errors(self.ladder, self.forecast)

    def test_band_holds_both_ranges(self):
        forecast = self.forecast
        for span in (forecast.left_out, forecast.drawn):
            self.assertTrue((forecast.low <= span[0] + 1e-12).all())
            self.assertTrue((forecast.high >= span[1] - 1e-12).all())
        again = ladder_fit.forecast_of(self.ladder, self.ladder.asymptote)
        np.testing.assert_array_equal(again.drawn, forecast.drawn)


class Flops(unittest.TestCase):
    """The published totals without the head, from the shape that the one knob gives."""

    def deck(self, hidden, layers, kv, kv_global, sequences, tokens):
        half = hidden // 2
        return {
            "model/hidden": hidden, "model/layers": layers, "model/heads": hidden // 128,
            "model/kv_heads": kv, "model/kv_heads_global": kv_global,
            "model/head_dim": 128, "model/seq_len": 4096, "model/window": 2048,
            "model/global_every": 4, "moe/experts": 384, "moe/top_k": 8,
            "moe/shared_experts": 2, "moe/expert_width": half, "moe/shared_width": 0,
            "moe/latent_width": half, "batch/sequences": sequences, "job/steps": 0,
            "schedule/tokens": tokens,
        }

    def test_published_totals(self):
        cases = [
            (768, 8, 1, 1, 1024, 11420, 2.649680e19, 1e-6),
            (1024, 12, 2, 1, 2048, 15276, 1.726118e20, 1e-6),
            (1536, 16, 3, 1, 6144, 15128, 1.381326e21, 1e-6),
            (2048, 22, 4, 2, 11264, 20072, 7.741815e21, 2e-5),
            (6144, 48, 12, 6, 11264, 390251, 2.610894e24, 1e-6),
        ]
        for hidden, layers, kv, kv_global, sequences, steps, flops, within in cases:
            tokens = steps * sequences * 4096
            deck = self.deck(hidden, layers, kv, kv_global, sequences, tokens)
            told = ladder_runs.total_flops(deck)
            self.assertLess(abs(told / flops - 1), within, f"d{hidden}")
        self.assertEqual(ladder_runs.active_parameters(deck), 22_762_487_808)


LEVEL, SCALE, SLOPE = 0.6, 30.0, 0.13


def law(flops):
    return LEVEL + SCALE * flops**-SLOPE


class Runs(unittest.TestCase):
    """Run directories whose losses follow the law, with noise of 0.001."""

    def setUp(self):
        self.path = tempfile.mkdtemp(prefix="capstan_ladder_")
        self.addCleanup(shutil.rmtree, self.path)
        self.random = np.random.default_rng(7)
        self.rungs = [self.write(width) for width in (32, 48, 64, 96)]

    def write(self, width, points=20, noise=1e-3, evals=True, ratio=30):
        deck = Flops().deck(width, 4, 1, 1, 4, 1024 * width**2)
        deck["model/heads"], deck["model/seq_len"] = width // 16, 256
        deck["model/head_dim"], deck["scale/tokens_per_active"] = 16, ratio
        folder = os.path.join(self.path, f"d{width}")
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "deck.used"), "w") as file:
            for key, value in deck.items():
                block, name = key.split("/")
                file.write(f"<{block}>\n{name} = {value}\n")
        if not evals:
            return folder
        tokens, flops = deck["schedule/tokens"], ladder_runs.total_flops(deck)
        with open(os.path.join(folder, "history.txt"), "w") as file:
            file.write("#segment step tokens loss\n#start segment=1 start_step=0\n")
            for i in range(1, points + 1):
                loss = law(flops * i / 20) + noise * self.random.standard_normal()
                file.write(f"1 {i} {tokens * i // 20} {loss}\n")
                file.write(f"#eval step={i} tokens={tokens * i // 20} loss={loss}\n")
        return folder

    def ladder(self, *arguments):
        command = [sys.executable, SCRIPT, *arguments, "-o", self.stem()]
        return subprocess.run(command, capture_output=True, text=True)

    def stem(self):
        return os.path.join(self.path, "out")

    def band(self):
        with open(self.stem() + ".band") as file:
            return file.read()

    def test_predicted_then_trained(self):
        target = self.write(128, evals=False)
        result = self.ladder(*self.rungs, "--target", target)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertNotIn("has finished", result.stdout)
        written = self.band()
        rows = [line.split() for line in written.splitlines()[2:]]
        self.assertEqual(len(rows), 20)
        fraction, tokens, loss, low, high = map(float, rows[-1])
        self.assertEqual((fraction, tokens), (1, 1024 * 128**2))
        true = law(ladder_runs.total_flops(ladder_runs.read_deck(target)))
        self.assertLess(abs(loss / true - 1), 0.01)
        self.assertLess(low, true)
        self.assertLess(true, high)
        self.write(128, noise=0)
        result = self.ladder(*self.rungs, "--target", target)
        self.assertRegex(result.stdout, r"d128 has finished: loss \d.*error [-+]0\.0")
        self.assertIn("kept as it was written before", result.stdout)
        self.assertEqual(self.band(), written)
        for kind in ("png", "svg"):
            self.assertGreater(os.path.getsize(f"{self.stem()}.{kind}"), 10000)

    def test_without_noise_the_law_is_found(self):
        rungs = [self.write(width, noise=0) for width in (32, 48, 64, 96)]
        ladder = ladder_runs.from_runs(rungs, self.write(128, evals=False))
        forecast = ladder_fit.forecast_of(ladder)
        self.assertAlmostEqual(forecast.asymptote, LEVEL, delta=2e-3)
        self.assertAlmostEqual(forecast.alpha[-1], SLOPE, delta=2e-4)
        told = law(ladder.target_flops * ladder.fractions)
        np.testing.assert_allclose(forecast.loss, told, atol=2e-4)
        self.assertLess((forecast.high - forecast.low).max(), 4e-3)

    def test_noise_is_measured(self):
        noise = 0.01
        rungs = [self.write(width, noise=noise) for width in (32, 48, 64, 96)]
        ladder = ladder_runs.from_runs(rungs, self.write(128, evals=False))
        measured = ladder_fit.evaluation_noise(ladder.loss)
        self.assertLess(abs(measured.mean() / noise - 1), 0.35)

    def test_unlike_and_unfinished_rungs_are_noted(self):
        self.write(96, points=16)
        target = self.write(128, evals=False, ratio=60)
        result = self.ladder(*self.rungs, "--target", target)
        self.assertEqual(result.returncode, 0)
        self.assertIn("scale/tokens_per_active is not alike", result.stderr)
        self.assertIn("fractions without every rung: 4 of 20", result.stderr)
        self.assertEqual(len(self.band().splitlines()), 2 + 16)

    def test_refused(self):
        target = self.write(128, evals=False)
        few = self.ladder(*self.rungs[:2], "--target", target)
        self.assertEqual(few.returncode, 4)
        self.assertIn("three or more", few.stderr)
        high = self.ladder(*self.rungs, "--target", target, "--asymptote", "9")
        self.assertIn("not below every loss", high.stderr)
        rung = os.path.join(ROOT, "inputs", "ladder", "desk", "d48.deck")
        part = self.ladder(*self.rungs, "--target", rung)
        self.assertIn("must be whole", part.stderr)
        self.assertFalse(os.path.exists(self.stem() + ".band"))


if __name__ == "__main__":
    unittest.main()
