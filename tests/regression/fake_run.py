"""Writes a run directory with the schema of postprocess/README and invented numbers.

A fixture for test_postprocess.py. As a program it appends one row every DELAY seconds:
    fake_run.py DIRECTORY SEGMENT START_STEP STEPS DELAY [kill]
where `kill` ends it by SIGKILL after the last row, with its files open.
"""
import math
import os
import random
import signal
import sys
import time

import h5py
import numpy as np

LAYERS, EXPERTS, TOP_K, TOKENS = 3, 16, 4, 1024
PHASES = ("attention_gemm", "attention_core", "experts_gemm", "router", "exchange")
PHASES += ("norm", "head", "optimizer", "permute", "data")
GROUPS = ("embed", "attn", "experts", "head")
INTEGERS = ("step", "tokens", "assignments")
LAYER_COLUMNS = ("entropy", "load_max_over_mean", "drops_sender", "drops_receiver")
LAYER_COLUMNS += ("bias_min", "bias_max")
DECK = "<job>\nname = {name}\n<model>\nhidden = 64  # width\nscalar = float\n<moe>\n"
DECK += "experts = 16\n<optimizer>\nlr = {lr}\nbetas = 0.9, 0.95\n"


def row(step, rng):
    """One invented step: {column: value}."""
    noise = rng.gauss(0, 1)
    values = {"step": step, "tokens": step * TOKENS}
    values["loss"] = 2.1 + 3.6 * math.exp(-step / 60) + 0.03 * noise
    values["z_loss"] = 1e-3 + 1e-5 * noise
    values["aux_loss"] = 0.0
    values["loss_total"] = values["loss"] + values["z_loss"]
    values["lr"] = 3e-3 * min(step / 20, 1.0) * max(1 - step / 500, 0.05)
    for group, share in zip(GROUPS, (0.1, 0.3, 0.2, 0.9)):
        decay = math.exp(-step / 80)
        values[f"grad_norm_{group}"] = share * (0.3 + decay) * math.exp(0.1 * noise)
        values[f"param_norm_{group}"] = 20 + 10 * share + 0.01 * step
    for stem in ("grad_norm", "param_norm"):
        squares = [values[f"{stem}_{group}"] ** 2 for group in GROUPS]
        values[stem] = math.sqrt(sum(squares))
    values["update_ratio"] = values["lr"] * 0.2
    values["assignments"] = TOKENS * TOP_K * LAYERS
    values["drop_sender_fraction"] = 0.03 * math.exp(-step / 40) + 0.001
    values["drop_receiver_fraction"] = 0.01 * math.exp(-step / 90)
    values["drop_fraction"] = (
        values["drop_sender_fraction"] + values["drop_receiver_fraction"]
    )
    values["padding_skipped"] = 0.01
    values["routing_entropy"] = math.log(EXPERTS) - 0.05 * math.exp(-step / 30)
    values["load_balancing_loss"] = TOP_K + 0.02 * math.exp(-step / 30)
    values["router_z_loss"] = 4.0
    values["load_max_over_mean"] = 1.1 + math.exp(-step / 30)
    values["router_bias_min"] = -0.01 * step**0.5
    values["router_bias_max"] = 0.012 * step**0.5
    total = 0.25 * math.exp(0.05 * noise)
    for i, phase in enumerate(PHASES):
        values[f"seconds_{phase}"] = total * 0.9 * 2.0 ** -(i + 1)
    values["seconds_unaccounted"] = total * 0.05
    values["step_seconds"] = total
    values["tokens_per_second"] = TOKENS / total
    values["mfu"] = 0.3 * 0.25 / total
    values["memory_peak_mib"] = 812.5
    return values


def load_row(step, generator):
    """[L, E] int32 with the right sum in every layer, evening out with the steps."""
    skew = np.linspace(1, -1, EXPERTS) * math.exp(-step / 50)
    weights = np.exp(skew[None, :] + 0.05 * generator.standard_normal((LAYERS, EXPERTS)))
    shares = weights / weights.sum(axis=1, keepdims=True)
    load = np.floor(shares * TOKENS * TOP_K).astype(np.int32)
    load[:, 0] += TOKENS * TOP_K - load.sum(axis=1)
    return load


def append(dataset, value):
    dataset.resize(len(dataset) + 1, axis=0)
    dataset[-1] = value
    dataset.flush()


