#!/usr/bin/python3
"""Sharded masters and moments in whole runs: the bits of replicated ones, restarts on any
grid with either, dumps of whole gradients, and every rank writes what it owns."""
import glob
import shutil
import unittest

import h5py
import numpy as np
import runs

KEYS = [
    *runs.PUBLISHED_GROUPS,
    f"schedule/tokens={100 * runs.TOKENS}",
    "checkpoint/check_replicas=true",
    "eval/at_end=false",
]


class Sharded(runs.Case):
    def train(self, name, place, grid, steps, *more):
        words = [*KEYS, f"memory/optimizer={place}", f"job/steps={steps}", *more]
        words += [f"grid/data={grid[0]}", f"grid/expert={grid[1]}"]
        self.capstan(name, *words, ranks=grid[0] * grid[1], code=0)

    def copy(self, name, of):
        shutil.copytree(self.path(of), self.path(name))
        return name

    def stored(self, *path):
        """Every array of an HDF5 file, by name."""
        found = {}
        with h5py.File(self.path(*path)) as file:
            file.visititems(
                lambda name, item: found.update({name: item[()]})
                if isinstance(item, h5py.Dataset)
                else None
            )
        return found

    def state(self, name, step):
        found = self.stored(name, "ckpt", f"step_{step:08d}", "meta.h5")
        kept = {n: x for n, x in found.items() if n.startswith(("params/", "optimizer/"))}
        self.assertGreater(len(kept), 150)
        return kept

    def assert_same(self, one, other):
        self.assertEqual(set(one), set(other))
        for name in one:
            np.testing.assert_array_equal(one[name], other[name], err_msg=name)

    def test_bits_and_restarts(self):
        self.train("r", "replicated", (2, 2), 8, "job/dump_step=3")
        self.train("s", "sharded", (2, 2), 8, "job/dump_step=3")
        whole = self.state("r", 8)
        self.assert_same(self.state("s", 8), whole)
        self.assert_same(self.stored("s", "diag", "dump.3.h5"),
                         self.stored("r", "diag", "dump.3.h5"))
        (r,), (s,) = self.history("r"), self.history("s")
        for column in ("loss", "grad_norm", "param_norm"):
            self.assert_close(s.values(column), r.values(column), 1e-12, column)
        self.train("half", "sharded", (2, 2), 4)
        again = [("sharded", (2, 2)), ("replicated", (2, 2)), ("replicated", (1, 1)),
                 ("sharded", (4, 1)), ("sharded", (1, 2))]
        for place, grid in again:
            name = self.copy(f"{place}_{grid[0]}x{grid[1]}", "half")
            with self.subTest(restart=name):
                self.train(name, place, grid, 8, "-r", "latest")
                state = self.state(name, 8)
                if grid == (2, 2):
                    self.assert_same(state, whole)
                for tensor in whole:
                    error = np.abs(state[tensor] - whole[tensor]).max()
                    scale = np.abs(whole[tensor]).max() + 1e-3
                    self.assertLess(error, 1e-8 * scale, f"{name}: {tensor}")

    def test_every_rank_writes_what_it_owns(self):
        self.train("w", "sharded", (2, 2), 1)
        sizes = []
        for path in glob.glob(self.path("w", "ckpt", "step_00000001", "*.h5")):
            if path.endswith("meta.h5"):
                continue
            with h5py.File(path) as file:
                numbers = []
                file.visititems(lambda _, x: numbers.append(getattr(x, "size", 0)))
            sizes.append(sum(numbers))
        self.assertEqual(len(sizes), 4)
        total = sum(x.size for x in self.state("w", 1).values())
        self.assertEqual(sum(sizes), total)
        self.assertLess(max(sizes), 1.5 * total / 4)


if __name__ == "__main__":
    unittest.main()
