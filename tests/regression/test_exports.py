#!/usr/bin/python3
"""Metrics under the published names, read back by TensorBoard and by wandb; live view."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
POSTPROCESS = os.path.join(HERE, "..", "..", "postprocess")
sys.path[:0] = [HERE, POSTPROCESS]
sys.dont_write_bytecode = True

import numpy as np  # noqa: E402

import exporters  # noqa: E402
import fake_run  # noqa: E402
import published  # noqa: E402
import watch  # noqa: E402
from capstan_run import Run  # noqa: E402

READ_EVENTS = """
import json, sys
from tensorboard.backend.event_processing import event_accumulator as e
found = e.EventAccumulator(sys.argv[1], size_guidance={e.SCALARS: 0})
found.Reload()
print(json.dumps({tag: [[s.step, s.value] for s in found.Scalars(tag)]
                  for tag in found.Tags()["scalars"]}))
"""
# The file is LevelDB's log: blocks of 32 KiB after 7 bytes of head, records in pieces of
# crc, length, type (1 whole, 2 first, 3 middle, 4 last); their bodies are wandb's own
# messages, which its library decodes.
READ_WANDB = """
import json, struct, sys
from wandb.proto import wandb_internal_pb2 as pb
data, at, body, rows = open(sys.argv[1], "rb").read(), 7, b"", []
assert data[:4] == b":W&B", data[:7]
while at + 7 <= len(data):
    left = 32768 - at % 32768
    if left < 7:
        at += left
        continue
    crc, length, kind = struct.unpack_from("<IHB", data, at)
    body += data[at + 7 : at + 7 + length]
    at += 7 + length
    if kind in (1, 4):
        record, body = pb.Record.FromString(body), b""
        if record.WhichOneof("record_type") == "history":
            rows.append({i.key or ".".join(i.nested_key): json.loads(i.value_json)
                         for i in record.history.item})
print(json.dumps(rows))
"""


class Exported(unittest.TestCase):
    """Two segments, 60 steps; the second replaced rows of the first."""

    @classmethod
    def setUpClass(cls):
        cls.path = tempfile.mkdtemp(prefix="capstan_exports_")
        cls.addClassCleanup(shutil.rmtree, cls.path)
        cls.run_path = os.path.join(cls.path, "run")
        fake_run.write_segment(cls.run_path, 1, 0, 40)
        fake_run.write_segment(cls.run_path, 2, 30, 30, lr=0.002)
        cls.run_read = Run(cls.run_path)

    def libraries(self):
        try:
            return exporters.python()
        except exporters.Missing as error:
            self.skipTest(str(error))

    def script(self, python, name, *words):
        command = [python, os.path.join(POSTPROCESS, name), self.run_path, *words]
        env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "WANDB_MODE": "offline"}
        return subprocess.run(command, check=True, cwd=self.path, env=env, text=True,
                              stdout=subprocess.PIPE, timeout=600).stdout.strip()

    def expected(self):
        return {step: metrics for step, metrics in published.rows(self.run_read)}

    def test_names_and_numbers(self):
        rows, columns = self.expected(), self.run_read.columns
        self.assertEqual(sorted(rows), list(range(1, 61)))
        for i in (0, 29, 30, 59):
            row = rows[i + 1]
            self.assertEqual(row["train/cross_entropy_loss"], columns["loss"][i])
            self.assertEqual(row["train/loss"], columns["loss_total"][i])
            self.assertAlmostEqual(row["throughput/mfu"], 100 * columns["mfu"][i])
            share = columns["drop_sender_fraction"][i]
            dropped = round(share * columns["assignments"][i])
            self.assertEqual(row["moe/sender_dropped"], dropped)
            self.assertEqual(row["moe/dropped_assignments"],
                             dropped + row["moe/receiver_dropped"])
            self.assertEqual(row["train/router/layer_2/entropy"],
                             self.run_read.layer["entropy"][i, 2])
        self.assertIn("eval_dropless/held_out/loss", rows[25])
        self.assertNotIn("eval_dropless/held_out/loss", rows[26])

    def test_tensorboard_reads_every_value(self):
        python = self.libraries()
        folder = os.path.join(self.path, "events")
        self.script(sys.executable, "to_tensorboard.py", "-o", folder)
        read = subprocess.run([python, "-c", READ_EVENTS, folder], check=True, text=True,
                              stdout=subprocess.PIPE).stdout
        found = {tag: dict(values) for tag, values in json.loads(read).items()}
        count = 0
        for step, metrics in self.expected().items():
            for name, value in metrics.items():
                self.assertEqual(np.float32(found[name][step]), np.float32(value), name)
                count += 1
        self.assertEqual(count, sum(len(values) for values in found.values()))

    def test_wandb_reads_every_value(self):
        python = self.libraries()
        folder = self.script(python, "to_wandb.py", "-o", os.path.join(self.path, "w"))
        files = [name for name in os.listdir(folder) if name.endswith(".wandb")]
        self.assertEqual(len(files), 1, os.listdir(folder))
        path = os.path.join(folder, files[0])
        read = subprocess.run([python, "-c", READ_WANDB, path], check=True, text=True,
                              stdout=subprocess.PIPE).stdout
        found = {row["_step"]: row for row in json.loads(read)}
        for step, metrics in self.expected().items():
            mine = {k: v for k, v in found[step].items() if not k.startswith("_")}
            self.assertEqual(mine, metrics)


class Watched(unittest.TestCase):
    def setUp(self):
        self.path = tempfile.mkdtemp(prefix="capstan_watch_")
        self.addCleanup(shutil.rmtree, self.path)

    def test_figures_of_a_finished_run(self):
        fake_run.write_segment(self.path, 1, 0, 60)
        with open(os.path.join(self.path, "status"), "w") as file:
            file.write("state=running step=60 steps=120 tokens=1 loss=2\n")
        text, status = watch.view(self.path)
        run = Run(self.path)
        self.assertEqual(status["state"], "running")
        for part in ("step 60 of 120", "50.0%", f"loss {run.columns['loss'][-1]:.4f}",
                     f"held-out {run.evals['loss'][-1]:.4f}", "to go", "checkpoint",
                     "sender", "receiver"):
            self.assertIn(part, text)
        self.assertEqual(watch.sparkline([0, 0, 7, 7, 3.5, 3.5], 3), "▁█▅")

    def test_text_alone_is_enough(self):
        fake_run.write_segment(self.path, 1, 0, 20)
        whole, _ = watch.view(self.path)
        shutil.rmtree(os.path.join(self.path, "diag"))
        text, _ = watch.view(self.path)
        self.assertEqual(text.splitlines()[:5], whole.splitlines()[:5])
        self.assertIn("history.txt", text)

    def test_follows_a_run_that_is_written(self):
        words = [os.path.join(HERE, "fake_run.py"), self.path, "1", "0", "60", "0.02"]
        writer = subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE)
        self.addCleanup(writer.stdout.close)
        self.addCleanup(writer.wait)
        seen = set()
        writer.stdout.readline()
        while writer.poll() is None:
            text, _ = watch.view(self.path)
            seen.add(text.splitlines()[1].split()[1])
            writer.stdout.readline()
            time.sleep(0.05)
        self.assertGreater(len(seen), 3)


if __name__ == "__main__":
    unittest.main()
