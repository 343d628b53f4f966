#!/usr/bin/python3
"""Compares two checkpoints tensor by tensor, whatever grids wrote them.

    ckpt_diff.py runs/a/ckpt/step_00000300 runs/b/ckpt/step_00000300
    ckpt_diff.py runs/a/ckpt runs/b/ckpt --all      the newest ones, moments as well

Lists tensors that only one of them has, those of another shape or type, and of each one
whose values differ: how many do, the greatest absolute and the greatest relative
difference, |a - b| / max(|a|, |b|). NaN equals NaN, 0 equals -0. Masters and router
biases by default. Some rows of one tensor are in memory at a time, never a whole model.

Exit code 0: the same, 1: they differ, 4: one cannot be read (all problems are listed).
"""
import argparse
import os
import sys

import h5py
import numpy as np

import ckpt_ls

BLOCK = 8 << 20  # bytes of a tensor that are read at once; a row at least


class Rows:
    """Reads rows of whole tensors out of the shards of a checkpoint."""

    def __init__(self, checkpoint):
        self.checkpoint = checkpoint
        self.numbers = {name: i for i, name in enumerate(checkpoint.names)}
        self.own = {}  # number: its pieces in the order of their rows
        for piece in checkpoint.pieces:
            if piece[3] > 0:
                self.own.setdefault(piece[0], []).append(piece)
        for pieces in self.own.values():
            pieces.sort(key=lambda piece: piece[2])
        self.open = None, None  # shard, file: one at a time

    def names(self, everything):
        return {n for n in self.numbers if everything or n.startswith("params/")}

    def shape(self, name):
        return self.checkpoint.tensors[self.numbers[name]][0]

    def dtype(self, name):
        return self.checkpoint.tensors[self.numbers[name]][1]

    def read(self, name, first, last):
        """Rows first..last of a tensor."""
        parts = []
        for _, shard, row0, rows in self.own.get(self.numbers[name], []):
            begin, end = max(first, row0), min(last, row0 + rows)
            if begin < end:
                item = self._file(shard)[f"rank_{shard:05d}/{name}"]
                parts.append(item[begin - row0 : end - row0])
        return np.concatenate(parts)

    def _file(self, shard):
        if self.open[0] != shard:
            self.close()
            path = os.path.join(self.checkpoint.folder, f"shard_{shard:05d}.h5")
            self.open = shard, h5py.File(path, "r")
        return self.open[1]

    def close(self):
        if self.open[1] is not None:
            self.open[1].close()
        self.open = None, None


def differences(a, b):
    """(values that differ, greatest |a - b|, greatest |a - b| / max(|a|, |b|))."""
    differ = ~((a == b) | ((a != a) & (b != b)))
    if not differ.any():
        return 0, 0.0, 0.0
    a, b = a[differ].astype(np.float64), b[differ].astype(np.float64)
    with np.errstate(invalid="ignore"):
        gap = np.abs(a - b)
        relative = gap / np.maximum(np.abs(a), np.abs(b))
    worst = [np.where(np.isnan(x), np.inf, x).max() for x in (gap, relative)]
    return len(a), *map(float, worst)


def compare(name, one, other):
    """differences() of a whole tensor, block by block."""
    shape = one.shape(name)
    row = int(np.prod(shape[1:])) * max(one.dtype(name).itemsize, 1)
    step = max(1, BLOCK // max(row, 1))
    count, absolute, relative = 0, 0.0, 0.0
    for first in range(0, shape[0], step):
        last = min(first + step, shape[0])
        found = differences(one.read(name, first, last), other.read(name, first, last))
        count += found[0]
        absolute, relative = max(absolute, found[1]), max(relative, found[2])
    return count, absolute, relative


def report(one, other, everything):
    """Prints what differs; whether anything does."""
    mine, theirs = one.names(everything), other.names(everything)
    lines = [f"only in A: {name}" for name in sorted(mine - theirs)]
    lines += [f"only in B: {name}" for name in sorted(theirs - mine)]
    for name in sorted(mine & theirs):
        if one.shape(name) != other.shape(name):
            shapes = f"{list(one.shape(name))} in A, {list(other.shape(name))} in B"
            lines.append(f"shape: {name} is {shapes}")
            continue
        if one.dtype(name) != other.dtype(name):
            types = f"{one.dtype(name)} in A, {other.dtype(name)} in B"
            lines.append(f"type: {name} is {types}")
        count, absolute, relative = compare(name, one, other)
        if count:
            size = int(np.prod(one.shape(name)))
            numbers = f"abs {absolute:.3e}  rel {relative:.3e}  {count} of {size}"
            lines.append(f"{name:<48}  {numbers}")
    for line in lines:
        print(line)
    print(f"{len(mine & theirs)} tensors in both, {len(lines)} differences")
    return bool(lines)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("a", metavar="A")
    parser.add_argument("b", metavar="B")
    parser.add_argument("--all", action="store_true", help="moments as well")
    options = parser.parse_args()
    try:
        folders = map(ckpt_ls.newest, (options.a, options.b))
        checkpoints = [ckpt_ls.Checkpoint(folder) for folder in folders]
        problems = [line for each in checkpoints for line in each.problems()]
        if not problems:
            return int(report(*map(Rows, checkpoints), options.all))
    except (ckpt_ls.Broken, OSError) as error:
        problems = [str(error)]
    for problem in problems:
        print(f"ckpt_diff: {problem}", file=sys.stderr)
    return 4


if __name__ == "__main__":
    sys.exit(main())
