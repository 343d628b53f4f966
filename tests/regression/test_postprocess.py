#!/usr/bin/python3
"""The reader module and the plots, on run directories that the fixture writes."""
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
POSTPROCESS = os.path.join(HERE, "..", "..", "postprocess")
FAKE_RUN = os.path.join(HERE, "fake_run.py")
sys.path[:0] = [HERE, POSTPROCESS]
sys.dont_write_bytecode = True

import h5py  # noqa: E402
import numpy as np  # noqa: E402

import capstan_run  # noqa: E402
import fake_run  # noqa: E402
import hdf5_snapshot  # noqa: E402


def truncate(path, share):
    os.truncate(path, int(os.path.getsize(path) * share))


def digest(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


class Directory(unittest.TestCase):
    def setUp(self):
        self.path = tempfile.mkdtemp(prefix="capstan_postprocess_")
        self.addCleanup(shutil.rmtree, self.path)

    def file(self, name):
        return os.path.join(self.path, name)


class TwoSegments(Directory):
    """Segment 1 ran to step 35, segment 2 started from its checkpoint at 30."""

    def setUp(self):
        super().setUp()
        fake_run.write_segment(self.path, 1, 0, 35)
        fake_run.write_segment(self.path, 2, 30, 25, lr=0.002)

    def check_merged(self, run):
        np.testing.assert_array_equal(run.columns["step"], np.arange(1, 56))
        self.assertEqual(run.columns["tokens"].dtype, np.int64)
        np.testing.assert_array_equal(run.columns["tokens"], np.arange(1, 56) * 1024)
        parts = [segment.columns["loss"] for segment in run.segments]
        merged = np.concatenate([parts[0][:30], parts[1]])
        np.testing.assert_array_equal(run.columns["loss"], merged)
        self.assertEqual([restart.step for restart in run.restarts], [30])
        np.testing.assert_array_equal(run.evals["step"], [25, 50])
        events = [(event.step, event.kind, event.text) for event in run.events]
        first, second = (0, "start", "segment 1"), (30, "restart", "segment 2")
        saved = (50, "checkpoint", "ckpt/step_00000050")
        self.assertEqual(events, [first, second, saved])

    def test_later_segment_replaces_rows_after_its_start(self):
        run = capstan_run.Run(self.path)
        self.check_merged(run)
        self.assertEqual(run.notes, [])
        self.assertEqual(len(run.segments[0].columns["step"]), 35)
        self.assertEqual(run.units["loss"], "nats")
        self.assertEqual(run.layer["entropy"].shape, (55, fake_run.LAYERS))

    def test_deck_and_what_changed_at_the_restart(self):
        run = capstan_run.Run(self.path)
        self.assertEqual(run.deck["model/hidden"], 64)
        self.assertEqual(run.deck["optimizer/betas"], [0.9, 0.95])
        self.assertEqual(run.name, "fake")
        change = capstan_run.Change("optimizer/lr", 0.003, 0.002)
        self.assertEqual(run.restarts[0].changes, [change])

    def test_load_of_experts(self):
        run = capstan_run.Run(self.path)
        steps, load = run.experts(bins=None)
        np.testing.assert_array_equal(steps, np.arange(1, 56))
        expected = fake_run.TOKENS * fake_run.TOP_K
        np.testing.assert_array_equal(load.sum(axis=2), expected)
        steps, means = run.experts(bins=5)
        np.testing.assert_array_equal(steps, [6, 12, 18, 24, 30, 35, 40, 45, 50, 55])
        np.testing.assert_allclose(means[0], load[:6].mean(axis=0))

    def test_text_alone_gives_the_same_bits(self):
        full = capstan_run.Run(self.path)
        shutil.rmtree(self.file("diag"))
        text = capstan_run.Run(self.path)
        self.check_merged(text)
        for name, values in full.columns.items():
            np.testing.assert_array_equal(text.columns[name], values, name)
        self.assertEqual(len(text.notes), 2)
        self.assertEqual(text.deck["optimizer/lr"], 0.002)

    def test_truncated_file_is_read_from_text(self):
        for share in (0.9, 0.5, 0.01, 0.0):
            truncate(self.file("diag/history.1.h5"), share)
            run = capstan_run.Run(self.path)
            self.check_merged(run)
            self.assertIn("history.1.h5", run.notes[0])
            self.assertIn("segment 1 read from history.txt.", run.notes)

    def test_rows_that_a_killed_run_did_not_flush_are_read_from_text(self):
        full = capstan_run.Run(self.path).columns
        with h5py.File(self.file("diag/history.1.h5"), "r+") as file:
            items = [*file.values(), *file["layer"].values()]
            for item in items:
                if isinstance(item, h5py.Dataset):
                    item.resize(7, axis=0)
            for item in file["eval"].values():
                item.resize(0, axis=0)
        run = capstan_run.Run(self.path)
        self.assertEqual(run.notes, ["segment 1 ends with rows of history.txt."])
        self.check_merged(run)
        for name, values in full.items():
            np.testing.assert_array_equal(run.columns[name], values, name)

    def test_incomplete_last_line_is_left_out(self):
        shutil.rmtree(self.file("diag"))
        for cut in (1, 9, 300):
            path = self.file("history.txt")
            os.truncate(path, os.path.getsize(path) - cut)
            self.assertEqual(capstan_run.Run(self.path).columns["step"][-1], 54)

    def test_nothing_to_read_is_an_error(self):
        truncate(self.file("diag/history.1.h5"), 0.5)
        truncate(self.file("diag/history.2.h5"), 0.5)
        os.remove(self.file("history.txt"))
        with self.assertRaisesRegex(capstan_run.RunError, "truncated"):
            capstan_run.Run(self.path)
        with self.assertRaises(capstan_run.RunError):
            capstan_run.Run(self.file("missing"))


class Live(Directory):
    def start(self, *arguments):
        command = [sys.executable, FAKE_RUN, self.path, *arguments]
        writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.addCleanup(writer.stdout.close)
        self.addCleanup(writer.wait)
        self.addCleanup(writer.kill)
        return writer

    def test_reads_while_another_process_appends(self):
        writer = self.start("1", "0", "300", "0.002")
        seen = []
        for _ in range(6):
            for _ in range(25):
                printed = int(writer.stdout.readline())
            run = capstan_run.Run(self.path)
            self.assertEqual(run.notes, [])
            steps = run.columns["step"]
            np.testing.assert_array_equal(steps, np.arange(1, len(steps) + 1))
            self.assertTrue(np.isfinite(run.columns["loss"]).all())
            self.assertGreaterEqual(len(steps), printed)
            self.assertGreaterEqual(len(run.experts(bins=None)[0]), printed)
            seen.append(len(steps))
        self.assertEqual(seen, sorted(set(seen)))
        self.assertIsNone(writer.poll(), "the writer had ended: nothing was read live")

    def test_reads_after_a_kill(self):
        writer = self.start("1", "0", "40", "0", "kill")
        writer.stdout.read()
        self.assertEqual(writer.wait(), -signal.SIGKILL)
        path = self.file("diag/history.1.h5")
        with open(path, "rb") as file:
            self.assertNotEqual(file.read(12)[11], 0, "the file carries no SWMR mark")
        run = capstan_run.Run(self.path)
        self.assertEqual(run.notes, [])
        np.testing.assert_array_equal(run.columns["step"], np.arange(1, 41))
        before = digest(path)
        hdf5_snapshot.read(path, lambda file: file["loss"][:])
        self.assertEqual(digest(path), before)


class Checkpoints(Directory):
    def setUp(self):
        super().setUp()
        self.folder = self.file("ckpt/step_00000300")
        fake_run.write_checkpoint(self.folder)

    def list(self, *arguments):
        script = os.path.join(POSTPROCESS, "ckpt_ls.py")
        command = [sys.executable, script, *arguments]
        return subprocess.run(command, capture_output=True, text=True)

    def test_intact(self):
        for path in (self.folder, self.file("ckpt")):
            result = self.list(path, "params/*")
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            self.assertRegex(result.stdout, r"params/embed/table +float32 +\[8, 3\]")
            self.assertRegex(result.stdout, "step: +300")
            self.assertNotIn("optimizer/", result.stdout)

    def check_problems(self, *words):
        result = self.list(self.folder)
        self.assertEqual(result.returncode, 4)
        for word in words:
            self.assertIn(word, result.stderr)

    def test_missing_and_foreign_shards_are_all_listed(self):
        os.remove(os.path.join(self.folder, "shard_00000.h5"))
        with h5py.File(os.path.join(self.folder, "shard_00001.h5"), "r+") as file:
            file.attrs["save_id"] = np.uint64(78)
            del file["rank_00001/params"]
        missing = "no rank_00001/params/embed/table"
        self.check_problems("shard_00000.h5", "from another save", missing)

    def test_truncated_files(self):
        truncate(os.path.join(self.folder, "shard_00001.h5"), 0.5)
        self.check_problems("shard_00001.h5")
        truncate(os.path.join(self.folder, "meta.h5"), 0.5)
        self.check_problems("meta.h5")

    def test_gap_between_pieces(self):
        with h5py.File(os.path.join(self.folder, "meta.h5"), "r+") as file:
            file["pieces/row0"][1] = 5
        self.check_problems("params/embed/table: its pieces do not cover [8, 3] once")


class Plots(Directory):
    def plot(self, *arguments):
        script = os.path.join(POSTPROCESS, "plot_run.py")
        command = [sys.executable, script, *arguments, "-o", self.file("out")]
        return subprocess.run(command, capture_output=True, text=True)

    def check_picture(self, stem, words):
        import matplotlib.image

        pixels = matplotlib.image.imread(self.file(f"{stem}.png"))
        self.assertGreater(pixels[..., :3].std(), 0.03, f"{stem}.png is blank")
        with open(self.file(f"{stem}.svg")) as file:
            text = file.read()
        for word in words:
            self.assertIn(word, text)

    def test_one_run_and_two_runs(self):
        first, second = self.file("a"), self.file("b")
        fake_run.write_segment(first, 1, 0, 30)
        fake_run.write_segment(first, 2, 25, 30, lr=0.002)
        fake_run.write_segment(second, 1, 0, 20, name="other")
        result = self.plot(first)
        self.assertEqual(result.returncode, 0, result.stderr)
        words = ("Loss", "held-out", "sender full", "attention_gemm", "tokens/s")
        words += ("optimizer/lr 0.003 -&gt; 0.002",)
        self.check_picture("out", words)
        self.check_picture("out.experts", ("layer 2", "expert", "load / mean"))
        result = self.plot(first, second, "--x", "tokens", "--labels", "base,wide")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.check_picture("out", ("base", "wide", "tokens"))
        self.check_picture("out.wide.experts", ("wide",))

    def test_a_run_of_one_step(self):
        fake_run.write_segment(self.file("a"), 1, 0, 1)
        result = self.plot(self.file("a"))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stderr, "")

    def test_a_run_before_its_first_step(self):
        fake_run.write_segment(self.file("a"), 1, 0, 0)
        result = self.plot(self.file("a"))
        self.assertEqual(result.returncode, 4)
        self.assertIn("no step is recorded yet", result.stderr)

    def test_no_run(self):
        result = self.plot(self.file("nowhere"))
        self.assertEqual(result.returncode, 4)
        self.assertIn("nowhere", result.stderr)


if __name__ == "__main__":
    unittest.main()
