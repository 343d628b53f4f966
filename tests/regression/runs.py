"""Runs capstan for the tests of this folder, and reads what it leaves.

    class Some(runs.Case):
        def test_it(self):
            done = self.capstan("a", "job/steps=5", ranks=2)  # tiny.deck, directory a
            self.assertEqual(done.code, 0, done.output)
            history = self.history("a")

A case has a temporary folder of its own, with a corpus that is made once a process.
$CAPSTAN_BUILD and $CAPSTAN_SOURCE say which build is tested.
"""
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True

import h5py  # noqa: E402
import numpy as np  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.environ.get("CAPSTAN_SOURCE", os.path.dirname(os.path.dirname(HERE)))
BUILD = os.environ.get("CAPSTAN_BUILD", os.path.join(SOURCE, "build", "cpu"))
CAPSTAN = os.path.join(BUILD, "capstan")
PREP = os.path.join(BUILD, "capstan-prep")
TINY = os.path.join(SOURCE, "inputs", "tests", "tiny.deck")
sys.path.insert(0, os.path.join(SOURCE, "postprocess"))
TOKENS = 256  # of a step of tiny.deck
# The optimizers of the published recipe, by group.
PUBLISHED_GROUPS = [
    "optimizer/kind=adam",
    "optimizer/weight_decay=0",
    "optimizer/clip_norm=0",
    "optimizer/norm_scope=layer",
    "group1/match=*/w_*, */shared_*, */latent_down, */latent_up, */gate_down, */gate_up",
    "group1/kind=muonh",
    "group1/lr=0.013",
    "group2/match=head/table",
    "group2/kind=adamh",
    "group2/lr=0.013",
]
TIMEOUT = 180  # seconds; a run takes one or two

# Several ranks on a few cores, root included; what the environment says stands.
MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMP_NUM_THREADS": "1",
    "OMP_PROC_BIND": "false",
    "KOKKOS_DISABLE_WARNINGS": "1",
}
# Columns of the history that no two runs share.
VOLATILE = ("segment", "tokens_per_second", "mfu", "memory_peak_mib")


def write_tokens(prefix, documents, dtype=np.uint16):
    """PREFIX.bin and PREFIX.idx in Megatron's format from lists of ids."""
    code = {np.uint16: 8, np.int32: 4}[dtype]
    sizes = [len(document) for document in documents]
    np.concatenate([np.asarray(d, dtype) for d in documents]).tofile(prefix + ".bin")
    pointers = np.cumsum([0] + sizes[:-1]) * np.dtype(dtype).itemsize
    n = len(documents)
    with open(prefix + ".idx", "wb") as file:
        file.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, code, n, n + 1))
        file.write(np.asarray(sizes, np.int32).tobytes())
        file.write(pointers.astype(np.int64).tobytes())
        file.write(np.arange(n + 1, dtype=np.int64).tobytes())


def children(pid):
    """Process numbers below `pid`, from /proc."""
    parents = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            continue  # gone meanwhile
        parents.setdefault(int(fields[1]), []).append(int(name))
    found, waiting = [], [pid]
    while waiting:
        below = parents.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


class Done:
    """What a run ended with."""

    def __init__(self, code, output, seconds):
        self.code, self.output, self.seconds = code, output, seconds


class Job:
    """A run that goes on. `directory` is its run directory."""

    def __init__(self, command, folder, directory):
        self.directory, self.ranks = directory, "mpirun" in command[0]
        self.output = tempfile.TemporaryFile("w+", errors="replace")
        self.start = time.monotonic()
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            env={**MPI, **os.environ},
            stdout=self.output,
            stderr=subprocess.STDOUT,
        )

    def wait(self, timeout=TIMEOUT):
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        seconds = time.monotonic() - self.start
        with self.output as output:
            output.seek(0)
            return Done(code, output.read(), seconds)

    def pids(self):
        """Process numbers of the ranks (mpirun itself left out)."""
        if not self.ranks:
            return [self.process.pid]
        return [pid for pid in children(self.process.pid) if is_capstan(pid)]

    def kill(self):
        """SIGKILL to mpirun and every rank at once."""
        for pid in {self.process.pid, *self.pids()}:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def until(self, happened, what, timeout=TIMEOUT):
        """Waits for happened() to be true while the run goes on."""
        end = time.monotonic() + timeout
        while not happened():
            if self.process.poll() is not None or time.monotonic() > end:
                self.kill()
                raise AssertionError(f"no {what}:\n{self.wait().output}")
            time.sleep(0.01)

    def until_step(self, step):
        self.until(lambda: last_step(self.directory) >= step, f"step {step}")

    def until_event(self, kind, count=1):
        def happened():
            with open(os.path.join(self.directory, "history.txt")) as file:
                return file.read().count(f"kind={kind} ") >= count

        self.until_step(1)
        self.until(happened, f"event {kind}")


