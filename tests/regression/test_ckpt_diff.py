#!/usr/bin/python3
"""ckpt_diff.py on checkpoints with known differences, of one to eight shards."""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import fake_run
import h5py
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPT = os.path.join(HERE, "..", "..", "postprocess", "ckpt_diff.py")
sys.path.insert(0, os.path.dirname(SCRIPT))
import ckpt_diff  # noqa: E402
import ckpt_ls  # noqa: E402

TABLE, MOMENT = "params/embed/table", "optimizer/first/embed/table"


class Pairs(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="capstan_diff_")
        self.addCleanup(shutil.rmtree, self.folder)
        self.write("a", 2)

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def shard(self, name, number):
        return h5py.File(self.path(name, f"shard_{number:05d}.h5"), "r+")

    def write(self, name, shards):
        """The same values, row r being 10 r, 10 r + 1, 10 r + 2."""
        fake_run.write_checkpoint(self.path(name), shards)
        rows = 8 // shards
        for shard in range(shards):
            with self.shard(name, shard) as file:
                first = np.arange(rows)[:, None] + shard * rows
                for tensor in (TABLE, MOMENT):
                    file[f"rank_{shard:05d}/{tensor}"][:] = 10 * first + np.arange(3)

    def change(self, name, shard, tensor, place, value):
        with self.shard(name, shard) as file:
            file[f"rank_{shard:05d}/{tensor}"][place] = value

    def diff(self, *words, code):
        paths = [self.path("a"), self.path("b")]
        command = [sys.executable, SCRIPT, *paths, *words]
        done = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout, done.stderr

    def test_the_same_on_other_grids(self):
        for shards in (1, 2, 4, 8):
            self.write("b", shards)
            out, _ = self.diff("--all", code=0)
            self.assertEqual(out, "2 tensors in both, 0 differences\n")
            shutil.rmtree(self.path("b"))

    def test_greatest_differences(self):
        self.write("b", 4)
        self.change("b", 1, TABLE, (1, 2), 40)  # row 3: 32 in a
        self.change("b", 3, TABLE, (0, 0), 61)  # row 6: 60 in a
        self.change("b", 0, TABLE, (0, 1), 4)  # row 0: 1 in a
        out, _ = self.diff(code=1)
        line, last = out.splitlines()
        expected = [TABLE, "abs", "8.000e+00", "rel", "7.500e-01", "3", "of", "24"]
        self.assertEqual(line.split(), expected)
        self.assertEqual(last, "1 tensors in both, 1 differences")

    def test_the_size_of_blocks_does_not_matter(self):
        """Blocks of 1, 3 and 8 rows of 12 bytes, over pieces of 4 and of 2 rows."""
        self.write("b", 4)
        self.change("b", 1, TABLE, (1, 2), 40)
        self.change("b", 3, TABLE, (0, 0), 61)
        folders = self.path("a"), self.path("b")
        one, other = (ckpt_diff.Rows(ckpt_ls.Checkpoint(f)) for f in folders)
        most = []
        for rows in (1, 3, 8):
            with mock.patch.object(ckpt_diff, "BLOCK", 12 * rows), mock.patch.object(
                one, "read", wraps=one.read
            ) as read:
                found = ckpt_diff.compare(TABLE, one, other)
            self.assertEqual(found, (2, 8.0, 8 / 40))
            most.append(max(call.args[2] - call.args[1] for call in read.mock_calls))
        self.assertEqual(most, [1, 3, 8])
        one.close()
        other.close()

    def test_moments_on_request(self):
        self.write("b", 4)
        self.change("b", 2, MOMENT, (1, 1), 0)  # row 5: 51 in a
        self.diff(code=0)
        out, _ = self.diff("--all", code=1)
        self.assertRegex(out, f"{MOMENT} +abs 5.100e\\+01  rel 1.000e\\+00  1 of 24")

    def test_not_a_number(self):
        self.write("b", 4)
        self.change("b", 0, TABLE, (0, 0), np.nan)
        out, _ = self.diff(code=1)
        self.assertIn("abs inf  rel inf  1 of 24", out)
        self.change("a", 0, TABLE, (0, 0), np.nan)
        self.diff(code=0)
        self.change("a", 0, TABLE, (0, 0), np.inf)
        self.change("b", 0, TABLE, (0, 0), np.inf)
        self.diff(code=0)

    def test_names_and_shapes(self):
        self.write("b", 1)
        with h5py.File(self.path("b", "meta.h5"), "r+") as meta:
            meta["pieces/names"][0] = b"params/other"
            meta.move(TABLE, "params/other")
        with self.shard("b", 0) as file:
            file.move(f"rank_00000/{TABLE}", "rank_00000/params/other")
            del file[f"rank_00000/{MOMENT}"]
            file[f"rank_00000/{MOMENT}"] = np.zeros((8, 2), "f4")
        with h5py.File(self.path("b", "meta.h5"), "r+") as meta:
            del meta[MOMENT]
            meta[MOMENT] = np.zeros((8, 2), "f4")
        out, _ = self.diff("--all", code=1)
        self.assertIn(f"only in A: {TABLE}\nonly in B: params/other\n", out)
        self.assertIn(f"shape: {MOMENT} is [8, 3] in A, [8, 2] in B", out)

    def test_damage_is_refused_with_all_of_it(self):
        self.write("b", 4)
        os.unlink(self.path("b", "shard_00002.h5"))
        os.unlink(self.path("a", "shard_00001.h5"))
        _, problems = self.diff(code=4)
        self.assertIn("b/shard_00002.h5", problems)
        self.assertIn("a/shard_00001.h5", problems)
        os.unlink(self.path("b", "meta.h5"))
        self.assertIn("meta.h5", self.diff(code=4)[1])


if __name__ == "__main__":
    unittest.main()
