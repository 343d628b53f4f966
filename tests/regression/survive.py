#!/usr/bin/python3
"""Harm done to runs at random: each goes on bit for bit, or is refused with reasons.

    survive.py [--trials 10] [--seed 1]
    survive.py --seed 1 --first 17 --trials 1        trial 17 again

A trial kills one rank or the whole job of two (in a step, a save, a rename), or damages
checkpoints, or fills a disk. Then `-r latest` must start from the newest checkpoint that
is intact and say so, and the run must be the one that nobody harmed: rows of the history
and state hash. Where no checkpoint is left, it must refuse with every problem. All
choices follow from seed and number; moments in real time differ from run to run.
"""
import argparse
import glob
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
import unittest

import runs

import capstan_run  # found through runs
import h5py

FILE = 4  # exit code
EVERY = 2  # steps between checkpoints
DEADLINE = 30  # seconds in which a job must end after one of its ranks has died
WORDS = ["schedule/tokens=102400", "schedule/warmup_fraction=0.1", "grid/expert=2"]
WORDS += ["eval/at_end=false", f"checkpoint/every_tokens={EVERY * runs.TOKENS}"]
LONG = "job/steps=100000"
OPTIONS = argparse.Namespace(trials=10, seed=1, first=0)


def printed(job):
    """Without moving the place at which the job writes."""
    return os.pread(job.output.fileno(), 1 << 20, 0)


def cut(path, rng):
    os.truncate(path, rng.randrange(os.path.getsize(path)))


def flip(path, place, rng):
    with open(path, "r+b") as file:
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ (1 << rng.randrange(8))]))


def flip_value(path, rng):
    """One bit of a stored tensor, or of meta.h5's table of hashes."""
    found = {}

    def collect(name, item):
        if isinstance(item, h5py.Dataset) and item.id.get_offset() is not None:
            found[name] = item.id.get_offset(), item.id.get_storage_size()

    with h5py.File(path, "r") as file:
        file.visititems(collect)
    meta = path.endswith("meta.h5")
    begin, size = found["pieces/hash" if meta else rng.choice(sorted(found))]
    flip(path, begin + rng.randrange(size), rng)


def harm(folder, rng, surely):
    """Damages a file of a checkpoint; what was done. `surely`: no byte that is idle."""
    path = rng.choice(sorted(glob.glob(os.path.join(folder, "*.h5"))))
    kind = rng.choice(["cut", "remove", "value"] if surely else ["bit", "bit", "cut"])
    if kind == "cut":
        cut(path, rng)
    elif kind == "remove":
        os.unlink(path)
    elif kind == "value":
        flip_value(path, rng)
    else:
        flip(path, rng.randrange(os.path.getsize(path)), rng)
    return f"{kind} {os.path.relpath(path, os.path.dirname(folder))}"


