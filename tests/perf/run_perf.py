#!/usr/bin/python3
"""Times Capstan beside the PyTorch peer on inputs/bench/desk.deck, and checks the claims.

    run_perf.py CAPSTAN [--pairs 3] [--steps 10] [--bound 2.0] [--only same,...]

same    the peer has the same parameters and gives the same loss to a dumped step
ratio   tokens/s of Capstan / the peer's just before and after, for one rank with two
        threads and for two ranks with one; the medians must reach the bound
phases  seconds, GFLOP/s and share of the measured GEMM peak by phase
flat    seconds a token, the optimizer aside, from 64 to 384 experts: within 15 %

Run it on a quiet machine. Exit code 1 if a check fails, 2 if a program does, 77 (skipped)
where PyTorch is missing.
"""
import argparse
import contextlib
import importlib.util
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, "..", ".."))
DECK = os.path.join(ROOT, "inputs", "bench", "desk.deck")
sys.path.insert(0, os.path.join(ROOT, "postprocess"))

from capstan_run import Run  # noqa: E402

VOCAB, TOKENS, WARM_UP = 8192, 400_000, 2
FLAT_EXPERTS, FLATNESS = (64, 128, 384), 1.15
SAME_LOSS = 2e-5  # float on both sides, sums in other orders
ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "KOKKOS_DISABLE_WARNINGS": "1",
    # Both programs: threads that wait spin for microseconds, not milliseconds, so that
    # another process on the machine does not stall every parallel loop.
    "GOMP_SPINCOUNT": "2000",
}


def call(command, threads):
    """Output of a program that must succeed."""
    environment = {**os.environ, **ENVIRONMENT, "OMP_NUM_THREADS": str(threads)}
    environment["OMP_PROC_BIND"] = "false"
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    if result.returncode:
        print(" ".join(command), result.stdout[-2000:], result.stderr[-4000:], sep="\n")
        sys.exit(2)
    return result.stdout


class Bench:
    """Runs of the two programs on the same kind of batch: random tokens, one document."""

    def __init__(self, capstan, steps, folder):
        self.capstan, self.steps, self.folder = capstan, steps, folder
        self.data = os.path.join(folder, "random.u16")
        generator = np.random.default_rng(1)
        generator.integers(VOCAB, size=TOKENS, dtype=np.uint16).tofile(self.data)

    @contextlib.contextmanager
    def train(self, *overrides, ranks=1, threads=2, steps=None):
        """The directory of a finished run of the desk deck, removed afterwards."""
        rundir = os.path.join(self.folder, "run")
        keys = [f"job/steps={steps or self.steps}", f"job/threads={threads}"]
        keys += [f"grid/expert={ranks}", f"data/files={self.data}", *overrides]
        command = [self.capstan, "-i", DECK, "-d", rundir, *keys]
        if ranks > 1:
            command = ["mpirun", "-np", str(ranks), *command]
        call(command, threads)
        try:
            yield rundir
        finally:
            shutil.rmtree(rundir)

    def columns(self, *overrides, **how):
        """The history of a run without its first two steps."""
        with self.train(*overrides, **how) as rundir:
            columns = Run(rundir).columns
        return {name: values[WARM_UP:] for name, values in columns.items()}

    def peer(self, *arguments):
        """The key=value pairs that the peer prints, the last of a name."""
        command = [sys.executable, os.path.join(HERE, "peer.py"), *arguments]
        return dict(re.findall(r"(\w+)=(\S+)", call(command, 2)))

    def peer_rate(self):
        return float(self.peer("--steps", str(self.steps))["tokens_per_second"])


def check(name, ok, text):
    print(f"{name}: {'ok' if ok else 'FAILED'}: {text}", flush=True)
    return ok


def same(bench, _):
    """The two programs train one model."""
    plan = call([bench.capstan, "-m", "-i", DECK], 1)
    total = int(re.search(r"parameters_total=(\d+)", plan).group(1))
    biases = 6 * 64  # of the routers: state that the plan counts and PyTorch does not
    with bench.train("job/dump_step=1", steps=1) as rundir:
        found = bench.peer("--dump", os.path.join(rundir, "diag", "dump.1.h5"))
    loss, dumped = float(found["loss"]), float(found["dumped"])
    count = int(found["parameters"])
    ok = check("parameters", count + biases == total, f"peer {count}, plan {total}")
    close = abs(loss / dumped - 1) < SAME_LOSS
    return check("loss", close, f"peer {loss}, dumped {dumped}") and ok


