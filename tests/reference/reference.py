#!/usr/bin/python3
"""Checks a dump of Capstan (<job> dump_step) against an independent model with autograd.

    reference.py DUMP.h5 [--tolerance 1e-9] [--all]
    reference.py --self-test

From the parameters, tokens and router biases of the dump, the loss parts, the routing of
every layer and the gradient of every parameter are computed anew in double and compared:
per tensor ||a - b|| <= tolerance * ||b||. Prints a table (the worst tensors, or all) and
exits with 1 where anything differs, with 4 where the file cannot be read.
"""

import argparse
import sys

import torch

import model

TINY = 1e-30


def read_dump(path):
    """A dump file: deck (text), batch, params, grads, loss, router (by layer)."""
    import h5py

    def tensors(group):
        out = {}

        def visit(name, item):
            if isinstance(item, h5py.Dataset):
                out[name] = torch.from_numpy(item[()])

        group.visititems(visit)
        return out

    with h5py.File(path, "r") as f:
        deck = f.attrs["deck"]
        return {
            "deck": deck.decode() if isinstance(deck, bytes) else str(deck),
            "batch": tensors(f["batch"]),
            "params": tensors(f["params"]),
            "grads": tensors(f["grads"]),
            "loss": {name: float(value) for name, value in f["loss"].attrs.items()},
            "router": {name: tensors(group) for name, group in f["router"].items()},
        }


class Table:
    """Rows (what, relative error, note)."""

    def __init__(self, tolerance):
        self.tolerance = tolerance
        self.rows = []

    def compare(self, what, got, expected):
        got, expected = (torch.as_tensor(x, dtype=torch.float64) for x in (got, expected))
        if got.shape != expected.shape:
            shapes = f"shape {tuple(got.shape)}, expected {tuple(expected.shape)}"
            self.problem(what, shapes)
            return
        # What is zero by construction may only be zero: TINY is no tolerance.
        difference, size = (got - expected).norm().item(), expected.norm().item()
        self.rows.append((what, difference / (size + TINY), ""))

    def problem(self, what, note):
        self.rows.append((what, float("inf"), note))

    def failed(self):
        # Not <= rather than >: a NaN fails too.
        return [row for row in self.rows if not row[1] <= self.tolerance]

    def print(self, everything):
        ordered = sorted(self.rows, key=size_of, reverse=True)
        for what, error, note in ordered if everything else ordered[:8]:
            mark = "ok " if error <= self.tolerance else "BAD"
            print(f"  {mark} {error:10.2e}  {what}  {note}")
        if not everything and len(ordered) > 8:
            print(f"  ... {len(ordered) - 8} more below {ordered[8][1]:.2e}")


def fixed_choices(dump, shape):
    """Drops and spills of the dump, by layer: they follow from capacities, which this
    model does not have."""
    out = []
    spill = deck_value(dump["deck"], "moe", "transport") == "spill"
    for layer in range(shape.layers):
        theirs = dump["router"].get(f"layer_{layer:03d}", {})
        fixed = {}
        if "accepted" in theirs:
            fixed["accepted"] = theirs["accepted"].double()
        if spill and "experts" in theirs:
            fixed["routed"] = theirs["experts"].long().clamp(min=0)
        out.append(fixed)
    return out


def deck_value(deck, block, key):
    """A value of deck.used, or None."""
    inside = False
    for line in deck.splitlines():
        words = line.split("#")[0].split("=")
        if words[0].strip().startswith("<"):
            inside = words[0].strip() == f"<{block}>"
        elif inside and words[0].strip() == key:
            return words[1].strip()
    return None


def allowed_experts(ours, theirs, spill):
    """Which of their experts [T, K] may stand there: the selected, or after spill one of
    the three choices that follow the K, each once."""
    same = theirs == ours["experts"]
    if not spill:
        return same
    k = theirs.shape[1]
    after = (theirs[:, :, None] == ours["ranked"][:, None, k : k + 3]).any(-1)
    twice = (theirs[:, :, None] == theirs[:, None, :]).sum(-1) > 1
    return (same | after) & ~twice


