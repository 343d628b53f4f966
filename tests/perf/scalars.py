#!/usr/bin/python3
"""A step of the desk deck in float and in bf16, phase by phase.

    tests/perf/scalars.py CAPSTAN CORPUS [PAIRS]

Runs float and bf16 in turn on one rank, PAIRS times (default 3), one thread each, and
prints seconds a step of each phase (the least of the runs) and the ratio. Exit code 1
when a step in bf16 is not at least 1.25 times as fast.
"""
import os
import subprocess
import sys
import tempfile

STEPS, WANTED = 5, 1.25
DECK = os.path.join(os.path.dirname(__file__), "..", "..", "inputs", "bench", "desk.deck")
LEFT_OUT = ("total", "checkpoint", "unaccounted")
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OMP_PROC_BIND": "false",
               "KOKKOS_DISABLE_WARNINGS": "1"}


def phases(capstan, corpus, scalar):
    """{phase: (seconds, GFLOP/s)} of the steps but the first."""
    with tempfile.TemporaryDirectory(prefix="capstan_scalars_") as folder:
        words = [f"data/files={corpus}", f"model/scalar={scalar}", "job/threads=1"]
        command = [capstan, "-i", DECK, "-d", folder, f"job/steps={STEPS}", *words]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL,
                       env={**os.environ, **ENVIRONMENT})
        found = {}
        with open(os.path.join(folder, "timing.txt")) as file:
            for line in file:
                words = line.split()
                if not line.startswith("#") and words[0] not in LEFT_OUT:
                    found[words[0]] = (float(words[1]) / (STEPS - 1), float(words[7]))
    return found


def best(runs):
    """The least time of each phase."""
    return {name: min(run[name] for run in runs) for name in runs[0]}


def main(capstan, corpus, pairs="3"):
    runs = {"float": [], "bf16": []}
    for _ in range(int(pairs)):
        for scalar, list_of in runs.items():
            list_of.append(phases(capstan, corpus, scalar))
    one, other = best(runs["float"]), best(runs["bf16"])
    print(f"{'phase':18s} {'float ms':>9s} {'bf16 ms':>9s} {'ratio':>6s}  GFLOP/s")
    for name in sorted(one, key=lambda name: -one[name][0]):
        a, b = one[name], other[name]
        if a[0] < 1e-4:
            continue
        rates = f"{a[1]:6.0f} {b[1]:6.0f}" if a[1] > 0 else ""
        ratio = a[0] / max(b[0], 1e-9)
        print(f"{name:18s} {1e3 * a[0]:9.1f} {1e3 * b[0]:9.1f} {ratio:6.2f}  {rates}")
    sums = [sum(seconds for seconds, _ in run.values()) for run in (one, other)]
    ratio = sums[0] / sums[1]
    print(f"{'step':18s} {1e3 * sums[0]:9.1f} {1e3 * sums[1]:9.1f} {ratio:6.2f}")
    return 0 if ratio >= WANTED else 1


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
