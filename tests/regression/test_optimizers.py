#!/usr/bin/python3
"""The published optimizer groups in whole runs: exact restarts, any grid, kept norms,
jumps of the learning rate at a restart, a decay that is re-aimed."""
import glob
import shutil
import unittest

import h5py
import numpy as np
import runs

DECK = 2  # exit code
STEPS = 400  # of the schedule; runs make a few of them
GROUPS = [
    *runs.PUBLISHED_GROUPS,
    f"schedule/tokens={STEPS * runs.TOKENS}",
    "eval/at_end=false",
]


class Muonh(runs.Case):
    def run_to(self, directory, step, *words, **more):
        return self.capstan(directory, *GROUPS, f"job/steps={step}", *words, **more)

    def copy(self, name, of="first"):
        shutil.copytree(self.path(of), self.path(name))
        return name

    def state(self, directory, step):
        """Every stored number of a checkpoint, whole tensors by name."""
        found = {}
        with h5py.File(self.path(directory, "ckpt", f"step_{step:08d}", "meta.h5")) as f:
            f.visititems(
                lambda name, item: found.update({name: item[()]})
                if isinstance(item, h5py.Dataset)
                else None
            )
        return found

    def test_restart_grids_and_norms(self):
        self.run_to("whole", 12, code=0)
        self.run_to("first", 6, code=0)
        self.run_to(self.copy("same"), 12, "-r", "latest", code=0)
        whole, same = self.state("whole", 12), self.state("same", 12)
        radii = [name for name in whole if "optimizer/radius/" in name]
        self.assertGreater(len(radii), 20)
        self.assertEqual(set(whole), set(same))
        for name in whole:
            if name.startswith(("params/", "optimizer/")):
                np.testing.assert_array_equal(whole[name], same[name], err_msg=name)
        for name in radii:
            tensor = whole["params/" + name.partition("optimizer/radius/")[2]]
            matrices = tensor[None] if len(whole[name]) == 1 else tensor
            for kept, matrix in zip(whole[name], matrices):
                self.assertLess(abs(np.linalg.norm(matrix) / kept - 1), 1e-9, name)
        grid = ["grid/data=1", "grid/expert=2"]
        self.run_to(self.copy("two"), 12, "-r", "latest", *grid, ranks=2, code=0)
        two = self.state("two", 12)
        for name in whole:
            if name.startswith("params/"):
                error = np.abs(two[name] - whole[name]).max()
                self.assertLess(error, 1e-9, name)
        self.assertTrue(glob.glob(self.path("two", "history.txt")))

    def test_a_jump_of_the_rate_stops_a_restart(self):
        self.run_to("begun", 20, code=0)
        longer = ["-r", "latest", f"schedule/tokens={4 * STEPS * runs.TOKENS}"]
        done = self.run_to(self.copy("longer", "begun"), 24, *longer, code=DECK)
        self.assert_says(done, "next learning rate would jump", "<group1>", "allow_jump")
        self.assertEqual(runs.last_step(self.path("longer")), 20)
        done = self.run_to("longer", 24, *longer, "schedule/allow_jump=true", code=0)
        self.assert_says(done, "the next learning rate jumps")
        same = ["-r", "latest", "group1/lr=0.01301"]
        self.run_to(self.copy("little", "begun"), 24, *same, code=0)

    def test_a_shorter_run_is_reaimed_without_a_jump(self):
        self.run_to("planned", 20, code=0)
        shorter = [
            f"schedule/tokens={300 * runs.TOKENS}",
            f"schedule/planned_tokens={STEPS * runs.TOKENS}",
            f"schedule/reaim_from_tokens={20 * runs.TOKENS}",
        ]
        self.run_to(self.copy("aimed", "planned"), 300, "-r", "latest", *shorter, code=0)
        before = self.history("planned")[0].values("lr")
        after = self.history("aimed")[1].values("lr")
        self.assertLess(abs(after[0] / before[-1] - 1), 0.01)
        self.assertAlmostEqual(after[-1] / 3e-3, 0.05, places=9)
        steps = np.diff(after)
        self.assertLess(np.abs(steps / steps.mean() - 1).max(), 1e-6)


if __name__ == "__main__":
    unittest.main()
