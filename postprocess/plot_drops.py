#!/usr/bin/python3
"""Drop rate against context, by transport: the picture of jobscripts/drop_study.sh.

  plot_drops.py DIR -o OUT

reads DIR/desk.*.txt and DIR/published.*.txt, writes OUT.png and OUT.svg.

Left: the trained desk model. Right: the rehearsal of the published grid beside the
published figures of the reference run (marin-community/marin#8435,
#8062, #9615).
"""
import argparse
import glob
import os
import re

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

COLOURS = {"cells": "#0072B2", "spill": "#E69F00", "pooled_wave": "#009E73",
           "waterfill": "#CC79A7", "ragged": "#D55E00"}
# (context, transport, factor, drop fraction, label)
PUBLISHED = [(4096, "cells", 1.33, 0.057, "cells 1.33 (rungs)"),
             (65536, "cells", 1.33, 0.40, "cells 1.3, early tests"),
             (4096, "pooled_wave", 1.15, 0.0308, "pooled 1.15"),
             (4096, "ragged", 1.15, 1.86e-4, "ragged 1.15, one rack"),
             (8192, "ragged", 1.15, 8.29e-4, None),
             (16384, "ragged", 1.15, 2.94e-3, None)]


def read(path):
    """{(transport, factor): drop fraction} of a table of `capstan --rehearse`."""
    table = {}
    with open(path) as f:
        for line in f:
            if line.startswith("#") or not line.strip():
                continue
            words = line.split()
            table[words[0], float(words[1])] = float(words[2])
    return table


def tables(folder, stem):
    """{context: table}, contexts ascending."""
    found = {}
    for path in glob.glob(os.path.join(folder, stem + ".*.txt")):
        match = re.search(r"\.(\d+)\.txt$", path)
        if match:
            found[int(match.group(1))] = read(path)
    return dict(sorted(found.items()))


def draw(axis, data, factors, floor):
    """One line a transport and factor; the least factor is the boldest."""
    contexts = list(data)
    for transport, colour in COLOURS.items():
        for i, factor in enumerate(factors):
            values = [max(data[c].get((transport, factor), 0), floor) for c in contexts]
            axis.plot(contexts, values, color=colour, lw=2 - 0.6 * i, marker="o", ms=4,
                      alpha=1 - 0.3 * i, label=f"{transport} {factor:g}")
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.set_xticks(contexts)
    axis.set_xticklabels([f"{c // 1024}K" if c >= 1024 else str(c) for c in contexts])
    axis.minorticks_off()
    axis.set_xlabel("context (tokens), at a fixed number of tokens a rank")
    axis.set_ylabel("dropped / assignments")
    axis.grid(alpha=0.3)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder")
    parser.add_argument("-o", "--output", default="drops")
    args = parser.parse_args()
    desk, grid = tables(args.folder, "desk"), tables(args.folder, "published")
    if not desk and not grid:
        raise SystemExit(f"plot_drops: no desk.*.txt or published.*.txt in {args.folder}")
    figure, axes = plt.subplots(1, 2, figsize=(13, 5.6))
    floor = 1e-5
    if desk:
        draw(axes[0], desk, [1.25, 1.5], floor)
        axes[0].set_title("Trained desk model, 16 virtual ranks, 16,384 tokens")
        axes[0].legend(fontsize=8, ncol=2)
    if grid:
        draw(axes[1], grid, [1.15, 1.33], floor)
        for context, transport, _, value, label in PUBLISHED:
            axes[1].plot(context, value, marker="*", ms=13, color=COLOURS[transport],
                         mec="black", ls="none")
            if label:
                axes[1].annotate(label, (context, value), xytext=(8, -12), fontsize=8,
                                 textcoords="offset points")
        axes[1].set_title("Published grid, rehearsed (stars: published figures)")
        axes[1].legend(fontsize=8, ncol=2)
    for axis in axes:
        low, high = axis.get_ylim()
        axis.set_ylim(floor * 0.7, max(high, 1))
        axis.text(0.01, 0.01, f"values below {floor:g} are drawn there", fontsize=7,
                  transform=axis.transAxes)
    figure.tight_layout()
    for ending in ("png", "svg"):
        figure.savefig(f"{args.output}.{ending}", dpi=150)
        print(f"{args.output}.{ending}")


if __name__ == "__main__":
    main()
