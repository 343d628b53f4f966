#!/usr/bin/python3
"""A run that was stopped and restarted is the run that never stopped, bit for bit.

Each kind of stop is made somewhere in the run, the run is restarted to the next step at
which the unstopped run has a checkpoint, and history rows and state hash are compared.
"""
import os
import random
import signal
import time
import unittest

import runs

EVERY = 10  # steps between the checkpoints of the unstopped run
SCHEDULE = ["schedule/tokens=102400", "schedule/warmup_fraction=0.1"]  # 400 steps
LONG = "job/steps=100000"  # until it is stopped
STOPPED = 75


class Restarts(runs.Case):
    ranks, grid = 1, []

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.gold_steps = 0

    def train(self, directory, *words, code=0, **more):
        words = [*SCHEDULE, *self.grid, "eval/at_end=false", *words]
        return self.capstan(directory, *words, ranks=self.ranks, code=code, **more)

    def begin(self, directory, *words):
        words = [*SCHEDULE, *self.grid, "eval/at_end=false", *words]
        job = self.start(directory, *words, ranks=self.ranks)
        return job

    def gold(self, steps):
        """(rows, {step: folder}) of at least `steps` steps that never stopped."""
        if steps > self.gold_steps:
            type(self).gold_steps = max(steps, 60)
            name = f"gold{self.gold_steps}"
            words = [f"job/steps={self.gold_steps}", "checkpoint/keep_last=10000"]
            words += [f"checkpoint/every_tokens={EVERY * runs.TOKENS}"]
            self.train(name, *words)
            cls = type(self)
            cls.gold_rows = runs.merged(self.history(name))
            cls.gold_folders = runs.checkpoints(self.path(name))
        return self.gold_rows, self.gold_folders

    def finish(self, directory, step, *words, restarts=1):
        """Restarts what was stopped after `step`, and compares all of it."""
        end = (step // EVERY + 1) * EVERY
        self.train(directory, f"job/steps={end}", "-r", "latest", *words)
        self.compare(directory, end, restarts)

    def compare(self, directory, end, restarts):
        rows, folders = self.gold(end)
        segments = self.history(directory)
        self.assertEqual([s.number for s in segments], list(range(1, restarts + 2)))
        mine = runs.merged(segments)
        self.assertEqual(list(mine), list(range(1, end + 1)))
        for step, row in mine.items():
            self.assertEqual(row, rows[step], f"step {step}")
        self.assertEqual(self.last_hash(directory), runs.state_hash(folders[end]))

    def stopped_at(self, directory):
        """The step whose checkpoint is complete; it is the last row as well."""
        step = max(runs.checkpoints(self.path(directory)))
        self.assertEqual(runs.last_step(self.path(directory)), step)
        return step

    def stop(self, name, ask, why):
        """Asks a long run to stop, and checks how it does."""
        job = self.begin(name, LONG)
        job.until_step(5)
        ask(job)
        done = job.wait()
        self.assertEqual(done.code, STOPPED, done.output)
        self.assert_says(done, "stopped: " + why)
        events = self.history(name)[0].events
        self.assertEqual([kind for _, kind, _ in events], ["start", "checkpoint", "stop"])
        with open(self.path(name, "status")) as file:
            self.assertIn("state=interrupted", file.read())
        self.finish(name, self.stopped_at(name))

    def touch(self, name, what):
        with open(self.path(name, what), "w"):
            pass

    def test_planned(self):
        self.train("planned", "job/steps=7")
        self.assertEqual(self.stopped_at("planned"), 7)
        self.finish("planned", 7)

    def test_signals_to_a_rank(self):
        for number in (signal.SIGTERM, signal.SIGUSR1):
            name = signal.Signals(number).name
            with self.subTest(signal=name):
                self.stop(name, lambda job: os.kill(job.pids()[-1], number), "signal")

    def test_stop_file(self):
        self.stop("touched", lambda job: self.touch("touched", "stop"), "stop file")
        self.assertFalse(os.path.exists(self.path("touched", "stop")))

    def test_time_limit(self):
        done = self.train("limit", LONG, "-t", "00:00:04", code=STOPPED)
        self.assert_says(done, "stopped: time limit")
        self.assertLess(done.seconds, 4 + 4)  # mpirun takes its time too
        self.finish("limit", self.stopped_at("limit"))

    def checkpoint_and_go_on(self, name, ask):
        job = self.begin(name, LONG)
        job.until_step(5)
        ask(job)
        job.until_event("checkpoint")
        (step,) = runs.checkpoints(self.path(name))
        job.until_step(step + 3)
        self.touch(name, "stop")
        done = job.wait()
        self.assertEqual(done.code, STOPPED, done.output)
        self.finish(name, self.stopped_at(name))

    def test_checkpoint_on_sigusr2(self):
        ask = lambda job: os.kill(job.pids()[-1], signal.SIGUSR2)  # noqa: E731
        self.checkpoint_and_go_on("usr2", ask)

    def test_checkpoint_file(self):
        self.checkpoint_and_go_on("file", lambda job: self.touch("file", "checkpoint"))

    def test_killed(self):
        name, every = "killed", f"checkpoint/every_tokens={4 * runs.TOKENS}"
        job = self.begin(name, LONG, every)
        job.until_step(9)
        job.kill()
        self.assertIn(job.wait().code, (-signal.SIGKILL, 128 + signal.SIGKILL))
        last = max(runs.checkpoints(self.path(name)))
        self.assertEqual(last % 4, 0)
        self.finish(name, last, every)


class OneRank(Restarts):
    def test_killed_again_and_again(self):
        """At random moments, with a save at every step: most of them fall into one."""
        rng = random.Random(5)
        words = [f"checkpoint/every_tokens={runs.TOKENS}", "checkpoint/keep_last=1"]
        job = self.begin("kills", LONG, *words)
        job.until_step(2)
        for kill in range(5):
            time.sleep(rng.uniform(0, 0.1))
            job.kill()
            job.wait()
            step = max(runs.checkpoints(self.path("kills")))
            if kill < 4:
                job = self.begin("kills", LONG, "-r", "latest", *words)
                job.until(lambda: len(self.history("kills")) == kill + 2, "restart")
                job.until_step(step + 2)
        self.finish("kills", step, *words, restarts=5)
        names = os.listdir(self.path("kills", "ckpt"))
        self.assertEqual(len(names), 2, names)  # latest, and one checkpoint


class TwoRanks(Restarts):
    ranks, grid = 2, ["grid/expert=2"]

    def test_signal_to_mpirun(self):
        ask = lambda job: job.process.send_signal(signal.SIGUSR1)  # noqa: E731
        self.stop("mpirun", ask, "signal")


del Restarts  # the base is no test

if __name__ == "__main__":
    unittest.main()
