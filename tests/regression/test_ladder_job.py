#!/usr/bin/python3
"""jobscripts/ladder.sh: three rungs and a target of a few steps, with interruptions."""
import os
import signal
import subprocess
import time
import unittest

import runs

SCRIPT = os.path.join(runs.SOURCE, "jobscripts", "ladder.sh")
BASE = """<scale>
hidden = 16
<model>
layers = 2
head_dim = 8
vocab = 320
seq_len = 32
window = 16
gate_rank = 4
scalar = double
<moe>
experts = 4
top_k = 2
shared_experts = 1
<data>
files = corpus
window_tokens = 4096
valid_fraction = 0.1
<eval>
sequences = 8
<checkpoint>
every_tokens = 4096
<schedule>
tokens = {tokens}
"""
RUNG = """<scale>
hidden = {width}
<batch>
sequences = 4
"""


class Ladder(runs.Case):
    def setUp(self):
        with open(self.path("base.deck"), "w") as file:
            file.write(BASE.format(tokens=20 * 128))
        for name, width in (("a", 16), ("b", 24), ("c", 32), ("t", 48)):
            with open(self.path(f"{name}.deck"), "w") as file:
                file.write(RUNG.format(width=width))
        self.out = self.id().rpartition(".")[2]

    def start(self, *words, **environment):
        command = [SCRIPT, "-b", "base.deck", "-o", self.out, "-c", runs.CAPSTAN, *words]
        environment = {**runs.MPI, **os.environ, **environment}
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command, cwd=self.folder, env=environment, stdout=pipe, stderr=pipe, text=True
        )

    def ladder(self, *words, code=0, **environment):
        job = self.start(*words, **environment)
        output, errors = job.communicate(timeout=runs.TIMEOUT)
        self.assertEqual(job.returncode, code, output + errors)
        return output + errors

    def file(self, *names):
        return self.path(self.out, *names)

    def modified(self, *names):
        return os.stat(self.file(*names)).st_mtime_ns

    def test_rungs_forecast_target_error(self):
        decks = ["a.deck", "b.deck", "c.deck"]
        self.ladder("a.deck", "b.deck")
        said = self.ladder("-j", "2", "-t", "t.deck", *decks)
        for text in ("a is finished", "b is finished", "c starts", "t starts"):
            self.assertIn(text, said)
        self.assertIn("t has finished: loss", said)
        with open(self.file("forecast.txt")) as file:
            self.assertNotIn("has finished", file.read())
        first_step = self.modified("t", "deck.used")
        self.assertLess(self.modified("forecast.band"), first_step)
        band = self.modified("forecast.band")
        said = self.ladder("-t", "t.deck", *decks)
        self.assertIn("t is finished", said)
        self.assertIn("t has finished: loss", said)
        self.assertEqual(self.modified("forecast.band"), band)
        self.assertEqual(len(runs.read_history(self.file("a"))), 1)

    def test_a_stopped_rung_goes_on(self):
        long = "schedule/tokens=2560000"
        for jobs in ("1", "2"):
            self.out = f"stopped{jobs}"
            job = self.start("-j", jobs, "a.deck", "b.deck", "--", long)
            end = time.monotonic() + runs.TIMEOUT
            while not os.path.exists(self.file("a", "ckpt", "latest")):
                self.assertLess(time.monotonic(), end)
                time.sleep(0.05)
            job.send_signal(signal.SIGTERM)
            said = "".join(job.communicate(timeout=runs.TIMEOUT))
            self.assertEqual(job.returncode, 75, said)
            done = max(runs.checkpoints(self.file("a")))
            self.assertEqual(os.path.exists(self.file("b")), jobs == "2")
            # To its end, a little later than where it was stopped.
            tokens = 128 * (done + 3)
            short = [f"schedule/tokens={tokens}", "schedule/allow_jump=true"]
            said = self.ladder("a.deck", "--", *short)
            self.assertIn("a goes on from its checkpoint", said)
            history = runs.read_history(self.file("a"))
            self.assertEqual(history[-1].start_step, done)

    def test_a_task_of_an_array_trains_its_rung(self):
        decks = ["-t", "t.deck", "a.deck", "b.deck"]
        said = self.ladder(*decks, SLURM_ARRAY_TASK_ID="1")
        self.assertIn("b ended with exit code 0", said)
        self.assertEqual(os.path.exists(self.file("a")), False)
        self.assertEqual(os.path.exists(self.file("forecast.band")), False)
        said = self.ladder(*decks, code=2, SLURM_ARRAY_TASK_ID="2")
        self.assertIn("no rung of number 2", said)

    def test_a_failing_rung_ends_without_a_forecast(self):
        decks = ["-t", "t.deck", "a.deck", "b.deck", "c.deck"]
        with open(self.path("b.deck"), "a") as file:
            file.write("<job>\nthreads = -1\n")
        said = self.ladder(*decks, code=2)
        self.assertIn("b is not finished", said)
        self.assertIn("c ended with exit code 0", said)
        self.assertFalse(os.path.exists(self.file("forecast.band")))

    def test_refused(self):
        self.assertIn("no rung is named", self.ladder(code=2))
        self.assertIn("no deck z.deck", self.ladder("z.deck", code=2))


if __name__ == "__main__":
    unittest.main()
