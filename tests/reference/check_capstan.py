#!/usr/bin/python3
"""Runs Capstan with every feature switch and on several grids and checks each dump.

    check_capstan.py [CAPSTAN] [NAME...]

CAPSTAN is the program (default: $CAPSTAN_BUILD/capstan); names pick cases of features.py.
A run is a few steps of reference.deck; the dump of the third must agree with the
reference: losses, routing and every gradient, to 1e-9. Exits with 1 where one does not.
"""

import glob
import os
import shutil
import struct
import subprocess
import sys
import tempfile

import numpy as np
import torch

import reference
from features import FEATURES, GRIDS, OBJECTIVES, ROUTER_LOSSES, TIGHT, TRANSPORTS, WAYS

HERE = os.path.dirname(os.path.abspath(__file__))
TOLERANCE = 1e-9
# Several ranks on a few cores, root included; what the environment says stands.
MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMP_NUM_THREADS": "1",
    "OMP_PROC_BIND": "false",
}


def write_corpus(prefix, lengths, vocab, seed):
    """PREFIX.bin, PREFIX.idx in Megatron's format: random documents of these lengths."""
    ids = np.random.default_rng(seed).integers(0, vocab, sum(lengths)).astype(np.uint16)
    ids.tofile(prefix + ".bin")
    n = len(lengths)
    pointers = np.cumsum([0] + list(lengths[:-1])) * 2
    with open(prefix + ".idx", "wb") as f:
        f.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, n, n + 1))
        f.write(np.asarray(lengths, np.int32).tobytes())
        f.write(pointers.astype(np.int64).tobytes())
        f.write(np.arange(n + 1, dtype=np.int64).tobytes())


def run_capstan(program, folder, name, ranks, overrides):
    """Path of the dump; an exception with the end of the output where there is none."""
    run = os.path.join(folder, name)
    command = [program, "-i", os.path.join(HERE, "reference.deck"), "-d", run, *overrides]
    if ranks > 1:
        command = ["mpirun", "-np", str(ranks), *command]
    done = subprocess.run(
        command,
        cwd=folder,
        env={**MPI, **os.environ},
        timeout=120,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    dumps = glob.glob(os.path.join(run, "diag", "dump.*.h5"))
    if done.returncode != 0 or len(dumps) != 1:
        tail = "\n".join(done.stdout.splitlines()[-12:])
        raise RuntimeError(f"exit code {done.returncode}, {len(dumps)} dumps\n{tail}")
    return dumps[0]


def check_case(program, folder, name, ranks, overrides):
    """True when the run and its dump are as they should be."""
    try:
        dump = reference.read_dump(run_capstan(program, folder, name, ranks, overrides))
    except (RuntimeError, OSError, KeyError, subprocess.TimeoutExpired) as error:
        print(f"  BAD {name}: {error}", flush=True)
        return False
    padding = (dump["batch"]["segments"] < 0).any().item()
    several = (dump["batch"]["segments"] > 0).any().item()
    layers = dump["router"].values()
    dropped = any(((r["experts"] >= 0) & (r["accepted"] == 0)).any() for r in layers)
    should_drop = set(TIGHT) <= set(overrides)
    table = reference.check(dump, TOLERANCE)
    worst = max(table.rows, key=reference.size_of)
    good = not table.failed() and padding and several and dropped == should_drop
    print(
        f"  {'ok ' if good else 'BAD'} {name:24s} {len(table.rows)} comparisons, "
        f"worst {worst[1]:.1e} {worst[0]}",
        flush=True,
    )
    if not padding or not several:
        print("      the batch has no padding, or only one document a sequence")
    if dropped != should_drop:
        print(f"      assignments were {'' if dropped else 'not '}dropped")
    if table.failed():
        table.print(everything=False)
    return good


def main():
    build = os.environ.get("CAPSTAN_BUILD", os.path.join(HERE, "../../build/cpu"))
    words = sys.argv[1:]
    program = (
        words.pop(0) if words and "/" in words[0] else os.path.join(build, "capstan")
    )
    alone = {**FEATURES, **WAYS, **OBJECTIVES}
    cases = {name: (1, overrides) for name, overrides in alone.items()}
    cases.update({**GRIDS, **TRANSPORTS, **ROUTER_LOSSES})
    if not shutil.which("mpirun"):
        print("  no mpirun here: grids of several ranks are left out")
        cases = {name: case for name, case in cases.items() if case[0] == 1}
    if words:
        cases = {name: cases[name] for name in words}
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        lengths = np.random.default_rng(1).integers(2, 25, 60).tolist()
        write_corpus(os.path.join(folder, "corpus"), lengths, 61, seed=2)
        write_corpus(os.path.join(folder, "short"), [5, 6], 61, seed=3)
        program = os.path.abspath(program)
        bad = [
            name
            for name, (ranks, overrides) in cases.items()
            if not check_case(program, folder, name, ranks, overrides)
        ]
    verdict = "FAILED: " + ", ".join(bad) if bad else "passed"
    print(f"REFERENCE: {len(cases)} runs of Capstan {verdict}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
