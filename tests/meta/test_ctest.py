#!/usr/bin/env python3
"""The registered tests can fail, and MPI tests neither hang nor stack up."""
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

BUILD = pathlib.Path(os.environ["CAPSTAN_BUILD"])
KNOWN = {"unit", "mpi", "regression", "restart", "style", "meta", "perf", "slow", "gpu",
         "slurm", "compat"}
PROJECT = """
cmake_minimum_required(VERSION 3.22)
project(planted NONE)
set(CMAKE_MODULE_PATH {source}/cmake)
enable_testing()
include(CapstanTests)
capstan_script_test(passes unit 10 1 true)
capstan_script_test(fails unit 10 1 false)
capstan_script_test(hangs mpi 1 1 sleep 20)
capstan_script_test(skips compat 10 1 sh -c "exit 77")
"""


def properties(test):
    return {p["name"]: p["value"] for p in test.get("properties", [])}


class Registered(unittest.TestCase):
    def setUp(self):
        listing = subprocess.run(["ctest", "--test-dir", BUILD, "--show-only=json-v1"],
                                 check=True, capture_output=True, text=True)
        self.tests = json.loads(listing.stdout)["tests"]

    def test_labels_are_known_and_timeouts_set(self):
        self.assertGreater(len(self.tests), 5)
        for test in self.tests:
            found = properties(test)
            self.assertTrue(set(found.get("LABELS", ["none"])) <= KNOWN, test["name"])
            self.assertIn("TIMEOUT", found, test["name"])

    def test_ranks_count_as_processors(self):
        for test in self.tests:
            command = test.get("command", [])
            if command and "mpiexec" in command[0]:
                ranks = int(command[2])
                found = properties(test).get("PROCESSORS", 1)
                self.assertEqual(found, ranks, test["name"])


class Planted(unittest.TestCase):
    def test_ctest_reports_a_failure_and_a_hang(self):
        with tempfile.TemporaryDirectory() as folder:
            source = os.environ["CAPSTAN_SOURCE"]
            (pathlib.Path(folder) / "CMakeLists.txt").write_text(
                PROJECT.format(source=source))
            subprocess.run(["cmake", "-S", folder, "-B", folder + "/b"], check=True,
                           capture_output=True)
            run = subprocess.run(["ctest", "--test-dir", folder + "/b"],
                                 capture_output=True, text=True)
        self.assertNotEqual(run.returncode, 0)
        for name, outcome in (("passes", "Passed"), ("fails", "Failed"),
                              ("hangs", "Timeout"), ("skips", "Skipped")):
            line = [x for x in run.stdout.splitlines() if f" {name} ." in x]
            self.assertTrue(line and outcome in line[0], run.stdout)


if __name__ == "__main__":
    unittest.main()
