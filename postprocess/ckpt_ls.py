#!/usr/bin/python3
"""Lists a checkpoint: what it says of itself, and its tensors. Checks the shards first.

    ckpt_ls.py runs/quickstart/ckpt/step_00000300 [PATTERN]     PATTERN such as '*/moe/*'
    ckpt_ls.py runs/quickstart/ckpt                             the newest complete one

meta.h5 shows whole tensors as virtual datasets, where a missing shard reads as NaN
without an error. Here every piece must be there, of its shape, from the same save, and
the pieces of a tensor must cover it. Hashes of values are checked by `capstan --verify`.
Exit code 4 when something is wrong; all problems are listed.
"""
import argparse
import fnmatch
import os
import sys

import h5py
import numpy as np

SHOWN = ("run", "step", "tokens", "segment", "grid", "ranks", "threads", "scalar")
SHOWN += ("version", "deck_hash", "state_hash", "data_fingerprint")


class Broken(Exception):
    """meta.h5 cannot be read."""


def plain(value):
    """An attribute as text."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace").rstrip("\0")
    return "x".join(map(str, value)) if isinstance(value, np.ndarray) else str(value)


class Checkpoint:
    """The index of a checkpoint folder, from its meta.h5."""

    def __init__(self, folder):
        self.folder = folder
        self.meta_path = os.path.join(folder, "meta.h5")
        try:
            with h5py.File(self.meta_path, "r") as meta:
                self.attributes = dict(meta.attrs)
                self.names = [plain(name) for name in meta["pieces/names"][:]]
                keys = ("tensor", "shard", "row0", "rows")
                columns = [meta[f"pieces/{key}"][:].tolist() for key in keys]
                self.pieces = sorted(zip(*columns))
                self.tensors = [
                    (meta[name].shape, meta[name].dtype) for name in self.names
                ]
        except (OSError, KeyError, ValueError) as error:
            raise Broken(f"{self.meta_path}: {error}") from error

    def problems(self):
        """Everything that is wrong, one line each."""
        return self._cover_problems() + self._shard_problems()

    def _cover_problems(self):
        found = []
        for number, (name, (shape, _)) in enumerate(zip(self.names, self.tensors)):
            following = 0
            for _, _, row0, rows in self.pieces_by_row(number):
                following = following + rows if row0 == following else -1
            if following != shape[0]:
                found.append(f"{name}: its pieces do not cover {list(shape)} once")
        return found

    def pieces_by_row(self, number):
        own = [piece for piece in self.pieces if piece[0] == number and piece[3] > 0]
        return sorted(own, key=lambda piece: piece[2])

    def _shard_problems(self):
        found = []
        for shard in range(int(self.attributes["shards"])):
            path = os.path.join(self.folder, f"shard_{shard:05d}.h5")
            try:
                with h5py.File(path, "r") as file:
                    if file.attrs.get("save_id") != self.attributes.get("save_id"):
                        found.append(f"{path}: from another save")
                    found += self._piece_problems(file, shard, path)
            except OSError as error:
                found.append(f"{path}: {error}")
        return found

    def _piece_problems(self, file, shard, path):
        found = []
        for tensor, _, _, rows in (piece for piece in self.pieces if piece[1] == shard):
            name = f"rank_{shard:05d}/{self.names[tensor]}"
            shape, dtype = self.tensors[tensor]
            expected = (rows, *shape[1:]), dtype
            if name not in file:
                found.append(f"{path}: no {name}")
            elif (file[name].shape, file[name].dtype) != expected:
                found.append(f"{path}: {name} is {file[name].shape} {file[name].dtype}")
        return found


def newest(path):
    """The checkpoint at `path`, or the newest complete one of a folder of them."""
    if os.path.exists(os.path.join(path, "meta.h5")) or not os.path.isdir(path):
        return path
    names = [name for name in os.listdir(path) if name[5:].isdigit()]
    names = [name for name in names if name.startswith("step_")]
    if not names:
        return path
    return os.path.join(path, max(names, key=lambda name: int(name[5:])))


def show(checkpoint, pattern):
    for key in SHOWN:
        if key in checkpoint.attributes:
            print(f"{key + ':':<18}{plain(checkpoint.attributes[key])}")
    total = 0
    for name, (shape, dtype) in zip(checkpoint.names, checkpoint.tensors):
        size = int(np.prod(shape)) * dtype.itemsize
        total += size
        if fnmatch.fnmatch(name, pattern):
            print(f"{name:<48}{dtype.name:>9}  {list(shape)}")
    shards = int(checkpoint.attributes["shards"])
    print(f"{len(checkpoint.names)} tensors, {total / 2**20:.1f} MiB, {shards} shards")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkpoint")
    parser.add_argument("pattern", nargs="?", default="*")
    options = parser.parse_args()
    try:
        checkpoint = Checkpoint(newest(options.checkpoint))
    except Broken as error:
        print(f"ckpt_ls: {error}", file=sys.stderr)
        return 4
    show(checkpoint, options.pattern)
    problems = checkpoint.problems()
    for problem in problems:
        print(f"problem: {problem}", file=sys.stderr)
    return 4 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
