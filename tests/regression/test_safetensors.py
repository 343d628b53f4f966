#!/usr/bin/python3
"""--export: bits of the checkpoint, read back by the safetensors library."""
import hashlib
import json
import os
import struct
import subprocess
import unittest

import h5py
import numpy as np

import exporters
import runs

READ = """
import hashlib, json, sys
from safetensors.numpy import load_file
found = {}
for path in sys.argv[1:]:
    for name, value in load_file(path).items():
        digest = hashlib.sha256(value.tobytes()).hexdigest()
        found[name] = [str(value.dtype), list(value.shape), digest]
print(json.dumps(found))
"""


def plain_read(path):
    """{name: array} by the format's own description: length, JSON, data."""
    with open(path, "rb") as file:
        data = file.read()
    size = struct.unpack_from("<Q", data)[0]
    head = json.loads(data[8 : 8 + size])
    head.pop("__metadata__")
    kinds = {"F32": "<f4", "F64": "<f8"}
    found = {}
    for name, entry in head.items():
        first, last = (8 + size + at for at in entry["data_offsets"])
        array = np.frombuffer(data[first:last], kinds[entry["dtype"]])
        found[name] = array.reshape(entry["shape"])
    return found, size


class Export(runs.Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls("test_config").capstan("run", "job/steps=3", "grid/expert=2", ranks=2, code=0)

    def checkpoint(self):
        found = runs.checkpoints(self.path("run"))
        return found[max(found)]

    def stored(self):
        """{canonical name: array} of the checkpoint, by way of h5py."""
        found = {}
        with h5py.File(os.path.join(self.checkpoint(), "meta.h5"), "r") as file:
            file["params"].visititems(
                lambda name, item: found.update({name: item[()]})
                if hasattr(item, "shape") else None)
        return found

    def exported(self, out, *words):
        done = self.capstan("run", "-r", "latest", "--export", self.path(out), *words,
                            deck=None, code=0)
        self.assert_says(done, "export: ", "files=1")
        return os.path.join(self.path(out), "model.safetensors")

    def test_bits_of_the_checkpoint(self):
        found, size = plain_read(self.exported("plain"))
        stored = self.stored()
        self.assertEqual(found.keys(), stored.keys())
        self.assertIn("layer_000/moe/w_up", found)
        self.assertEqual(size % 8, 0)
        for name, value in stored.items():
            self.assertEqual(found[name].dtype, value.dtype, name)
            self.assertEqual(found[name].tobytes(), value.tobytes(), name)

    def test_the_real_library_reads_it(self):
        try:
            python = exporters.python()
        except exporters.Missing as error:
            self.skipTest(str(error))
        path = self.exported("real")
        text = subprocess.run([python, "-c", READ, path], check=True, text=True,
                              stdout=subprocess.PIPE).stdout
        found = json.loads(text)
        for name, value in self.stored().items():
            digest = hashlib.sha256(value.tobytes()).hexdigest()
            self.assertEqual(found.pop(name),
                             [str(value.dtype), list(value.shape), digest], name)
        self.assertEqual(found, {})

    def test_config(self):
        self.exported("config")
        with open(self.path("config", "config.json")) as file:
            config = json.load(file)
        self.assertEqual((config["step"], config["run"]), (3, "tiny"))
        self.assertEqual(config["model"]["hidden"], 32)
        self.assertEqual(config["model"]["sconv"], ["k", "attn", "moe"])
        self.assertEqual(config["moe"]["score_sum"], 2.5)
        self.assertTrue(config["model"]["xsa"])
        self.assertEqual(config["state_hash"], runs.state_hash(self.checkpoint()))
        with open(self.path("run", "deck.used")) as file:
            self.assertEqual(config["deck"].split(), file.read().split())

    def test_refusals(self):
        self.exported("twice")
        words = ("-r", "latest", "--export", self.path("twice"))
        done = self.capstan("run", *words, deck=None, code=4)
        self.assert_says(done, "is there already")
        # A flipped bit is found, and leaves no export behind.
        shard = os.path.join(self.checkpoint(), "shard_00000.h5")
        with h5py.File(shard, "r+") as file:
            table = file["rank_00000/params/embed/table"]
            before = table[0, 0]
            table[0, 0] = before + 1
        words = ("-r", "latest", "--export", self.path("damaged"))
        done = self.capstan("run", *words, deck=None, code=4)
        self.assert_says(done, "params/embed/table")
        self.assertFalse(os.path.exists(self.path("damaged")))
        with h5py.File(shard, "r+") as file:
            file["rank_00000/params/embed/table"][0, 0] = before


if __name__ == "__main__":
    unittest.main()