class Trials(runs.Case):
    ranks = 2

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.gold_steps = 0

    def train(self, directory, *words, **more):
        return self.capstan(directory, *WORDS, *words, ranks=self.ranks, **more)

    def gold(self, steps):
        """(rows, {step: state hash}) of a run that nobody harmed."""
        cls = type(self)
        if steps > cls.gold_steps:
            cls.gold_steps = 2 * max(steps, 20)
            name, end = f"gold{cls.gold_steps}", f"job/steps={cls.gold_steps}"
            done = self.train(name, end, "checkpoint/keep_last=1", code=0)
            saves = [line for line in done.output.splitlines() if "state_hash=" in line]
            pairs = [dict(p.split("=") for p in s.split() if "=" in p) for s in saves]
            cls.hashes = {int(pair["step"]): pair["state_hash"] for pair in pairs}
            cls.rows = runs.merged(self.history(name))
        return cls.rows, cls.hashes

    def survives(self, name, words=(), harmed=(), useless=()):
        """Restarts and compares. `harmed` ones may be left, `useless` ones must be."""
        before = runs.checkpoints(self.path(name))
        end = max(before) // EVERY * EVERY + EVERY
        done = self.train(name, *words, f"job/steps={end}", "-r", "latest", code=0)
        segments = self.history(name)
        start = segments[-1].start_step
        self.assert_says(done, f"restart: checkpoint step={start} ")
        self.assertIn(start, set(before) - set(useless))
        left = {step for step in before if step > start}
        self.assertLessEqual(left, set(harmed) | set(useless), "an intact one was left")
        for step in left:
            self.assert_says(done, os.path.basename(before[step]))
        self.is_gold(name, end, segments)
        return start

    def is_gold(self, name, end, segments):
        rows, hashes = self.gold(end)
        mine = runs.merged(segments)
        self.assertEqual(list(mine), list(range(1, end + 1)))
        for step, row in mine.items():
            self.assertEqual(row, rows[step], f"step {step}")
        self.assertEqual(self.last_hash(name), hashes[end])
        columns = capstan_run.Run(self.path(name)).columns
        self.assertEqual(columns["step"].tolist(), list(range(1, end + 1)))
        at = segments[0].names.index("loss")
        text = [float(row[at]) for row in self.all_rows(segments)]
        self.assertEqual(columns["loss"].tolist(), text)
        self.assertEqual(glob.glob(self.path(name, "ckpt", "*.part")), [])

    def all_rows(self, segments):
        rows = {}
        for segment in segments:
            rows = {s: row for s, row in rows.items() if s <= segment.start_step}
            rows.update(segment.rows)
        return rows.values()

    def moment(self, job, rng):
        """Waits for a random moment in what a run does; what it was doing."""
        kind = rng.choice(["step", "save", "rename"])
        longest = {"step": 0.15, "save": 0.02, "rename": 0.004}[kind]
        file = {"step": "", "save": "*.part", "rename": "*.part/meta.h5"}[kind]
        end = time.monotonic() + DEADLINE
        while file and not glob.glob(os.path.join(job.directory, "ckpt", file)):
            self.assertLess(time.monotonic(), end, f"no {kind}")
            time.sleep(0.0003)
        time.sleep(rng.uniform(0, longest))
        return kind

    def kill(self, name, rng, whole):
        said = []
        for restart in range(rng.randint(1, 2)):
            words = ["-r", "latest"] if restart else []
            job = self.start(name, *WORDS, LONG, *words, ranks=self.ranks)
            job.until(lambda: len(self.history(name)) > restart, "segment")
            first = self.history(name)[-1].start_step
            job.until_step(first + EVERY + 1)
            victim = rng.randrange(self.ranks)
            said.append(self.moment(job, rng) + ("" if whole else f" rank {victim}"))
            pids = job.pids()
            if whole:
                job.kill()
            else:
                os.kill(pids[victim], signal.SIGKILL)
            done = job.wait(DEADLINE)
            self.assertNotIn(done.code, (0, 75), done.output)
        return f"in {', '.join(said)}; from step {self.survives(name)}"

    def kill_one(self, name, rng):
        return self.kill(name, rng, False)

    def kill_all(self, name, rng):
        return self.kill(name, rng, True)

    def base(self, name):
        """A copy of a run with three checkpoints."""
        if not os.path.exists(self.path("base")):
            words = ["job/steps=8", "checkpoint/keep_last=3"]
            self.train("base", *words, code=0)
        shutil.copytree(self.path("base"), self.path(name))
        return dict(sorted(runs.checkpoints(self.path(name)).items()))

    def damage(self, name, rng):
        """One or two of three checkpoints, anywhere in their files."""
        folders = self.base(name)
        chosen = rng.sample(sorted(folders), rng.randint(1, 2))
        said = [harm(folders[step], rng, False) for step in chosen]
        start = self.survives(name, harmed=chosen)
        return f"{', '.join(said)}; from step {start}"

    def ruin(self, name, rng):
        """The newest ones, surely, and what names the newest."""
        folders = self.base(name)
        chosen = sorted(folders)[rng.choice([1, 2]) :]
        said = [harm(folders[step], rng, True) for step in chosen]
        if rng.random() < 0.5:
            cut(self.path(name, "ckpt", "latest"), rng)
            said.append("cut latest")
        start = self.survives(name, useless=chosen)
        return f"{', '.join(said)}; from step {start}"

    def ruin_all(self, name, rng):
        folders = self.base(name)
        said = [harm(folder, rng, True) for folder in folders.values()]
        done = self.train(name, "job/steps=10", "-r", "latest", code=FILE)
        self.assert_says(done, *map(os.path.basename, folders.values()))
        self.assertEqual(len(self.history(name)), 1)
        self.assertEqual(runs.last_step(self.path(name)), 8)
        return f"{', '.join(said)}; refused"

    def mounted(self, folder, size):
        os.mkdir(folder)
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}k", "survive", folder]
        if subprocess.run(command, capture_output=True).returncode:
            return False
        self.addCleanup(subprocess.run, ["umount", "-l", folder])
        return True

    def full_disk(self, name, rng):
        """It fills while checkpoints are kept; later there is room again."""
        size, run = rng.randint(5000, 9000), f"{name}/run"
        words, keep = [], "checkpoint/keep_last=100"
        small = self.mounted(self.path(name), size)
        job = self.start(run, *WORDS, LONG, keep, ranks=self.ranks)
        job.until_step(EVERY + 1)
        if not small:  # no right to mount: writes beyond a size fail
            for pid in job.pids():
                limits = (100_000, resource.RLIM_INFINITY)
                resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)
        job.until(lambda: b"training goes on" in printed(job), "failed save")
        time.sleep(rng.uniform(0, 0.2))
        job.process.send_signal(signal.SIGUSR1)
        done = job.wait()
        self.assertEqual(done.code, FILE, done.output)
        self.assert_says(done, "training goes on")
        if small:
            grow = ["mount", "-o", "remount,size=200m", self.path(name)]
            subprocess.run(grow, check=True)
        start = self.survives(run, [keep])
        return f"{size} KiB, {'tmpfs' if small else 'size limit'}; from step {start}"

    def test_trials(self):
        kinds = [self.kill_one, self.damage, self.kill_all, self.ruin, self.full_disk]
        kinds += [self.kill_one, self.damage, self.kill_all, self.ruin, self.ruin_all]
        for number in range(OPTIONS.first, OPTIONS.first + OPTIONS.trials):
            rng = random.Random(f"{OPTIONS.seed}:{number}")
            kind = kinds[number % len(kinds)]
            name = f"trial{number}"
            with self.subTest(trial=number, seed=OPTIONS.seed, kind=kind.__name__):
                print(f"trial {number} seed {OPTIONS.seed} {kind.__name__}", end=": ")
                sys.stdout.flush()
                print(kind(name, rng), flush=True)
            self.doCleanups()
            shutil.rmtree(self.path(name), ignore_errors=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for option in ("trials", "seed", "first"):
        default = getattr(OPTIONS, option)
        parser.add_argument(f"--{option}", type=int, default=default)
    parser.parse_args(namespace=OPTIONS)
    unittest.main(argv=sys.argv[:1])
