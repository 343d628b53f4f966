#!/usr/bin/env python3
"""Job scripts without Slurm: refusals with numbers, the sealed question, one status line.

A stand-in for the program plans as it is told and ends with the exit code it is told.
"""
import hashlib
import os
import re
import subprocess
import tempfile
import time
import unittest

SOURCE = os.environ["CAPSTAN_SOURCE"]
CAPSTAN = os.path.join(os.environ["CAPSTAN_BUILD"], "capstan")
SITE = """
site_scheduler=none
site_machine=inputs/machines/desk.deck
site_ranks_per_node=2
site_capstan={program}
site_launcher() {{ launcher=(env); }}
"""
STAND_IN = """#!/bin/bash
case $1 in
  -m) echo "PLAN: ranks=1 fits=yes device_gb=1 runnable=yes" ;;
  -n) exec {capstan} "$@" ;;
  *)
    echo "ran: $*"
    while [ $# -gt 0 ]; do [ "$1" = -d ] && run=$2; shift; done
    mkdir -p "$run/ckpt/step_0000000{step}"
    echo "state=running step={step} loss=2.5" >"$run/status"
    exit {code}
    ;;
esac
"""


class Scripts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="capstan_jobs_")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.run_dir = os.path.join(self.folder, "run")

    def site(self, program):
        path = os.path.join(self.folder, "here.env")
        with open(path, "w") as file:
            file.write(SITE.format(program=program))
        return path

    def stand_in(self, code, step=3):
        path = os.path.join(self.folder, "stand_in")
        with open(path, "w") as file:
            file.write(STAND_IN.format(capstan=CAPSTAN, code=code, step=step))
        os.chmod(path, 0o755)
        return self.site(path)

    def script(self, name, site, *words):
        command = ["bash", os.path.join(SOURCE, "jobscripts", name), "-s", site]
        env = {k: v for k, v in os.environ.items() if not k.startswith("SLURM")}
        done = subprocess.run([*command, "-d", self.run_dir, *words], cwd=self.folder,
                              env=env, stdout=subprocess.PIPE, timeout=120,
                              stderr=subprocess.STDOUT, text=True)
        return done.returncode, done.stdout

    def sealed(self):
        with open(os.path.join(self.run_dir, "experiment.txt")) as file:
            return file.read()

    def test_the_desk_cannot_hold_it(self):
        start = time.monotonic()
        code, text = self.script("535b.sh", self.site(CAPSTAN))
        self.assertLess(time.monotonic() - start, 60)  # seconds on a quiet machine
        self.assertEqual(code, 2, text)
        self.assertRegex(text, r"a rank needs \d+\.\d+ GB on its device")
        self.assertIn("the deck needs 704 ranks; this machine (", text)
        self.assertFalse(os.path.exists(self.run_dir))

    def test_the_question_is_sealed_once(self):
        site = self.stand_in(0)
        code, text = self.script("535b.sh", site)
        self.assertEqual(code, 0, text)
        self.assertIn("job: done at step 3", text)
        first = self.sealed()
        lines = first.splitlines()
        self.assertTrue(any(line.startswith("hypothesis = final") for line in lines))
        body = "".join(line + "\n" for line in lines[:-1])
        seal = re.fullmatch(r"# sha256=(\w+) written=\S+Z before_step=1", lines[-1])
        self.assertEqual(seal.group(1), hashlib.sha256(body.encode()).hexdigest())
        code, text = self.script("535b.sh", site, "experiment/hypothesis=other")
        self.assertIn("note: <experiment> is not what", text)
        self.assertIn("-r latest", text)
        self.assertEqual(self.sealed(), first)

    def test_empty_question_is_refused(self):
        for key in ("goal", "hypothesis", "falsified_by"):
            code, text = self.script("535b.sh", self.stand_in(0), f"experiment/{key}=")
            self.assertEqual(code, 2)
            self.assertIn(f"missing: experiment/{key}", text)
        self.assertFalse(os.path.exists(self.run_dir))

    def test_exit_codes_and_status(self):
        word = "data/files=none"
        for ends, state in ((0, "running"), (3, "failed exit=3"), (75, "running")):
            self.run_dir = os.path.join(self.folder, f"run{ends}")
            code, text = self.script("smoke.sh", self.stand_in(ends), word)
            self.assertEqual(code, ends, text)
            code, text = self.script("smoke.sh", self.stand_in(ends), "--status")
            self.assertEqual(len(text.splitlines()), 1)
            self.assertIn(f"run={self.run_dir} state={state} step=3 ", text)
            self.assertIn("starts=1", text)

    def test_75_without_progress_is_said(self):
        site = self.stand_in(75)
        self.script("smoke.sh", site, "data/files=none")
        code, text = self.script("smoke.sh", site, "data/files=none")
        self.assertEqual(code, 75)
        self.assertIn("stopped: no progress beyond step 3", text)

    def test_words_that_are_none(self):
        for words, said in ((("--what",), "neither an option"),
                            (("-i",), "needs a value"),
                            (("-s", "nowhere"), "no site file")):
            code, text = self.script("535b.sh", self.site(CAPSTAN), *words)
            self.assertEqual(code, 2)
            self.assertIn(said, text)


if __name__ == "__main__":
    unittest.main()
