#!/usr/bin/python3
"""What capstan does besides training: evaluate, sample, verify, a tiny step, the plan."""
import hashlib
import os
import re
import unittest

import runs

DECK = 2  # exit code
WORDS = ["eval/sequences=8"]


def digests(directory):
    """{path: hash} of every file below."""
    found = {}
    for folder, _, names in os.walk(directory):
        for name in names:
            path = os.path.join(folder, name)
            with open(path, "rb") as file:
                found[path] = hashlib.sha256(file.read()).hexdigest()
    return found


class OnACheckpoint(runs.Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        first = cls("train_once")
        first.capstan("first", *WORDS, "job/steps=20", code=0)

    def train_once(self):
        """Only names an instance that makes the run."""

    def check_untouched(self, *words, ranks=1, **more):
        before = digests(self.path("first"))
        done = self.capstan("first", *words, ranks=ranks, code=0, **more)
        self.assertEqual(digests(self.path("first")), before)
        return done

    def loss(self, done):
        return float(re.search(r"eval step=20 tokens=5120 loss=(\S+)", done.output)[1])

    def test_eval(self):
        at_end = float(self.history("first")[0].evals[20])
        done = self.check_untouched("--eval", "-r", "latest", deck=None)
        self.assertAlmostEqual(self.loss(done), at_end, delta=1e-6)
        words = [*WORDS, "--eval", "-r", "first/ckpt/step_00000020", "grid/expert=2"]
        done = self.check_untouched(*words, ranks=2)
        self.assertAlmostEqual(self.loss(done), at_end, delta=1e-6)

    def test_generate(self):
        words = ["--generate", "def main", "-r", "latest"]
        one = self.check_untouched(*words, deck=None)
        self.assert_says(one, "def main")
        self.assertGreater(len(one.output), len("def main") + 5)
        again = self.check_untouched(*words, deck=None)
        self.assertEqual(again.output, one.output)
        other = self.check_untouched(*words, "job/seed=2", deck=None)
        self.assertNotEqual(other.output, one.output)

    def test_verify(self):
        folder = self.path("first", "ckpt", "step_00000020")
        done = self.check_untouched("--verify", folder, deck=None)
        self.assert_says(done, "intact")
        done = self.capstan("first", "--verify", self.path("none"), deck=None)
        self.assertEqual(done.code, 4)
        done = self.capstan("first", "--eval")
        self.assertEqual(done.code, DECK)
        self.assert_says(done, "-r CKPT")


class Tiny(runs.Case):
    def check(self, *words, ranks=1):
        done = self.capstan("none", "-v", *words, deck=None, ranks=ranks, code=0)
        self.assert_says(done, "tiny: ok loss=")
        self.assertEqual(sorted(os.listdir(self.folder)), ["corpus.bin", "corpus.idx"])
        return done

    def test_decks_at_tiny_size(self):
        before = set(os.listdir(os.environ.get("TMPDIR", "/tmp")))
        for name in ("quickstart.deck", "bench/desk.deck", "tests/tiny.deck"):
            deck = os.path.join(runs.SOURCE, "inputs", name)
            done = self.check("-i", deck)
            self.assertLess(done.seconds, 20)
            for ranks in (2, 3):
                self.check("-i", deck, ranks=ranks)
        left = set(os.listdir(os.environ.get("TMPDIR", "/tmp"))) - before
        self.assertEqual([n for n in left if re.fullmatch(r"capstan\.\w{6}", n)], [])

    def test_keeps_switches(self):
        deck = os.path.join(runs.SOURCE, "inputs", "tests", "tiny.deck")

        def figures(*words):
            done = self.check("-i", deck, *words)
            return re.search(r"loss=\S+ grad_norm=\S+", done.output)[0]

        plain = figures()
        self.assertEqual(figures(), plain)
        for switch in ("model/xsa=false", "model/sconv=none", "moe/latent_width=0",
                       "grid/micro_batches=2"):
            self.assertNotEqual(figures(switch), plain, switch)
        self.check("-i", deck, "model/scalar=float")

    def test_refuses_what_is_not_served(self):
        deck = os.path.join(runs.SOURCE, "inputs", "tests", "tiny.deck")
        words = ["-i", deck, "memory/carry=host", "-v"]
        done = self.capstan("none", *words, deck=None, code=DECK)
        self.assert_says(done, "memory/carry")


class Plan(runs.Case):
    def test_check_echoes_a_valid_deck(self):
        done = self.capstan("none", "-n", code=0)
        echo = self.path("echo.deck")
        with open(echo, "w") as file:
            file.write(done.output)
        again = self.capstan("none", "-n", "-i", echo, deck=None, code=0)
        self.assertEqual(again.output, done.output)
        self.assertFalse(os.path.exists(self.path("none")))

    def test_help_and_configuration(self):
        done = self.capstan("none", "-h", "model", deck=None, code=0)
        self.assert_says(done, "window", "hidden")
        done = self.capstan("none", "-c", deck=None, code=0)
        self.assert_says(done, "Kokkos", "HDF5", "MPI")


if __name__ == "__main__":
    unittest.main()
