#!/usr/bin/python3
"""The run page: what is in it, its size and speed, and how it looks in Chromium."""
import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
POSTPROCESS = os.path.join(HERE, "..", "..", "postprocess")
sys.path[:0] = [HERE, POSTPROCESS]
sys.dont_write_bytecode = True

import h5py  # noqa: E402
import numpy as np  # noqa: E402

import fake_run  # noqa: E402
import report_data  # noqa: E402

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
EXPERIMENT = "<experiment>\ngoal = see it\nhypothesis = below 2 </script> nats\n"
EXPERIMENT += "falsified_by = 2.1 at the end\n"
LAYERS, EXPERTS = 48, 384


def page_data(path):
    """The JSON of a page."""
    with open(path) as file:
        text = file.read()
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text)
    return text, json.loads(found.group(1))


def long_run(directory, steps):
    """A run of many steps in one segment, written at once; one step has a spike."""
    os.makedirs(os.path.join(directory, "diag"))
    step = np.arange(1, steps + 1)
    rng = np.random.default_rng(1)
    values = {"loss": 2 + 3 * np.exp(-step / 2e4) + 0.02 * rng.standard_normal(steps)}
    values["loss"][steps // 2] = 9.5
    plain = fake_run.row(1, random.Random(1))
    for name, value in plain.items():
        noise = 1 + 0.1 * rng.standard_normal(steps)
        values.setdefault(name, value * noise)
    values["tokens"] = step * 1024
    values["step"] = step
    values["assignments"] = np.full(steps, 100)
    with h5py.File(os.path.join(directory, "diag", "history.1.h5"), "w") as file:
        file.attrs.update(segment=1, start_step=0, format=1, grid=[1, 11, 64], ranks=704)
        file.attrs["deck"] = np.bytes_(EXPERIMENT + "<job>\nname = long\n")
        for name, column in values.items():
            file[name] = column
        shape = (steps, 2)
        file.create_dataset("layer/load_max_over_mean", shape, "f8", fillvalue=1.5)
        n = steps // 200
        for name, column in (("step", step[199::200]), ("tokens", step[199::200] * 1024)):
            file[f"events/{name}"] = column
        file["events/kind"] = np.full(n, b"checkpoint", "S16")
        file["events/text"] = np.full(n, b"ckpt/step", "S240")
    with h5py.File(os.path.join(directory, "diag", "experts.1.h5"), "w") as file:
        file.attrs.update(segment=1, start_step=0)
        file["step"] = step[steps // 60 :: steps // 60]
        rows = len(file["step"])
        file["load"] = rng.poisson(1365, (rows, LAYERS, EXPERTS)).astype("i4")


class Page(unittest.TestCase):
    def setUp(self):
        self.path = tempfile.mkdtemp(prefix="capstan_report_")
        self.addCleanup(shutil.rmtree, self.path)

    def file(self, *names):
        return os.path.join(self.path, *names)

    def report(self, *words):
        out = self.file("page.html")
        command = [sys.executable, os.path.join(POSTPROCESS, "report.py"), *words]
        subprocess.run([*command, "-o", out], check=True, cwd=self.path)
        return page_data(out)

    def run_of_two_segments(self, name):
        run = self.file(name)
        fake_run.write_segment(run, 1, 0, 120, name=name)
        fake_run.write_segment(run, 2, 100, 90, lr=0.002, name=name)
        return run

    def chromium(self, url, *options):
        if CHROMIUM is None:
            self.skipTest("no Chromium here")
        with tempfile.TemporaryDirectory() as profile:
            return subprocess.run(
                [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu",
                 "--hide-scrollbars", "--disable-dev-shm-usage",
                 f"--user-data-dir={profile}", *options, url],
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=300, text=True,
            ).stdout


class Content(Page):
    def test_one_run(self):
        run = self.run_of_two_segments("plain")
        text, data = self.report(run)
        for outside in (' src=', "url(h", "@import", "fetch(", "XMLHttpRequest"):
            self.assertFalse(outside in text, outside)
        one = data["runs"][0]
        self.assertEqual(one["restarts"], [{"step": 100, "segment": 2, "changes": [
            ["optimizer/lr", "0.003", "0.002"]]}])
        kinds = {kind for _, _, kind, _, _ in one["events"]["list"]}
        self.assertEqual(kinds, {"start", "restart", "checkpoint"})
        self.assertEqual(one["x"]["step"], list(range(1, 191)))
        # 190 steps need no bins: the page has the numbers themselves.
        self.assertEqual(len(one["curves"]["loss"]), 1)
        self.assertEqual(one["evals"]["step"], [25, 50, 75, 100, 125, 150, 175])
        for name in ("drop_sender_fraction", "grad_norm_embed", "lr", "mfu"):
            self.assertEqual(len(one["curves"][name][0]), 190, name)
        self.assertEqual(one["experts"]["experts"], fake_run.EXPERTS)
        self.assertEqual([m["title"][:4] for m in one["layers"]], ["Load", "Drop"])

    def test_runs_side_by_side(self):
        runs = [self.run_of_two_segments(name) for name in ("base", "wide")]
        band = self.file("told.band")
        with open(band, "w") as file:
            file.write("#band target=x tokens=200000\nfraction tokens loss low high\n"
                       "0.1 20000 5 4.9 5.1\n1.0 200000 2.2 2.1 2.3\n")
        _, data = self.report(*runs, "--band", band)
        self.assertEqual([run["label"] for run in data["runs"]], ["base", "wide"])
        self.assertEqual(data["differences"], [["job/name", "base", "wide"]])
        self.assertEqual(len(data["comparison"][0]), 3)
        self.assertTrue(any("band" in text for _, text in data["runs"][0]["verdict"]))

    def test_question_is_the_one_of_the_start(self):
        run = self.file("asked")
        long_run(run, 1200)
        body = "".join(line + "\n" for line in EXPERIMENT.splitlines()[1:])
        seal = hashlib.sha256(body.encode()).hexdigest()
        line = f"# sha256={seal} written=2026-01-01T00:00:00Z before_step=1\n"
        with open(os.path.join(run, "experiment.txt"), "w") as file:
            file.write(body + line)
        text, data = self.report(run)
        found = data["runs"][0]["experiment"]
        self.assertTrue(found["seal"]["intact"] and found["seal"]["same"])
        self.assertIn(["hypothesis", "below 2 </script> nats"], found["start"])
        with open(os.path.join(run, "experiment.txt"), "w") as file:
            file.write(body.replace("2.1", "3.1") + line)
        found = self.report(run)[1]["runs"][0]["experiment"]
        self.assertFalse(found["seal"]["intact"])
        self.assertFalse(found["seal"]["same"])

    def test_no_run(self):
        command = [sys.executable, os.path.join(POSTPROCESS, "report.py"), self.path]
        done = subprocess.run(command, cwd=self.path, capture_output=True, text=True)
        self.assertEqual(done.returncode, 4)
        self.assertIn("no history to read", done.stderr)


class Long(Page):
    """400,000 steps of 48 layers with 384 experts."""

    def test_envelope_is_that_of_a_double_loop(self):
        values = np.random.default_rng(2).standard_normal(1003)
        values[[5, 700]] = np.nan
        bins = report_data.Bins(len(values), 10)
        mean, low, high = bins.envelope(values)
        for i in range(10):
            rows = [v for v in values[bins.edges[i] : bins.edges[i + 1]] if v == v]
            self.assertAlmostEqual(mean[i], sum(rows) / len(rows))
            self.assertEqual((low[i], high[i]), (min(rows), max(rows)))

    def test_is_small_keeps_the_spike_and_opens_fast(self):
        run = self.file("long")
        long_run(run, 400_000)
        text, data = self.report(run)
        self.assertLess(len(text.encode()), 3_000_000)
        one = data["runs"][0]
        self.assertEqual(max(one["curves"]["loss"][2]), 9.5)
        self.assertLess(max(one["curves"]["loss"][0]), 6)
        self.assertEqual(one["events"]["all"], 2000)
        self.assertEqual(one["events"]["counts"], {"checkpoint": 2000})
        # Marks on the axis reach from the first checkpoint to the last.
        marks = [step for step, _ in one["events"]["marks"]["checkpoint"]]
        self.assertLess(min(marks), 1000)
        self.assertEqual(max(marks), 400_000)
        self.assertLessEqual(len(marks), 601)
        self.assertEqual(one["experts"]["experts"], EXPERTS)
        best = 1e9
        for _ in range(3):
            dom = self.chromium("file://" + self.file("page.html"), "--dump-dom")
            # Where more processes want to run than there are cores, each waits.
            share = max(1, os.getloadavg()[0] / os.cpu_count())
            ready = int(re.search(r'data-ready="(\d+)"', dom).group(1))
            best = min(best, ready / share)
        self.assertLess(best, 2000)


class Look(Page):
    def shot(self, name, width, height, dark=False):
        """Pixels [height, width, 3] of the page in a window of this size."""
        from matplotlib.image import imread

        frame = self.file("frame.html")
        with open(frame, "w") as file:
            file.write(f'<body style="margin:0"><iframe src="page.html" width="{width}" '
                       f'height="{height}" style="border:0"></iframe>')
        out = self.file(f"{name}.png")
        theme = ["--blink-settings=preferredColorScheme=0"] if dark else []
        self.chromium("file://" + frame, f"--screenshot={out}", *theme,
                      f"--window-size={max(500, width)},{height}")
        return imread(out)[:height, :width, :3]

    def test_phone_and_desktop_light_and_dark(self):
        self.report(self.run_of_two_segments("plain"))
        series = {False: (0x2F, 0x6B, 0xD8), True: (0x6A, 0x9C, 0xF2)}
        for name, width in (("phone", 390), ("desktop", 1280)):
            for dark in (False, True):
                pixels = self.shot(name, width, 2600, dark)
                corner = pixels[5, 5].mean()
                self.assertTrue(corner < 0.2 if dark else corner > 0.9, (name, corner))
                ink = np.array(series[dark]) / 255
                drawn = (np.abs(pixels - ink).max(axis=2) < 0.02).sum()
                self.assertGreater(drawn, 300, f"{name}, dark={dark}: no curve")
                # Nothing runs over the right edge: the last columns are background.
                edge = np.abs(pixels[:, -4:] - pixels[5, 5]).max()
                self.assertLess(edge, 0.12, f"{name}, dark={dark}: over the edge")


if __name__ == "__main__":
    unittest.main()
