#!/usr/bin/python3
"""The same deck on several grids, cut into micro-batches, recomputed: one training.

In double every figure agrees to 1e-9; in float losses agree to 1e-4, and the assignments
that went to another expert are counted.
"""
import unittest

import runs
import h5py
import numpy as np

GRIDS = {"1x2": (1, 2), "2x1": (2, 1), "2x2": (2, 2), "1x4": (1, 4)}  # data x expert
STEPS, DUMP = 50, 45
ROUTER = ("assignments", "routing_entropy", "load_balancing_loss", "router_z_loss")
ROUTER += ("load_max_over_mean", "router_bias_min", "router_bias_max", "drop_fraction")
SOURCES = ["data/files=corpus,short", "data/weights=3,1"]  # short: padding in every step


def router_experts(dump):
    """[layers, tokens, top_k], each row sorted."""
    with h5py.File(dump) as file:
        layers = [file["router"][name]["experts"][()] for name in sorted(file["router"])]
    return np.sort(np.stack(layers), axis=-1)


def moved(dump, other):
    """(assignments whose expert differs, all)."""
    one, two = router_experts(dump), router_experts(other)
    same = (one[..., :, None] == two[..., None, :]).any(-1).sum()
    return one.size - int(same), one.size


def loads(directory):
    with h5py.File(f"{directory}/diag/experts.1.h5", "r", swmr=True) as file:
        return file["load"][()]


class Grids(runs.Case):
    """50 steps with evaluations and a dump; the first run is the one of one rank."""

    def train(self, name, *words, grid=(1, 1)):
        words = (f"job/steps={STEPS}", f"job/dump_step={DUMP}", *words)
        words += ("eval/every_tokens=5120", "diagnostics/experts_every=1")
        words += (f"grid/data={grid[0]}", f"grid/expert={grid[1]}")
        self.capstan(name, *words, ranks=grid[0] * grid[1], code=0)
        (segment,) = self.history(name)
        self.assertEqual(list(segment.rows), list(range(1, STEPS + 1)))
        return segment

    def compare(self, one, other, tolerance, what):
        for column in ("loss", "loss_total", "z_loss", "grad_norm", "param_norm"):
            values = one.values(column), other.values(column)
            self.assert_close(*values, tolerance, f"{what}: {column}")
        evals = [[float(x) for x in part.evals.values()] for part in (one, other)]
        self.assertEqual(list(one.evals), [20, 40, 50])
        self.assert_close(*evals, tolerance, f"{what}: held-out loss")
        self.assertTrue((one.values("tokens") == other.values("tokens")).all())

    def compare_dumps(self, one, other):
        """Batch to the bit, every parameter and gradient by its largest element."""
        paths = [self.path(name, "diag", f"dump.{DUMP}.h5") for name in (one, other)]
        with h5py.File(paths[0]) as mine, h5py.File(paths[1]) as single:
            for name in single["batch"]:
                equal = np.array_equal(mine["batch"][name], single["batch"][name])
                self.assertTrue(equal, f"{one}: batch/{name}")
            names = []
            single["grads"].visititems(
                lambda name, item: names.append(name) if hasattr(item, "shape") else None
            )
            self.assertGreater(len(names), 30)
            for group in ("params", "grads"):
                for name in names:
                    values, wanted = mine[group][name][()], single[group][name][()]
                    error = np.abs(values - wanted).max() / np.abs(wanted).max()
                    self.assertLess(error, 1e-9, f"{one}: {group}/{name}")

    def test_double(self):
        single = self.train("d_1x1")
        self.assertLess(single.values("loss")[-1], single.values("loss")[0] - 2)
        cases = {name: ([], grid) for name, grid in GRIDS.items()}
        cases["1x1_micro_4"] = (["grid/micro_batches=4"], (1, 1))
        cases["1x2_micro_2"] = (["grid/micro_batches=2"], (1, 2))
        for name, (words, grid) in cases.items():
            with self.subTest(grid=name):
                segment = self.train("d_" + name, *words, grid=grid)
                self.compare(segment, single, 1e-9, name)
                for column in ROUTER:
                    pair = segment.values(column), single.values(column)
                    self.assert_close(pair[0] + 1, pair[1] + 1, 1e-9, f"{name}: {column}")
                self.compare_dumps("d_" + name, "d_1x1")
                equal = loads(self.path("d_" + name)) == loads(self.path("d_1x1"))
                self.assertTrue(equal.all(), f"{name}: loads of experts")

    def test_float(self):
        single = self.train("f_1x1", "model/scalar=float")
        for name, grid in GRIDS.items():
            with self.subTest(grid=name):
                segment = self.train("f_" + name, "model/scalar=float", grid=grid)
                dumps = [self.path(f"f_{n}", "diag", f"dump.{DUMP}.h5")
                         for n in (name, "1x1")]
                n, total = moved(*dumps)
                print(f"float, {name}: {n} of {total} assignments of step {DUMP} flipped")
                self.compare(segment, single, 1e-4, name)
                self.assertLess(n, 0.01 * total)


