#!/usr/bin/env python3
"""tests/gpu.sh says why it runs nothing: exit 77 without a GPU, 2 for a wrong option."""
import os
import pathlib
import subprocess
import tempfile
import unittest

SCRIPT = pathlib.Path(os.environ["CAPSTAN_SOURCE"]) / "tests" / "gpu.sh"


def run(listing, *arguments):
    """The script where nvidia-smi prints `listing` and fails."""
    with tempfile.TemporaryDirectory() as folder:
        fake = pathlib.Path(folder) / "nvidia-smi"
        fake.write_text(f"#!/bin/sh\necho '{listing}'\nexit 9\n")
        fake.chmod(0o755)
        environment = dict(os.environ, PATH=f"{folder}:{os.environ['PATH']}")
        return subprocess.run([SCRIPT, *arguments], env=environment, text=True,
                              capture_output=True)


class GpuScript(unittest.TestCase):
    def test_without_a_gpu_it_is_skipped(self):
        result = run("NVIDIA-SMI has failed")
        self.assertEqual(result.returncode, 77, result.stderr)
        self.assertIn("no GPU on", result.stderr)
        self.assertIn("skipped", result.stderr)

    def test_an_unknown_option_is_refused(self):
        result = run("", "--fast")
        self.assertEqual(result.returncode, 2)
        self.assertIn("usage", result.stderr)


if __name__ == "__main__":
    unittest.main()
