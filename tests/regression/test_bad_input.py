#!/usr/bin/python3
"""Wrong decks, wrong data, full disks, a directory in use, a run that diverges."""
import os
import resource
import signal
import time
import unittest

import numpy as np
import runs

DECK, DIVERGED, FILE = 2, 3, 4  # exit codes
WRONG = os.path.join(runs.SOURCE, "inputs", "tests", "wrong.deck")


class Decks(runs.Case):
    def test_all_problems_in_one_report(self):
        done = self.capstan("wrong", "model/heds=4", "grid/data=x", deck=WRONG, code=DECK)
        self.assertLess(done.seconds, 1)
        problems = {
            "unknown block <modle>": "<model>",
            "unknown key": "window",
            "layers is given twice": "first at",
            "128x": "model/hidden",
            "seq_len: 1 is out of range": ">= 2",
            "flot": "did you mean float?",
            "model/xsa: 'yes'": "true nor false",
            "heds": "heads",
            "twelve": "moe/latent_width",
        }
        for one, other in problems.items():
            self.assert_says(done, one, other)
        self.assertFalse(os.path.exists(self.path("wrong")))

    def test_command_line(self):
        done = self.capstan("wrong", "--evil", "-t", "10", "model/xsa", code=DECK)
        self.assert_says(done, "--evil", "--eval", "-t 10", "model/xsa", "usage:")

    def test_grids_that_do_not_fit(self):
        done = self.capstan("grid", "grid/micro_batches=3", code=DECK)
        self.assert_says(done, "batch/sequences = 8", "nearest: 6 or 9")
        done = self.capstan("grid", "grid/expert=3", "batch/sequences=9", code=DECK)
        self.assert_says(done, "moe/experts = 8 is not a multiple of grid/expert = 3")
        done = self.capstan("grid", "grid/data=2", "grid/expert=2", ranks=2, code=DECK)
        self.assert_says(done, "a grid of 4 ranks, but there are 2",
                         "nearest: data = 1, expert = 2")
        words = ["moe/transport=reference", "grid/expert=2"]
        done = self.capstan("grid", *words, ranks=2, code=DECK)
        self.assert_says(done, "moe/transport = reference", "grid/expert = 1")
        self.assertFalse(os.path.exists(self.path("grid")))

    def test_no_data(self):
        done = self.capstan("none", "data/files=", code=DECK)
        self.assert_says(done, "data/files")


class Tokens(runs.Case):
    """Token files that cannot be what they say: exit 4, the file named."""

    def refused(self, name, *texts):
        for ranks in (1, 2):
            words = ["data/files=corpus," + name, f"grid/data={ranks}"]
            done = self.capstan("run", *words, ranks=ranks, code=FILE)
            self.assert_says(done, name, *texts)
        self.assertFalse(os.path.exists(self.path("run")))

    def documents(self):
        return [np.arange(200) for _ in range(5)]

    def test_ids_beyond_the_vocabulary(self):
        documents = self.documents()
        documents[3][17] = 320
        runs.write_tokens(self.path("beyond"), documents)
        self.refused("beyond", "320")
        documents[3][17] = -5
        runs.write_tokens(self.path("negative"), documents, np.int32)
        self.refused("negative", "outside the vocabulary")

    def test_truncated(self):
        runs.write_tokens(self.path("short_bin"), self.documents())
        os.truncate(self.path("short_bin.bin"), 1999)
        self.refused("short_bin")
        runs.write_tokens(self.path("short_idx"), self.documents())
        size = os.path.getsize(self.path("short_idx.idx"))
        for length in (size - 8, 40, 10):
            os.truncate(self.path("short_idx.idx"), length)
            self.refused("short_idx")

    def test_empty_or_absent(self):
        for ending in (".bin", ".idx"):
            with open(self.path("empty" + ending), "w"):
                pass
        self.refused("empty")
        self.refused("absent")


class Disk(runs.Case):
    """Writes beyond a limit of file sizes fail, as on a full disk."""

    def limit(self, job, size):
        """Changes the limit while no save is under way."""
        saving = True
        while saving:
            job.process.send_signal(signal.SIGCONT)
            time.sleep(0.02)
            job.process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, job.process.pid, os.WSTOPPED)
            names = os.listdir(os.path.join(job.directory, "ckpt"))
            saving = any(name.endswith(".part") for name in names)
        limits = (size, resource.RLIM_INFINITY)
        resource.prlimit(job.process.pid, resource.RLIMIT_FSIZE, limits)
        job.process.send_signal(signal.SIGCONT)

    def test_training_goes_on_after_a_failed_save(self):
        words = [f"checkpoint/every_tokens={5 * runs.TOKENS}", "eval/at_end=false"]
        job = self.start("full", *words, "job/steps=100000")
        job.until_step(1)
        self.limit(job, 1_000_000)  # a shard has 1.5 MB
        job.until_event("save_failed")
        kept, step = runs.checkpoints(job.directory), runs.last_step(job.directory)
        job.until_step(step + 12)
        self.assertEqual(runs.checkpoints(job.directory), kept)
        self.limit(job, resource.RLIM_INFINITY)
        job.until(lambda: max(runs.checkpoints(job.directory), default=0) > step, "save")
        self.limit(job, 1_000_000)
        events = self.history("full")[0].events
        failed = sum(kind == "save_failed" for _, kind, _ in events)
        job.until_event("save_failed", failed + 1)
        kept = runs.checkpoints(job.directory)
        with open(self.path("full", "stop"), "w"):
            pass
        done = job.wait()
        self.assertEqual(done.code, FILE, done.output)  # the last state is not on disk
        self.assert_says(done, "WARNING: checkpoint of step", "training goes on")
        (segment,) = self.history("full")
        self.assertEqual(list(segment.rows), list(range(1, max(segment.rows) + 1)))
        self.assertEqual(runs.checkpoints(job.directory), kept)
        self.assertEqual(len(os.listdir(self.path("full", "ckpt"))), len(kept) + 1)
        self.capstan("-", "--verify", kept[max(kept)], deck=None, code=0)
        self.capstan("full", *words, "-r", "latest", f"job/steps={max(kept) + 2}", code=0)


class Runs(runs.Case):
    def test_directory_in_use(self):
        job = self.start("busy", "job/steps=100000", "eval/at_end=false")
        job.until_step(1)
        done = self.capstan("busy", "job/steps=2", code=FILE)
        self.assert_says(done, "in use by process", str(job.process.pid))
        job.kill()
        job.wait()
        self.capstan("busy", "job/steps=2", code=0)  # of a dead process

    def test_diverged(self):
        for ranks, words in ((1, []), (2, ["grid/expert=2"])):
            words = [*words, "optimizer/lr=1e200", "optimizer/clip_norm=0"]
            done = self.capstan(f"lr{ranks}", *words, ranks=ranks, code=DIVERGED)
            self.assert_says(done, "not finite", "embed/table")
            self.assertEqual(runs.checkpoints(self.path(f"lr{ranks}")), {})
            self.assertEqual(len(self.history(f"lr{ranks}")[0].rows), 1)


if __name__ == "__main__":
    unittest.main()
