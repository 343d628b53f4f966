#!/usr/bin/python3
"""Drop rate against context, by transport: the picture of jobscripts/drop_study.sh.

  plot_drops.py DIR -o OUT

reads DIR/desk.*.txt and DIR/published.*.txt (tables of `capstan --rehearse`), writes
OUT.png and OUT.svg. One column a transport, one line a capacity factor. Upper row: the
trained desk model. Lower row: the rehearsal of the published grid beside the published
figures of the reference run (marin-community/marin#8435, #7780, #8062, #8311, #9615).
"""
import argparse
import glob
import os
import re

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

TRANSPORTS = {"cells": "room per sender and expert",
              "spill": "cells, then the next best expert",
              "pooled_wave": "room per sender and rank",
              "waterfill": "room per receiver, floor per expert",
              "ragged": "room per receiver"}
# (context, transport, factor, drop fraction, what it is); a hollow star is another shape
# of model than the one that is rehearsed.
PUBLISHED = [(4096, "cells", 1.33, 0.057, "1.33, ladder rungs"),
             (65536, "cells", 1.33, 0.40, "1.3, early tests"),
             (4096, "spill", 1.0625, 0.01444, "1.0625, E = 256"),
             (4096, "pooled_wave", 1.15, 0.0308, "1.15, d2560 rung"),
             (4096, "waterfill", 1.0625, 0.0065, "1.05"),
             (4096, "ragged", 1.15, 1.86e-4, "1.15, one rack"),
             (8192, "ragged", 1.15, 8.29e-4, None),
             (16384, "ragged", 1.15, 2.94e-3, None)]
OTHER_SHAPE = ("spill",)
FLOOR = 1e-5


def read(path):
    """{(transport, factor): drop fraction} and the fields of the header of a table."""
    table, header = {}, {}
    with open(path) as f:
        for line in f:
            words = line.split()
            if line.startswith("#rehearsal"):
                header = dict(w.split("=") for w in words[1:])
            elif words and not line.startswith("#"):
                table[words[0], float(words[1])] = float(words[2])
    return table, header


def tables(folder, stem):
    """{context: (table, header)}, contexts ascending."""
    found = {}
    for path in glob.glob(os.path.join(folder, stem + ".*.txt")):
        match = re.search(r"\.(\d+)\.txt$", path)
        if match:
            found[int(match.group(1))] = read(path)
    return dict(sorted(found.items()))


def factors_of(data):
    return sorted({factor for table, _ in data.values() for _, factor in table})


def colour(factor):
    """The tighter the capacity, the darker: 1 is dark, 2 is light."""
    return plt.cm.viridis(min(max(factor - 1, 0), 1) ** 0.6 * 0.92)


def short(context):
    return f"{context // 1024}K" if context >= 1024 else str(context)


def draw(axis, data, transport):
    contexts = list(data)
    for factor in factors_of(data):
        values = [max(data[c][0].get((transport, factor), 0), FLOOR) for c in contexts]
        axis.plot(contexts, values, color=colour(factor), marker="o", ms=3.5, lw=1.6,
                  label=f"{factor:g}")
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.set_xlim(contexts[0] / 1.5, contexts[-1] * 1.5)
    ticks = [f"{short(c)}\n{data[c][1]['sequences_per_rank']}" for c in contexts]
    axis.set_xticks(contexts, ticks, fontsize=8)
    axis.minorticks_off()
    axis.grid(alpha=0.3)


def stars(axis, transport):
    for context, name, factor, value, text in PUBLISHED:
        if name != transport:
            continue
        face = "white" if name in OTHER_SHAPE else colour(factor)
        axis.plot(context, value, marker="*", ms=15, color=face, mec="crimson", mew=1.2,
                  ls="none", zorder=5)
        if text:
            right = context > 10000
            axis.annotate(text, (context, value), xytext=(-2 if right else 9, 9),
                          ha="right" if right else "left", fontsize=7.5,
                          color="crimson", textcoords="offset points", zorder=6,
                          bbox=dict(boxstyle="square,pad=0.1", fc="white", ec="none",
                                    alpha=0.8))


def finish(axis, row, column, title):
    axis.set_ylim(FLOOR * 0.6, 1)
    axis.set_yticks([1, 0.1, 0.01, 1e-3, 1e-4, FLOOR],
                    ["100 %", "10 %", "1 %", "0.1 %", "0.01 %", "none"], fontsize=8)
    if column == 0:
        axis.set_ylabel(f"{title}\n\ndropped / assignments", fontsize=9)
        axis.legend(title="capacity factor", fontsize=7, title_fontsize=7, ncol=2,
                    loc="lower right")
        axis.set_xlabel("context (tokens)\nsequences of a rank", fontsize=8, loc="right")
    if row == 0:
        name = list(TRANSPORTS)[column]
        axis.set_title(f"{name}\n", fontsize=11, fontweight="bold")
        axis.text(0.5, 1.03, TRANSPORTS[name], fontsize=8, ha="center",
                  transform=axis.transAxes)


def title_of(data, what):
    header = next(iter(data.values()))[1]
    return (f"{what}\nE = {header['experts']}, top-{header['top_k']}, "
            f"{header['expert']} ranks")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder")
    parser.add_argument("-o", "--output", default="drops")
    args = parser.parse_args()
    desk, grid = tables(args.folder, "desk"), tables(args.folder, "published")
    rows = [(desk, "Trained small model", False),
            (grid, "Published grid, rehearsed", True)]
    rows = [row for row in rows if row[0]]
    if not rows:
        raise SystemExit(f"plot_drops: no desk.*.txt or published.*.txt in {args.folder}")
    figure, axes = plt.subplots(len(rows), len(TRANSPORTS), sharey=True, squeeze=False,
                                figsize=(15, 1 + 3.9 * len(rows)))
    for i, (data, what, published) in enumerate(rows):
        for j, transport in enumerate(TRANSPORTS):
            draw(axes[i, j], data, transport)
            if published:
                stars(axes[i, j], transport)
            finish(axes[i, j], i, j, title_of(data, what))
    figure.suptitle("The same tokens in fewer, longer sequences: what each transport "
                    "drops (stars: published figures)", fontsize=13)
    figure.tight_layout(h_pad=1.5, w_pad=0.4)
    for ending in ("png", "svg"):
        figure.savefig(f"{args.output}.{ending}", dpi=120)
        print(f"{args.output}.{ending}")


if __name__ == "__main__":
    main()