class Writer:
    """Files of one segment, in SWMR mode."""

    def __init__(self, directory, segment, start_step, lr=0.003, name="fake"):
        os.makedirs(os.path.join(directory, "diag"), exist_ok=True)
        self.rng = random.Random(segment)
        self.generator = np.random.default_rng(segment)
        self.text = open(os.path.join(directory, "history.txt"), "a", buffering=1)
        deck = DECK.format(name=name, lr=lr)
        with open(os.path.join(directory, "deck.used"), "w") as file:
            file.write(deck)
        open(os.path.join(directory, f"log.{segment}"), "a").close()
        self.segment = segment
        names = row(1, self.rng).keys()
        self.text.write(" ".join(["#segment", *names]) + "\n")
        self.text.write(f"#start segment={segment} start_step={start_step} ranks=2\n")
        self.history = self._open(directory, "history", start_step, deck, name)
        self._columns(names)
        self.experts = self._open(directory, "experts", start_step, deck, name)
        self._resizable(self.experts, "step", "i8", (), 64)
        self._resizable(self.experts, "load", "i4", (LAYERS, EXPERTS), 1)
        self.history.swmr_mode = self.experts.swmr_mode = True

    def _open(self, directory, stem, start_step, deck, name):
        path = os.path.join(directory, "diag", f"{stem}.{self.segment}.h5")
        file = h5py.File(path, "w", libver="latest")
        file.attrs.update(segment=self.segment, start_step=start_step, format=1)
        file.attrs.update(grid=[1, 1, 2], layers=LAYERS, experts=EXPERTS, top_k=TOP_K)
        file.attrs["deck"] = np.bytes_(deck)
        file.attrs["run"] = np.bytes_(name)
        return file

    def _resizable(self, group, name, kind, shape, chunk):
        fill = np.nan if kind == "f8" else None
        return group.create_dataset(
            name,
            (0, *shape),
            maxshape=(None, *shape),
            chunks=(chunk, *shape),
            dtype=kind,
            fillvalue=fill,
        )

    def _columns(self, names):
        for name in names:
            kind = "i8" if name in INTEGERS else "f8"
            column = self._resizable(self.history, name, kind, (), 256)
            column.attrs["unit"] = np.bytes_("nats" if "loss" in name else "1")
        layer = self.history.create_group("layer")
        for name in LAYER_COLUMNS:
            self._resizable(layer, name, "f8", (LAYERS,), 64)
        for group, columns in {
            "eval": {"step": "i8", "tokens": "i8", "loss": "f8"},
            "events": {"step": "i8", "tokens": "i8", "kind": "S16", "text": "S240"},
        }.items():
            made = self.history.create_group(group)
            for name, kind in columns.items():
                self._resizable(made, name, kind, (), 64)

    def step(self, step):
        values = row(step, self.rng)
        append(self.experts["load"], load_row(step, self.generator))
        append(self.experts["step"], step)
        for name in LAYER_COLUMNS:
            append(self.history["layer"][name], np.arange(LAYERS) + 0.001 * step)
        for name in reversed(values):
            append(self.history[name], values[name])
        self.text.write(" ".join(map(repr, [self.segment, *values.values()])) + "\n")

    def evaluate(self, step):
        loss = 2.2 + 3.6 * math.exp(-step / 60)
        for name, value in zip(("step", "tokens", "loss"), (step, step * TOKENS, loss)):
            append(self.history["eval"][name], value)
        self.text.write(f"#eval step={step} tokens={step * TOKENS} loss={loss!r}\n")

    def event(self, step, kind, text):
        names = ("step", "tokens", "kind", "text")
        values = (step, step * TOKENS, kind, text)
        for name, value in zip(names, values):
            value = value.encode() if isinstance(value, str) else value
            append(self.history["events"][name], value)
        where = f"step={step} tokens={step * TOKENS}"
        self.text.write(f"#event {where} kind={kind} text={text}\n")

    def close(self):
        self.history.close()
        self.experts.close()
        self.text.close()


def write_segment(directory, segment, start_step, steps, lr=0.003, name="fake"):
    """A finished segment: rows start_step + 1 to start_step + steps."""
    writer = Writer(directory, segment, start_step, lr, name)
    writer.event(start_step, "restart" if start_step else "start", f"segment {segment}")
    for step in range(start_step + 1, start_step + steps + 1):
        writer.step(step)
        if step % 25 == 0:
            writer.evaluate(step)
        if step % 50 == 0:
            writer.event(step, "checkpoint", f"ckpt/step_{step:08d}")
    writer.close()


def write_checkpoint(folder, shards=2):
    """A checkpoint of two tensors, of which each shard has half the rows."""
    os.makedirs(folder)
    tensors = {"params/embed/table": (8, 3), "optimizer/first/embed/table": (8, 3)}
    rows = 8 // shards
    pieces = []
    with h5py.File(os.path.join(folder, "meta.h5"), "w", libver="latest") as meta:
        meta.attrs.update(format=1, step=300, shards=shards, grid=[1, 1, shards])
        meta.attrs["save_id"] = np.uint64(77)
        for number, (name, shape) in enumerate(tensors.items()):
            layout = h5py.VirtualLayout(shape, "f4")
            for shard in range(shards):
                file, path = f"shard_{shard:05d}.h5", f"rank_{shard:05d}/{name}"
                source = h5py.VirtualSource(file, path, (rows, *shape[1:]), "f4")
                layout[shard * rows : (shard + 1) * rows] = source
                pieces.append((number, shard, shard * rows, rows))
            meta.create_virtual_dataset(name, layout, fillvalue=np.nan)
        meta["pieces/names"] = np.array([name.encode() for name in tensors])
        for key, column in zip(("tensor", "shard", "row0", "rows"), zip(*pieces)):
            meta[f"pieces/{key}"] = np.array(column)
    for shard in range(shards):
        with h5py.File(os.path.join(folder, f"shard_{shard:05d}.h5"), "w") as file:
            file.attrs["save_id"] = np.uint64(77)
            for name, shape in tensors.items():
                values = np.arange(rows * 3).reshape(rows, *shape[1:]) + 100 * shard
                file[f"rank_{shard:05d}/{name}"] = values.astype("f4")


def main(directory, segment, start_step, steps, delay, *kill):
    writer = Writer(directory, int(segment), int(start_step))
    for step in range(int(start_step) + 1, int(start_step) + int(steps) + 1):
        writer.step(step)
        print(step, flush=True)
        time.sleep(float(delay))
    if kill:
        os.kill(os.getpid(), signal.SIGKILL)
    writer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
