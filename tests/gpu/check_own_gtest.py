#!/usr/bin/env python3
"""The header that stands for GoogleTest in checks on GPUs reports what fails, no more."""
import re
import subprocess
import sys
import unittest

PROGRAM = sys.argv.pop(1)
EXPECTED = {"Fails.Equal", "Fails.NotANumberIsNear", "Fails.Vectors",
            "Fails.NothingThrown", "Fails.AnotherTypeThrown", "Fails.Uncaught",
            "Fails.AtTheAssertion", "FailsWithPoints.ForTheSecond/1",
            "Typed.FailsForDouble/1"}


def run(*arguments):
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True)


class OwnGtest(unittest.TestCase):
    def test_every_failure_is_reported_once_and_nothing_else(self):
        result = run()
        self.assertEqual(result.returncode, 1)
        failed = re.findall(r"^\S+:\d+: (\S+): ", result.stderr, re.M)
        self.assertEqual(sorted(failed), sorted(EXPECTED))
        self.assertIn("one is not two", result.stderr)
        self.assertIn("{ 1 2 }, { 1 3 }", result.stderr)
        self.assertNotIn("an assertion did not leave the body", result.stdout)
        self.assertIn("19 tests: 9 failed, 1 skipped", result.stdout)

    def test_a_filter_chooses_and_an_empty_choice_fails(self):
        result = run("--gtest_filter=Holds.*:Odd.*/1")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("4 tests: 0 failed, 1 skipped", result.stdout)
        self.assertEqual(run("--gtest_filter=Nothing.*").returncode, 1)


if __name__ == "__main__":
    unittest.main()
