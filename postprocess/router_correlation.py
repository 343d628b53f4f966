#!/usr/bin/python3
"""Share of router-logit variance that the tokens of a sequence have in common, by layer.

  router_correlation.py DUMP.h5 [DUMP.h5 ...]

reads dumps of a trained model (<job> dump_step) and prints one value a layer, and the
line to put into a deck for `capstan --rehearse`: the intraclass correlation of a one-way
analysis of variance (sequence = class) of each expert's logits, averaged over experts.
"""
import sys

import h5py
import numpy as np


def correlations(path):
    """[layers] intraclass correlation of router logits over the sequences of a dump."""
    with h5py.File(path, "r") as f:
        sequences, seq_len = f["batch/tokens"].shape
        valid = f["batch/segments"][...].reshape(-1) >= 0
        out = []
        for layer in sorted(f["router"]):
            logits = f["router"][layer]["logits"][...].astype(float)
            out.append(intraclass(logits, valid, sequences, seq_len))
    return np.array(out)


def intraclass(logits, valid, sequences, seq_len):
    """logits [B * S, E], valid [B * S] -> mean over experts of between / total."""
    x = logits.reshape(sequences, seq_len, -1)
    keep = valid.reshape(sequences, seq_len)
    x = x[keep.all(axis=1)]
    if len(x) < 2:
        raise SystemExit("router_correlation: fewer than two whole sequences in the dump")
    within = x.var(axis=1, ddof=1).mean(axis=0)
    between = x.mean(axis=1).var(axis=0, ddof=1) - within / seq_len
    rho = np.clip(between, 0, None) / (np.clip(between, 0, None) + within)
    return float(rho.mean())


def main(paths):
    if not paths or paths[0] in ("-h", "--help"):
        print(__doc__.strip())
        return 0 if paths else 2
    rho = np.mean([correlations(path) for path in paths], axis=0)
    for layer, value in enumerate(rho):
        print(f"layer_{layer:03d} {value:.4f}")
    print("rehearsal/correlation = " + ", ".join(f"{value:.4f}" for value in rho))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