class Uneven(runs.Case):
    """Ranks with different numbers of counted tokens: the loss is the token mean."""

    def test_uneven_masks(self):
        rng = np.random.default_rng(7)
        documents = [rng.integers(0, 256, n) for n in (5, 9, 3, 4)]
        runs.write_tokens(self.path("short"), documents)
        words = [*SOURCES, "job/steps=12", "job/dump_step=1", "data/valid_fraction=0"]
        words += ["eval/at_end=false"]
        columns = ("loss", "loss_total", "grad_norm", "padding_skipped", "assignments")
        self.capstan("1x1", *words, code=0)
        (single,) = self.history("1x1")
        self.assertGreater(single.values("padding_skipped").min(), 0.05)
        with h5py.File(self.path("1x1", "diag", "dump.1.h5")) as file:
            counted = (file["batch/targets"][()] >= 0).sum(axis=1)
            tokens = file["loss"].attrs["tokens"]
        self.assertGreater(len(set(counted.reshape(4, -1).sum(axis=1))), 1)
        self.assertEqual(tokens, counted.sum())
        for name, grid in GRIDS.items():
            grid_words = [f"grid/data={grid[0]}", f"grid/expert={grid[1]}"]
            self.capstan(name, *words, *grid_words, ranks=grid[0] * grid[1], code=0)
            (segment,) = self.history(name)
            for column in columns:
                pair = segment.values(column), single.values(column)
                self.assert_close(*pair, 1e-9, f"{name}: {column}")


class SameBits(runs.Case):
    """What may not change a single bit."""

    def twins(self, name, other, first, second, ranks=1):
        self.capstan(name, *first, ranks=ranks, code=0)
        self.capstan(other, *second, ranks=ranks, code=0)
        pair = [self.history(n)[0].stable() for n in (name, other)]
        self.assertEqual(*pair)
        self.assertEqual(self.last_hash(name), self.last_hash(other))

    def test_recompute(self):
        words = ["job/steps=12", "grid/micro_batches=2"]
        for way in ("moe", "full"):
            self.twins("none_" + way, way, words, [*words, "model/recompute=" + way])

    def test_evaluation_leaves_training_alone(self):
        words = ["job/steps=12", "grid/expert=2"]
        self.twins("rare", "often", words, [*words, "eval/every_tokens=256"], ranks=2)
        evals = [len(self.history(name)[0].evals) for name in ("rare", "often")]
        self.assertEqual(evals, [1, 12])

    def test_run_twice(self):
        words = ["job/steps=12", "grid/data=2", "model/scalar=float"]
        self.twins("once", "again", words, words, ranks=2)


class Experts(runs.Case):
    def test_an_expert_changes_when_it_gets_tokens(self):
        words = ["job/steps=2", "moe/experts=64", "batch/sequences=2", "grid/expert=2"]
        words += ["optimizer/weight_decay=0", "eval/at_end=false"]
        for step in (1, 2):
            dump = f"job/dump_step={step}"
            self.capstan(f"dump_{step}", *words, dump, ranks=2, code=0)
        paths = [self.path(f"dump_{step}", "diag", f"dump.{step}.h5") for step in (1, 2)]
        routed = router_experts(paths[0])
        seen = set()
        with h5py.File(paths[0]) as file:
            counted = file["batch/targets"][()].reshape(-1) >= 0
        with h5py.File(paths[0]) as before, h5py.File(paths[1]) as after:
            for layer, experts in enumerate(routed):
                used = np.isin(np.arange(64), experts)
                # A token that predicts nothing need not have a gradient.
                needed = np.isin(np.arange(64), experts[counted])
                seen |= set(needed)
                for name in ("w_gate", "w_up", "w_down"):
                    path = f"params/layer_{layer:03d}/moe/{name}"
                    changed = (before[path][()] != after[path][()]).any(axis=(1, 2))
                    self.assertTrue(changed[needed].all(), path)
                    self.assertFalse(changed[~used].any(), path)
                    initial = before[path][()].reshape(64, -1)
                    self.assertEqual(len(np.unique(initial, axis=0)), 64, path)
        self.assertEqual(seen, {True, False})

    def test_schedule_counts_tokens(self):
        words = ["schedule/tokens=5000", "schedule/warmup_fraction=0.2"]
        self.capstan("schedule", *words, "schedule/final_fraction=0.1", code=0)
        (segment,) = self.history("schedule")
        # ceil(5000 / 256) steps; job/steps of the deck is 4, and wins where it is given.
        self.assertEqual(list(segment.rows), [1, 2, 3, 4])
        words += ["schedule/final_fraction=0.1", "job/steps=0"]
        self.capstan("whole", *words, code=0)
        (segment,) = self.history("whole")
        tokens = np.minimum(np.arange(1, 21) * runs.TOKENS, 5000)
        warm = tokens / 1000
        decay = 1 - 0.9 * (tokens - 1000) / 4000
        wanted = 3e-3 * np.where(tokens < 1000, warm, decay)
        self.assert_close(segment.values("lr"), wanted, 1e-12, "lr")


if __name__ == "__main__":
    unittest.main()
