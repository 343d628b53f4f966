#!/usr/bin/env python3
"""ladder.sh as a job array and as a dependent job, under a real Slurm on this machine.

Skipped (77) where Slurm is not installed or may not be started.
"""
import os
import sys
import unittest

import runs
import slurm_cluster
import test_ladder_job


class Array(runs.Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.cluster = slurm_cluster.Cluster(os.path.join(cls.folder, "slurm"))
        cls.addClassCleanup(cls.cluster.stop)

    def setUp(self):
        test_ladder_job.Ladder.setUp(self)  # the decks
        # Jobs are submitted from the root of the repository: that is what this is.
        os.symlink(os.path.join(runs.SOURCE, "jobscripts"), self.path("jobscripts"))

    def submit(self, *options):
        decks = ["-t", "t.deck", "a.deck", "b.deck", "c.deck"]
        words = ["-b", "base.deck", "-o", "out", "-c", runs.CAPSTAN, *decks]
        script = [os.path.join(runs.SOURCE, "jobscripts", "ladder.sh"), *words]
        options = ["--parsable", "-n", "1", "-o", "slurm.%A_%a.out", *options]
        text = self.cluster.run("sbatch", *options, *script, cwd=self.folder)
        return text.split(";")[0].strip()

    def done(self, name):
        try:
            with open(self.path("out", name, "status")) as file:
                return file.read().startswith("state=done")
        except OSError:
            return False

    def test_an_array_and_what_depends_on_it(self):
        array = self.submit("--array=0-2")
        self.submit(f"--dependency=afterok:{array}")
        for name in ("a", "b", "c", "t"):
            self.cluster.until(lambda: self.done(name), f"end of {name}", 400)
        outcome = self.path("out", "outcome.txt")
        self.cluster.until(lambda: os.path.exists(outcome), "outcome", 200)
        for name in ("a", "b", "c"):
            self.assertEqual(len(runs.read_history(self.path("out", name))), 1)


if __name__ == "__main__":
    try:
        unittest.main()
    except slurm_cluster.Missing as error:
        print(f"skipped: {error}")
        sys.exit(77)