def ratio(bench, options):
    """Runs between two of the peer, so that a slow minute is slow for both."""
    ways = {"1 rank x 2 threads": (1, 2), "2 ranks x 1 thread": (2, 1)}
    ratios = {name: [] for name in ways}
    after = bench.peer_rate()
    for pair in range(options.pairs):
        before = after
        rates = {}
        for name, (ranks, threads) in ways.items():
            columns = bench.columns(ranks=ranks, threads=threads)
            rates[name] = statistics.median(columns["tokens_per_second"])
        after = bench.peer_rate()
        peer = (before + after) / 2
        for name, rate in rates.items():
            ratios[name].append(rate / peer)
            text = f"pair {pair + 1}: {name}: {rate:.0f} tokens/s, peer {peer:.0f}"
            print(f"{text}, ratio {rate / peer:.2f}", flush=True)
    medians = {name: statistics.median(values) for name, values in ratios.items()}
    results = [
        check("ratio", median >= options.bound, f"{name}: ratio_median={median:.2f}")
        for name, median in medians.items()
    ]
    return all(results)


def gemm_peak(threads):
    """GFLOP/s of a float product of 2048^3 by oneDNN, the best of ten."""
    import torch

    torch.set_num_threads(threads)
    n = 2048
    x, w = torch.randn(n, n).to_mkldnn(), torch.randn(n, n).to_mkldnn()
    best = float("inf")
    with torch.no_grad():
        for _ in range(11):
            start = time.perf_counter()
            torch.nn.functional.linear(x, w)
            best = min(best, time.perf_counter() - start)
    return 2 * n**3 / best / 1e9


def read_timing(path):
    """[(phase, {column: value})] of timing.txt."""
    names, rows = [], []
    with open(path) as file:
        for line in file:
            words = line.split()
            if line.startswith("#phase"):
                names = words[1:]
            elif words and not line.startswith("#"):
                rows.append((words[0], dict(zip(names, map(float, words[1:])))))
    return rows


def phases(bench, _):
    """Where the time goes, and what the products reach of the GEMM peak."""
    with bench.train() as rundir:
        rows = read_timing(os.path.join(rundir, "timing.txt"))
    peak = gemm_peak(2)
    print(f"GEMM peak of two threads: {peak:.0f} GFLOP/s")
    print(f"{'phase':<18}{'seconds':>9}{'share':>8}{'GFLOP/s':>9}{'of peak':>9}")
    for name, row in rows:
        rate = row["gflop"] / row["seconds_mean"] if row["seconds_mean"] else 0.0
        text = f"{name:<18}{row['seconds_mean']:>9.3f}{row['share']:>8.1%}"
        text += f"{rate:>9.1f}{rate / peak:>9.1%}" if row["gflop"] else ""
        print(text)
    table = dict(rows)
    lost = table["unaccounted"]["share"]
    seconds = table["total"]["seconds_mean"]
    seconds -= table.get("checkpoint", {"seconds_mean": 0.0})["seconds_mean"]
    rate = table["total"]["gflop"] / seconds
    text = f"training: {rate:.0f} GFLOP/s, {rate / peak:.1%} of the peak"
    return check("phases", lost < 0.1 and rate > 0, f"{text}; unaccounted {lost:.1%}")


def flat(bench, options):
    """Experts cost nothing by their number: the same rows are only sorted finer."""
    cost = {experts: [] for experts in FLAT_EXPERTS}
    for _ in range(options.pairs):
        for experts in FLAT_EXPERTS:
            columns = bench.columns(f"moe/experts={experts}")
            seconds = columns["step_seconds"] - columns["seconds_optimizer"]
            cost[experts].append(statistics.median(seconds))
    medians = {experts: statistics.median(values) for experts, values in cost.items()}
    text = ", ".join(f"E={key}: {value:.3f} s" for key, value in medians.items())
    worst = max(medians.values()) / min(medians.values())
    text = f"a step without the optimizer: {text}; worst ratio {worst:.3f}"
    return check("flat", worst <= FLATNESS, text)


CHECKS = {"same": same, "ratio": ratio, "phases": phases, "flat": flat}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("capstan", help="path of the program")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10, help="of each run")
    parser.add_argument("--bound", type=float, default=2.0, help="least median ratio")
    parser.add_argument("--only", default=",".join(CHECKS), help="checks, by commas")
    options = parser.parse_args()
    if importlib.util.find_spec("torch") is None:
        print(f"no PyTorch for {sys.executable}: skipped")
        return 77
    folder = tempfile.mkdtemp(prefix="capstan_perf_")
    try:
        bench = Bench(os.path.abspath(options.capstan), options.steps, folder)
        print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
        results = [CHECKS[name](bench, options) for name in options.only.split(",")]
    finally:
        shutil.rmtree(folder)
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