def compare_routing(table, dump, routing):
    for layer, ours in enumerate(routing):
        name = f"layer_{layer:03d}"
        theirs = dump["router"].get(name)
        if theirs is None:
            table.problem(f"router/{name}", "not in the dump")
            continue
        valid = ours["valid"]
        spill = deck_value(dump["deck"], "moe", "transport") == "spill"
        differ = ~allowed_experts(ours, theirs["experts"].long(), spill)
        flips = differ[valid].any(-1).sum().item()
        if flips:
            note = f"{flips} of {valid.sum().item()} tokens routed elsewhere"
            table.problem(f"router/{name}/experts", note)
        else:
            table.rows.append((f"router/{name}/experts", 0.0, ""))
        for what in ("logits", "weights"):
            table.compare(
                f"router/{name}/{what}", theirs[what][valid], ours[what][valid].detach()
            )


def compare_shapes(table, shape, params):
    expected = shape.parameters()
    for name in sorted(set(expected) | set(params)):
        if name not in params:
            table.problem(f"params/{name}", "not in the dump")
        elif name not in expected:
            table.problem(f"params/{name}", "unknown to the model")
        elif tuple(params[name].shape) != expected[name]:
            note = f"shape {tuple(params[name].shape)}, expected {expected[name]}"
            table.problem(f"params/{name}", note)


def compare_gradients(table, params, grads):
    trained = {name: value for name, value in params.items() if value.requires_grad}
    for name in sorted(set(grads) - set(trained)):
        table.problem(f"grads/{name}", "has no gradient in the model")
    for name, value in trained.items():
        if name not in grads:
            table.problem(f"grads/{name}", "not in the dump")
            continue
        ours = torch.zeros_like(value) if value.grad is None else value.grad
        table.compare(f"grads/{name}", grads[name], ours)


def check(dump, tolerance):
    """The table of all comparisons of a dump."""
    table = Table(tolerance)
    shape = model.Shape.from_deck(dump["deck"])
    compare_shapes(table, shape, dump["params"])
    if table.rows:
        return table
    params = {
        name: value.double().requires_grad_(not name.endswith("router_bias"))
        for name, value in dump["params"].items()
    }
    batch = [dump["batch"][name].long() for name in ("tokens", "targets", "segments")]
    parts, routing = model.losses(shape, params, *batch, fixed_choices(dump, shape))
    expected = {name: value.detach() for name, value in parts.items()}
    expected["tokens"] = (batch[1] >= 0).sum()
    for name, value in expected.items():
        if name in dump["loss"]:
            table.compare(f"loss/{name}", dump["loss"][name], value)
        else:
            table.problem(f"loss/{name}", "not in the dump")
    compare_routing(table, dump, routing)
    parts["total"].backward()
    compare_gradients(table, params, dump["grads"])
    return table


def size_of(row):
    """For sorting: not a number counts as infinite."""
    return row[1] if row[1] == row[1] else float("inf")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("dumps", nargs="*", help="diag/dump.<step>.h5")
    parser.add_argument("--tolerance", type=float, default=1e-9)
    parser.add_argument("--all", action="store_true", help="print every row")
    parser.add_argument(
        "--self-test", action="store_true", help="check this model itself"
    )
    args = parser.parse_args()
    if args.self_test:
        import self_test

        return self_test.run()
    if not args.dumps:
        parser.error("no dump named")
    bad = 0
    for path in args.dumps:
        try:
            dump = read_dump(path)
        except (OSError, KeyError) as error:
            print(f"REFERENCE: cannot read {path}: {error}", file=sys.stderr)
            return 4
        table = check(dump, args.tolerance)
        failed = table.failed()
        table.print(args.all or bool(failed))
        worst = max(table.rows, key=size_of)
        print(
            f"REFERENCE: {'FAILED' if failed else 'passed'} {path}: {len(failed)} of "
            f"{len(table.rows)} comparisons beyond {args.tolerance:g}, "
            f"worst {worst[1]:.2e} {worst[0]}"
        )
        bad += bool(failed)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
