"""Reads a checkpoint of the unit tests with h5py alone: tensors are whole and right in
meta.h5, pieces in the shards say where they belong. Exit 77 without h5py."""
import os
import sys

try:
    import h5py
    import numpy as np
except ImportError:
    sys.exit(77)


def value(tensor, shape, version):
    i = np.arange(np.prod(shape), dtype=np.int64)
    return ((i * 7 + tensor * 1000 + version * 100000) % 1000003).reshape(shape)


def main(path, version):
    names = ["params/embed/table", "params/layer_000/moe/w_up",
             "params/layer_000/moe/router_bias", "optimizer/first/embed/table",
             "counters/seen"]
    os.chdir("/")  # names of shards are relative to meta.h5, not to the current folder
    with h5py.File(os.path.join(path, "meta.h5"), "r") as meta:
        assert meta.attrs["format"] == 1 and meta.attrs["step"] == 40
        assert meta.attrs["deck"].decode() == "<job>\nname = x\n"
        for t, name in enumerate(names):
            got = meta[name][...]
            assert np.array_equal(got, value(t, got.shape, version)), name
            assert meta[name].is_virtual
            assert meta[name].attrs["checksum"].dtype == np.uint64
        assert meta[names[1]].dtype == np.float64 and meta[names[1]].shape == (8, 4, 2)
        shards = int(meta.attrs["shards"])
    seen = 0
    for s in range(shards):
        with h5py.File(os.path.join(path, "shard_%05d.h5" % s), "r") as shard:
            for t, name in enumerate(names):
                full = "rank_%05d/%s" % (s, name)
                if full not in shard:
                    continue
                piece = shard[full]
                whole = value(t, piece.attrs["shape"], version)
                row0 = piece.attrs["offset"][0]
                assert np.array_equal(piece[...], whole[row0:row0 + len(piece)]), full
                assert piece.attrs["hash"].dtype == np.uint64
                seen += len(piece)
    assert seen == 10 + 8 + 8 + 10 + 5, seen


main(sys.argv[1], int(sys.argv[2]))