def is_capstan(pid):
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe")) == "capstan"
    except OSError:
        return False


class Segment:
    """One segment of history.txt, all as text: the text of a double is its bits."""

    def __init__(self, number):
        self.number, self.start_step = number, 0
        self.names, self.rows, self.evals, self.events = [], {}, {}, []

    def values(self, column):
        at = self.names.index(column)
        return np.array([float(row[at]) for row in self.rows.values()])

    def stable(self):
        """{step: fields that the next run must have too}."""
        at = [i for i, name in enumerate(self.names) if not volatile(name)]
        return {step: [row[i] for i in at] for step, row in self.rows.items()}


def volatile(name):
    return name in VOLATILE or name == "step_seconds" or name.startswith("seconds_")


def read_history(directory):
    """[Segment] of a run directory."""
    path = os.path.join(directory, "history.txt")
    if not os.path.exists(path):
        return []
    with open(path) as file:
        lines = file.read().split("\n")[:-1]
    segments, names = [], []
    for line in lines:
        kind, _, rest = line.partition(" ")
        head = rest.partition(" text=")[0]
        pairs = dict(part.partition("=")[::2] for part in head.split())
        if kind == "#segment":
            names = line[1:].split()
        elif kind == "#start":
            segments.append(Segment(int(pairs["segment"])))
            segments[-1].start_step = int(pairs["start_step"])
            segments[-1].names = names
        elif kind == "#eval":
            segments[-1].evals[int(pairs["step"])] = pairs["loss"]
        elif kind == "#event":
            text = rest.partition("text=")[2]
            segments[-1].events.append((int(pairs["step"]), pairs["kind"], text))
        else:
            fields = line.split()
            segments[-1].rows[int(fields[1])] = fields
    return segments


def last_step(directory):
    segments = read_history(directory)
    return max(segments[-1].rows, default=0) if segments else 0


def merged(segments):
    """{step: stable fields}: a segment replaces what lies after its start."""
    rows = {}
    for segment in segments:
        rows = {step: row for step, row in rows.items() if step <= segment.start_step}
        rows.update(segment.stable())
    return rows


def checkpoints(directory):
    """{step: folder} of complete checkpoints."""
    folder, found = os.path.join(directory, "ckpt"), {}
    for name in os.listdir(folder) if os.path.isdir(folder) else []:
        if name.startswith("step_") and not name.endswith(".part"):
            found[int(name[5:])] = os.path.join(folder, name)
    return found


def state_hash(checkpoint):
    with h5py.File(os.path.join(checkpoint, "meta.h5"), "r") as file:
        value = file.attrs["state_hash"]
    return value.decode() if isinstance(value, bytes) else value


class Case(unittest.TestCase):
    """Has a folder, a corpus in it, and runs of tiny.deck."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="capstan_regression_")
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        library = os.path.dirname(json.__file__)
        texts = [library, os.path.join(os.path.dirname(library), "email")]
        words = ["-q", "-o", "corpus", "--suffix", ".py", *texts]
        subprocess.run([PREP, *words], cwd=cls.folder, check=True, capture_output=True)

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def command(self, directory, words, ranks, deck=TINY):
        """-i is left out where the words restart without a deck (deck=None)."""
        deck_words = ["-i", deck, "data/files=corpus", "data/valid_fraction=0.1"]
        words = [*(deck_words if deck else []), *words]
        mpi = ["mpirun", "-np", str(ranks)] if ranks > 1 else []
        if mpi and not shutil.which("mpirun"):
            self.skipTest("no mpirun here")
        return [*mpi, CAPSTAN, "-d", directory, "job/log_every=10", *words]

    def start(self, directory, *words, ranks=1, deck=TINY):
        command = self.command(directory, words, ranks, deck)
        job = Job(command, self.folder, self.path(directory))
        self.addCleanup(lambda: job.process.poll() is None and job.kill())
        return job

    def capstan(self, directory, *words, ranks=1, deck=TINY, code=None):
        done = self.start(directory, *words, ranks=ranks, deck=deck).wait()
        if code is not None:
            self.assertEqual(done.code, code, done.output)
        return done

    def history(self, directory):
        return read_history(self.path(directory))

    def last_hash(self, directory):
        found = checkpoints(self.path(directory))
        return state_hash(found[max(found)])

    def assert_says(self, done, *texts):
        for text in texts:
            self.assertIn(text, done.output)

    def assert_close(self, one, other, tolerance, what=""):
        """Every value to a relative tolerance."""
        one, other = np.asarray(one, float), np.asarray(other, float)
        self.assertEqual(one.shape, other.shape, what)
        error = np.abs(one - other) / np.maximum(np.abs(other), 1e-30)
        self.assertLessEqual(error.max(), tolerance, f"{what}: worst at {error.argmax()}")
