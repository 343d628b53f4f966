#!/usr/bin/env python3
"""The public lineage of the 535B run stacks, and machine files fit any deck."""
import glob
import os
import re
import subprocess
import unittest

SOURCE = os.environ["CAPSTAN_SOURCE"]
CAPSTAN = os.path.join(os.environ["CAPSTAN_BUILD"], "capstan")
BASE = ["-i", "inputs/535b.deck"]


def capstan(*words):
    return subprocess.run([CAPSTAN, *words], cwd=SOURCE, text=True, timeout=60,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def words_of(paths):
    return [word for path in paths for word in ("-i", os.path.relpath(path, SOURCE))]


class Lineage(unittest.TestCase):
    def setUp(self):
        self.stages = sorted(glob.glob(os.path.join(SOURCE, "inputs", "535b", "*.deck")))

    def test_every_stage_stacks_and_names_its_source(self):
        self.assertEqual(len(self.stages), 5)
        for n, stage in enumerate(self.stages, 1):
            done = capstan("-n", *BASE, *words_of(self.stages[:n]))
            self.assertEqual(done.returncode, 0, done.stdout)
            with open(stage) as file:
                self.assertIn("marin-community/marin#", file.read(), stage)

    def test_the_stages_say_what_was_published(self):
        deck = capstan("-n", *BASE, *words_of(self.stages[:3])).stdout
        for line in ("transport = ragged", "weight_decay = 0.02",
                     f"last_tokens = {108000 * 46137344}",
                     f"first_tokens = {312192 * 46137344}"):
            self.assertIn(line, " ".join(deck.split()), line)

    def test_tokens_of_a_step_stay(self):
        for n in range(len(self.stages) + 1):
            deck = capstan("-n", *BASE, *words_of(self.stages[:n])).stdout
            at = {key: int(re.search(rf"^{key} *= (\d+)", deck, re.MULTILINE)[1])
                  for key in ("seq_len", "sequences")}
            self.assertEqual(at["seq_len"] * at["sequences"], 46137344)


class Machines(unittest.TestCase):
    def test_a_rack_holds_the_launch_and_the_desk_does_not(self):
        for machine, verdict, code in (("gb200_nvl72", "yes", 0), ("desk", "no", 2)):
            done = capstan("-m", *BASE, "-i", f"inputs/machines/{machine}.deck")
            self.assertEqual(done.returncode, code)
            self.assertIn(f"PLAN: fits={verdict} ", done.stdout)

    def test_every_machine_file_names_a_source(self):
        for path in glob.glob(os.path.join(SOURCE, "inputs", "machines", "*.deck")):
            with open(path) as file:
                self.assertTrue(file.readline().startswith("# "), path)


if __name__ == "__main__":
    unittest.main()
