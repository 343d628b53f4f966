#!/usr/bin/env python3
"""Job scripts under a real Slurm with four virtual nodes on this machine.

Skipped (77) where Slurm is not installed or may not be started.
"""
import os
import re
import sys
import time
import unittest

import runs
import slurm_cluster

SITE = """
site_machine=inputs/machines/desk.deck
site_ranks_per_node=1
site_capstan={program}
site_time=00:10:00
site_grace_seconds=30
site_sbatch=({options})
site_setup() {{ . jobscripts/local_mpi.sh; }}
site_launcher() {{ launcher=(mpirun -np "$1" --bind-to none); }}
"""
STEPS = 120


class Jobs(runs.Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.cluster = slurm_cluster.Cluster(os.path.join(cls.folder, "slurm"))
        cls.addClassCleanup(cls.cluster.stop)

    def site(self, name, options="", program=runs.CAPSTAN):
        path = self.path(f"{name}.env")
        with open(path, "w") as file:
            file.write(SITE.format(program=program, options=options))
        return path

    def stand_in(self, code):
        """A program that plans as capstan does and then ends with `code` at once."""
        path = self.path(f"ends_with_{code}")
        with open(path, "w") as file:
            file.write(f'#!/bin/bash\ncase $1 in -[mn]) exec {runs.CAPSTAN} "$@" ;;\n'
                       f"esac\nexit {code}\n")
        os.chmod(path, 0o755)
        return path

    def words(self, site, run, *more, ranks=2, steps=STEPS):
        data = [f"data/files={self.path('corpus')}", "data/valid_fraction=0.1"]
        return ["-s", site, "-d", self.path(run), "-i", runs.TINY, *data,
                f"job/steps={steps}", "job/log_every=20", "schedule/tokens=0",
                "eval/every_tokens=0", "checkpoint/every_tokens=0", "model/layers=1",
                f"grid/expert={ranks}", *more]

    def script(self, name, *words, check=True):
        path = os.path.join(runs.SOURCE, "jobscripts", name)
        return self.cluster.run("bash", path, *words, check=check)

    def submit(self, site, run, *more, **options):
        text = self.script("smoke.sh", *self.words(site, run, *more, **options))
        job = int(re.search(r"submitted job (\d+)", text).group(1))
        self.addCleanup(self.cluster.cancel, job)
        return job

    def log(self, run):
        path = self.path(run, "job.log")
        if not os.path.exists(path):
            return ""
        with open(path) as file:
            return file.read()

    def until(self, happened, what, run, seconds=120):
        try:
            self.cluster.until(happened, what, seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}:\n{self.log(run)}") from None

    def state(self, job):
        return self.cluster.job(job)["JobState"]

    def until_state(self, job, run, *states):
        self.until(lambda: self.state(job) in states, f"job in {states}", run)

    def until_step(self, run, step):
        self.until(lambda: runs.last_step(self.path(run)) >= step, f"step {step}", run)

    def until_again(self, job, run, starts):
        """A requeued job waits two minutes, here a little more than the second that a
        node's memory of the killed job needs."""
        time.sleep(2.5)

        def started():
            if len(self.starts(run)) >= starts:
                return True
            self.release(job)
            time.sleep(1.5)
            return False

        self.until(started, f"start {starts}", run)

    def release(self, job):
        self.cluster.run("scontrol", "update", f"jobid={job}", "StartTime=now",
                         check=False)

    def starts(self, run):
        with open(self.path(run, "starts")) as file:
            return file.read().splitlines()

    def uninterrupted(self, run, ranks):
        """Rows of the same deck run without Slurm; once a number of ranks."""
        if not os.path.exists(self.path(run)):
            quickstart = os.path.join(runs.SOURCE, "inputs", "quickstart.deck")
            machine = os.path.join(runs.SOURCE, "inputs", "machines", "desk.deck")
            words = self.words("none", run, ranks=ranks)[6:]
            self.capstan(run, "-i", quickstart, "-i", runs.TINY, "-i", machine, *words,
                         ranks=ranks, deck=None, code=0)
        return runs.merged(self.history(run))

    def assert_same_curve(self, run, ranks):
        mine, whole = runs.merged(self.history(run)), self.uninterrupted("whole", ranks)
        self.assertEqual(sorted(mine), list(range(1, STEPS + 1)))
        self.assertEqual(mine, whole)

    def test_time_limit_checkpoint_requeue_finish(self):
        job = self.submit(self.site("plain"), "limit", ranks=4)
        self.until_step("limit", 30)
        # What Slurm sends before the limit, to the batch shell alone.
        self.cluster.run("scancel", "--signal=USR1", "--batch", str(job))
        self.until(lambda: "job: requeue" in self.log("limit"), "requeue", "limit")
        saved = max(runs.checkpoints(self.path("limit")))
        self.assertTrue(30 <= saved < STEPS, saved)
        self.until_again(job, "limit", 2)
        self.until_state(job, "limit", "COMPLETED")
        self.assertEqual(self.cluster.job(job)["Restarts"], "1")
        log = self.log("limit")
        self.assertIn("PLAN: ranks=4", log)
        self.assertLess(log.index("PLAN: ranks"), log.index("step=20 "))
        self.assertIn(f"job: done at step {STEPS}", log)
        self.assert_same_curve("limit", ranks=4)
        line = self.script("smoke.sh", "--status", "-d", self.path("limit")).strip()
        self.assertEqual(len(line.splitlines()), 1)
        for part in ("state=done", f"step={STEPS}", f"job={job}", "starts=2"):
            self.assertIn(part, line)

    def test_lost_node_is_survived(self):
        site = self.site("spare", "--nodes=3-4 --exclusive")
        job = self.submit(site, "lost", "checkpoint/every_tokens=5120", ranks=4)
        self.until_step("lost", 45)
        self.addCleanup(self.cluster.start_node, 4)
        self.cluster.lose_node(4)
        self.until_again(job, "lost", 2)
        self.until_state(job, "lost", "COMPLETED")
        self.assertEqual(self.cluster.job(job)["NumNodes"], "3")
        # From the last save before the loss, or from one that the surviving ranks made.
        self.assertGreaterEqual(self.history("lost")[-1].start_step, 40)
        self.assert_same_curve("lost", ranks=4)

    def test_crash_is_not_requeued(self):
        bad = "optimizer/lr=1e300"
        job = self.submit(self.site("plain"), "crash", bad, steps=50)
        self.until_state(job, "crash", "FAILED", "COMPLETED")
        found = self.cluster.job(job)
        self.assertEqual(found["ExitCode"], "3:0", self.log("crash"))
        self.assertEqual((found["JobState"], found["Restarts"]), ("FAILED", "0"))
        line = self.script("smoke.sh", "--status", "-d", self.path("crash"))
        self.assertIn("state=failed exit=3", line)

    def test_no_progress_is_not_requeued(self):
        site = self.site("idle", program=self.stand_in(75))
        job = self.submit(site, "idle")
        self.until_state(job, "idle", "FAILED", "COMPLETED")
        found = self.cluster.job(job)
        self.assertEqual((found["ExitCode"], found["Restarts"]), ("75:0", "0"))
        self.assertIn("stopped: no progress beyond step 0", self.log("idle"))

    def test_a_job_that_restarts_without_progress_gives_up(self):
        site = self.site("again", program=self.stand_in(0))
        job = self.submit(site, "again", "job/wall_limit_seconds=0")
        self.until_state(job, "again", "COMPLETED")
        for _ in range(2):  # as Slurm does when nodes fail
            self.cluster.run("scontrol", "requeue", str(job))
            count = len(self.starts("again"))
            self.until_again(job, "again", count + 1)
            self.until_state(job, "again", "COMPLETED")
        self.cluster.run("scontrol", "requeue", str(job))
        time.sleep(2.5)
        self.release(job)
        self.until_state(job, "again", "FAILED")
        self.assertIn("3 starts of this job got no further than step 0",
                      self.log("again"))

    def test_two_jobs_in_one_directory_are_refused(self):
        site = self.site("plain")
        job = self.submit(site, "twice", ranks=1, steps=100000)
        self.until_step("twice", 1)
        again = self.script("smoke.sh", *self.words(site, "twice"), check=False)
        self.assertEqual(again.returncode, 2, again.stdout)
        self.assertIn(f"belongs to job {job}, which is RUNNING", again.stdout)
        # Past the script's own check the program refuses, and says who has it.
        os.remove(self.path("twice", "job"))
        other = self.submit(site, "twice", ranks=1)
        self.until_state(other, "twice", "FAILED", "COMPLETED")
        self.assertEqual(self.cluster.job(other)["ExitCode"], "4:0", self.log("twice"))
        self.assertEqual(self.state(job), "RUNNING")

    def test_what_does_not_fit_is_refused_in_seconds(self):
        start = time.monotonic()
        done = self.script("535b.sh", "-s", self.site("plain"), check=False)
        self.assertLess(time.monotonic() - start, 20)
        self.assertEqual(done.returncode, 2, done.stdout)
        for part in ("needs 704 ranks; the whole partition has 4 nodes",
                     "a rank needs ", "there are 11.00"):
            self.assertIn(part, done.stdout)
        # Under sbatch the plan is the first act of the job: exit code 2, once.
        script = os.path.join(runs.SOURCE, "jobscripts", "535b.sh")
        text = self.cluster.run("sbatch", "--parsable", "-n1", f"-o{self.path('big')}",
                                script, "-s", self.site("plain"), cwd=runs.SOURCE)
        self.until_state(int(text), "big", "FAILED", "COMPLETED")
        found = self.cluster.job(int(text))
        self.assertEqual((found["ExitCode"], found["Restarts"]), ("2:0", "0"))

    def test_535b_needs_its_experiment(self):
        done = self.script("535b.sh", "-s", self.site("plain"), "-n",
                           "experiment/hypothesis=", check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("missing: experiment/hypothesis", done.stdout)


if __name__ == "__main__":
    try:
        unittest.main()
    except slurm_cluster.Missing as error:
        print(f"skipped: {error}")
        sys.exit(77)
