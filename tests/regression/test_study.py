#!/usr/bin/env python3
"""The tools of the drop-rate study: correlation of a dump with a known one, picture of
tables with known rates."""
import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import h5py
import numpy as np

ROOT = pathlib.Path(os.environ["CAPSTAN_SOURCE"])
TABLE = """#rehearsal expert=4 experts=8 top_k=2 seq_len={context} sequences_per_rank={n}
#transport factor drop_fraction sender receiver spilled worst_layer
cells 1 {high} {high} 0 0 {high}
ragged 1 0.000000 0 0 0 0
"""


def tool(name):
    path = ROOT / "postprocess" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write_dump(path, rho, sequences=60, seq_len=40, experts=24):
    """Router logits whose variance is shared within a sequence by rho, one a layer."""
    draw = np.random.default_rng(3)
    with h5py.File(path, "w") as f:
        f["batch/tokens"] = np.zeros((sequences, seq_len), np.int32)
        f["batch/segments"] = np.zeros((sequences, seq_len), np.int32)
        for layer, share in enumerate(rho):
            common = draw.normal(size=(sequences, 1, experts)) * np.sqrt(share)
            own = draw.normal(size=(sequences, seq_len, experts)) * np.sqrt(1 - share)
            offset = 5 * draw.normal(size=experts)  # of an expert: no variance of tokens
            f[f"router/layer_{layer:03d}/logits"] = (common + own + offset).reshape(
                -1, experts)


class Study(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name)
        self.addCleanup(self.folder.cleanup)

    def test_the_correlation_is_found_layer_by_layer(self):
        write_dump(self.path / "dump.h5", [0.0, 0.1, 0.4])
        found = tool("router_correlation").correlations(self.path / "dump.h5")
        np.testing.assert_allclose(found, [0.0, 0.1, 0.4], atol=0.03)

    def test_the_picture_has_every_transport_and_reads_the_rates(self):
        for context, n, high in ((128, 4, 0.02), (512, 1, 0.3)):
            (self.path / f"desk.{context}.txt").write_text(
                TABLE.format(context=context, n=n, high=high))
        tables = tool("plot_drops").tables(str(self.path), "desk")
        self.assertEqual(list(tables), [128, 512])
        self.assertEqual(tables[512][0]["cells", 1.0], 0.3)
        self.assertEqual(tables[128][1]["sequences_per_rank"], "4")
        out = self.path / "drops"
        subprocess.run([sys.executable, ROOT / "postprocess" / "plot_drops.py", self.path,
                        "-o", out], check=True, capture_output=True)
        self.assertGreater((self.path / "drops.png").stat().st_size, 10000)
        self.assertIn("<svg", (self.path / "drops.svg").read_text()[:2000])

    def test_an_empty_folder_is_an_error(self):
        result = subprocess.run(
            [sys.executable, ROOT / "postprocess" / "plot_drops.py", self.path],
            capture_output=True, text=True)
        self.assertEqual(result.returncode, 1)
        self.assertIn("no desk.*.txt", result.stderr)


if __name__ == "__main__":
    unittest.main()
