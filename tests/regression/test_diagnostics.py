#!/usr/bin/python3
"""What a run writes to be looked at: readable while it goes on and after kill -9, the
same numbers in text and in HDF5, and a timing table that adds up."""
import re
import time
import unittest

import h5py
import numpy as np
import runs

import capstan_run

WORDS = ["eval/at_end=false", "eval/every_tokens=2560"]  # every 10 steps


def read(job):
    """The run by our reader."""
    return capstan_run.Run(job.directory)


def timing(path):
    """(head, {phase: fields}, memory lines) of timing.txt."""
    with open(path) as file:
        lines = file.read().splitlines()
    head = dict(re.findall(r"(\w+)=(\S+)", lines[0]))
    names = lines[1].split()[1:]
    rows = [line.split() for line in lines[2:] if not line.startswith("#")]
    phases = {row[0]: dict(zip(names, map(float, row[1:]))) for row in rows}
    memory = [line.split() for line in lines if line.startswith("#memory")]
    return head, phases, memory


class Columns(runs.Case):
    def check_columns(self, directory):
        """history.h5 has the columns of history.txt, value for value, units and docs."""
        (segment,) = self.history(directory)
        file_name = self.path(directory, "diag", "history.1.h5")
        with h5py.File(file_name, "r", swmr=True) as file:
            columns = {n: c for n, c in file.items() if isinstance(c, h5py.Dataset)}
            self.assertEqual(sorted(columns), sorted(segment.names[1:]))
            n = len(file["step"])
            self.assertGreater(n, 0)
            self.assertLessEqual(n, len(segment.rows))
            for name, column in columns.items():
                self.assertTrue(column.attrs["unit"] and column.attrs["doc"], name)
                text = segment.values(name)[:n]
                np.testing.assert_array_equal(column[:n], text, name)
            layers = file.attrs["layers"]
            for name, column in file["layer"].items():
                self.assertEqual(column.shape[1:], (layers,), name)
                self.assertFalse(np.isnan(column[:n]).any(), name)
            self.assertEqual(dict(file.attrs.items())["ranks"], 1)
            evals = dict(zip(file["eval/step"][()], file["eval/loss"][()]))
        for step, loss in evals.items():
            self.assertEqual(float(segment.evals[step]), loss)
        return n


class Live(Columns):
    def begin(self, name, *words, ranks=1):
        return self.start(name, *WORDS, *words, "job/steps=100000", ranks=ranks)

    def test_readable_while_it_goes_on_and_after_kill(self):
        job = self.begin("live")
        job.until_step(12)
        end = time.monotonic() + 60
        while True:  # rows reach the file about once a second
            run = read(job)
            if len(run.columns["step"]) >= 12 or time.monotonic() > end:
                break
            time.sleep(0.1)
        self.assertEqual(run.notes, [])
        steps = run.columns["step"]
        np.testing.assert_array_equal(steps, np.arange(1, len(steps) + 1))
        self.assertEqual(run.deck["model/hidden"], 32)
        first, load = run.experts(bins=None)
        self.assertEqual(load.shape[1:], (3, 8))
        self.assertTrue((load.sum(axis=2) == runs.TOKENS * 2).all())
        self.assertGreaterEqual(len(first), 12)
        job.until_step(int(steps[-1]) + 30)
        job.kill()
        job.wait()
        after = read(job)
        self.assertEqual(after.notes, [])
        n = len(steps)
        self.assertGreaterEqual(len(after.columns["step"]), n)
        for name, column in run.columns.items():
            np.testing.assert_array_equal(after.columns[name][:n], column, name)
        self.check_columns("live")

    def test_next_start_makes_a_killed_file_plain(self):
        saves = f"checkpoint/every_tokens={2 * runs.TOKENS}"
        job = self.begin("marked", saves)
        job.until_event("checkpoint")
        job.kill()
        job.wait()
        path = self.path("marked", "diag", "history.1.h5")
        with self.assertRaises(OSError):
            h5py.File(path, "r")
        self.capstan("marked", *WORDS, "-r", "latest", "job/steps=1", code=0)
        with h5py.File(path, "r") as file:
            self.assertIn("loss", file)


class Finished(Columns):
    def test_text_and_hdf5_agree(self):
        self.capstan("run", *WORDS, "job/steps=25", code=0)
        self.assertEqual(self.check_columns("run"), 25)
        (segment,) = self.history("run")
        self.assertEqual(list(segment.evals), [10, 20])
        parts = ("embed", "attn", "router", "latent", "experts", "shared", "norms")
        parts += ("head",)
        for stem in ("grad_norm", "param_norm"):
            whole = sum(segment.values(f"{stem}_{part}") ** 2 for part in parts) ** 0.5
            self.assert_close(whole, segment.values(stem), 1e-12, stem)
        phases = [name for name in segment.names if name.startswith("seconds_")]
        whole = sum(segment.values(name) for name in phases)
        self.assert_close(whole, segment.values("step_seconds"), 1e-9, "step_seconds")
        bytes_now = segment.values("memory_peak_mib") * 2**20
        self.assertGreater(bytes_now.min(), 8 * 4 * 30_000)  # masters, moments, gradients
        total = segment.values("loss") + segment.values("z_loss")
        self.assert_close(total, segment.values("loss_total"), 1e-12, "loss_total")

    def test_margins_are_those_of_the_dump(self):
        words = ["job/steps=4", "job/dump_step=4", "moe/balance=qb"]
        self.capstan("margins", *words, code=0)
        history = self.history("margins")[0]
        lows, highs = [], []
        with h5py.File(self.path("margins/diag/dump.4.h5"), "r") as file:
            for layer in file["router"]:
                logits = file[f"router/{layer}/logits"][:]
                k = file[f"router/{layer}/experts"].shape[1]
                biased = logits + file[f"params/{layer}/moe/router_bias"][:]
                next_best = np.sort(biased, axis=1)[:, -1 - k]
                counted = file["batch/segments"][:].reshape(-1) >= 0
                margins = (logits - next_best[:, None])[counted]
                lows.append(margins.min())
                highs.append(margins.max())
        for name, value in (("min", min(lows)), ("max", max(highs))):
            logged = history.values(f"router_margin_{name}")[3]
            self.assert_close(logged, value, 1e-9, name)

    def test_timing_adds_up(self):
        for ranks, words in ((1, []), (2, ["grid/expert=2"])):
            name = f"timed{ranks}"
            saves = f"checkpoint/every_tokens={15 * runs.TOKENS}"
            self.capstan(name, *WORDS, saves, *words, "job/steps=40", ranks=ranks, code=0)
            head, phases, memory = timing(self.path(name, "timing.txt"))
            self.assertEqual((head["steps"], head["ranks"]), ("39", str(ranks)))
            total = phases.pop("total")["seconds_mean"]
            self.assertAlmostEqual(total, float(head["wall_seconds"]), delta=0.02 * total)
            parts = sum(phase["seconds_mean"] for phase in phases.values())
            self.assertAlmostEqual(parts, total, delta=0.02 * total)
            self.assertLess(abs(phases["unaccounted"]["seconds_mean"]), 0.15 * total)
            for phase in ("attention_core", "experts_gemm", "optimizer", "checkpoint",
                          "eval", "diagnostics", "data", "exchange"):
                if phase != "exchange" or ranks > 1:
                    self.assertGreater(phases[phase]["calls"], 0, phase)
            self.assertGreater(phases["experts_gemm"]["gflop"], 0)
            for phase in phases.values():
                ordered = [phase[f"seconds_{n}"] for n in ("min", "mean", "max")]
                self.assertEqual(ordered, sorted(ordered))
            self.check_memory(name, memory)

    def check_memory(self, name, memory):
        """The ledger's names at the peak add up to it, and the history has the peak."""
        peak = float(dict(re.findall(r"(\w+)=(\S+)", " ".join(memory[0])))["peak_mib"])
        named = {line[1]: float(line[2]) for line in memory[1:]}
        self.assertAlmostEqual(sum(named.values()), peak, delta=0.02 * peak + 0.2)
        for part in ("masters", "moments", "gradients", "attention"):
            self.assertGreater(named[part], 0, part)
        (segment,) = self.history(name)
        self.assertAlmostEqual(segment.values("memory_peak_mib")[-1], peak, delta=1)


if __name__ == "__main__":
    unittest.main()
