#!/usr/bin/python3
"""Plots one run or several: OUT.png and .svg; load of experts: OUT.experts.png and .svg.

    plot_run.py runs/quickstart -o quickstart
    plot_run.py runs/a runs/b --labels base,wide -x tokens -o compare
    plot_run.py runs/long -o long --watch 60      # again every minute
"""
import argparse
import os
import sys
import textwrap
import time

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.ticker import EngFormatter  # noqa: E402

import expert_map  # noqa: E402
import panels  # noqa: E402
from capstan_run import Run, RunError  # noqa: E402

STYLE = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.7,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "svg.fonttype": "none",
    "figure.constrained_layout.use": True,
}
LAYOUT = (
    (panels.loss, panels.gradient_norms),
    (panels.learning_rate, panels.throughput),
    (panels.drops, panels.balance),
    (panels.updates, panels.phases),
)
WIDTH, ROW_HEIGHT, LINE_HEIGHT = 12.5, 3.1, 0.17  # inches
CAPTION_LETTERS = 165
# Kinds of events that are drawn as a line; the others only count in the summary.
MARKED = {"health": "#C00000", "deck_change": "#7F3C8D", "save_failed": "#C00000"}
MARKED["rollback"] = "#D55E00"
RESTART = "#444444"


def mark(context, axes):
    """Restarts (dashed) and notable events (dotted) of every run."""
    for i, run in enumerate(context.runs):
        color = RESTART if context.single else context.color(i)
        for restart in run.restarts:
            x = context.xs(run, restart.step)
            axes.axvline(x, color=color, linewidth=0.9, linestyle="--", zorder=0)
        for event in run.events:
            if event.kind in MARKED:
                x = context.xs(run, event.step)
                color = MARKED[event.kind]
                axes.axvline(x, color=color, linewidth=0.9, linestyle=":", zorder=0)


def describe_restart(restart):
    changes = [f"{c.key} {c.before} -> {c.after}" for c in restart.changes]
    text = f"step {restart.step}: segment {restart.segment}"
    return text + (f" ({', '.join(changes[:3])})" if changes else "")


def caption(context):
    """Lines under the title, one a run or more: its size, restarts, events."""
    lines = []
    for label, run in zip(context.labels, context.runs):
        last = run.columns["step"][-1]
        tokens = EngFormatter(places=1, sep="")(run.tokens_at(last))
        text = "" if context.single else f"{label}: "
        text += f"{last} steps, {tokens} tokens"
        if run.restarts:
            shown = "; ".join(describe_restart(restart) for restart in run.restarts[-3:])
            text += f"; restarted {len(run.restarts)}x, dashed: {shown}"
        marked = [event for event in run.events if event.kind in MARKED]
        if marked:
            text += f"; dotted: {marked[-1].kind} at step {marked[-1].step}"
            text += f", {marked[-1].text}"
            text += f" and {len(marked) - 1} more" if len(marked) > 1 else ""
        lines.append(text)
    return [part for line in lines for part in textwrap.wrap(line, CAPTION_LETTERS)]


def legend(context, axes, function):
    """Inside where lines leave room; beside the axes for the many phases."""
    handles, labels = axes.get_legend_handles_labels()
    if not handles:
        return
    beside = {"loc": "center left", "bbox_to_anchor": (1, 0.5)}
    if function is panels.phases:
        order = slice(None, None, -1) if context.single else slice(None)
        axes.legend(handles[order], labels[order], **beside)
    elif function is panels.gradient_norms and context.single:
        axes.legend(handles, labels, **beside)
    else:
        axes.legend(handles, labels, loc="best")


def overview(context):
    """The figure with all panels."""
    lines = caption(context)
    top = 0.45 + LINE_HEIGHT * len(lines)
    height = ROW_HEIGHT * len(LAYOUT) + top
    figure, grid = plt.subplots(len(LAYOUT), 2, figsize=(WIDTH, height))
    figure.get_layout_engine().set(rect=(0, 0, 1, 1 - top / height), hspace=0.03)
    for row, functions in zip(grid, LAYOUT):
        for axes, function in zip(row, functions):
            function(context, axes)
            if not (axes.lines or axes.collections or axes.patches):
                panels.nothing(axes, "not recorded")
            bars = function is panels.phases and not context.single
            if bars:
                axes.grid(axis="y", visible=False)
            else:
                mark(context, axes)
                axes.set_xlim(0, 1.01 * max(context.xs(run)[-1] for run in context.runs))
                axes.set_xlabel("tokens" if context.x == "tokens" else "step")
                if context.x == "tokens":
                    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
            legend(context, axes, function)
    title = " and ".join(context.labels) if len(context.labels) < 4 else "Capstan runs"
    head = {"va": "top", "ha": "left"}
    figure.text(0.012, 1 - 0.1 / height, title, fontsize=14, fontweight="bold", **head)
    text = "\n".join(lines)
    figure.text(0.012, 1 - 0.38 / height, text, fontsize=8.5, color="#333333", **head)
    return figure


def save(figure, stem):
    for kind in ("png", "svg"):
        figure.savefig(f"{stem}.{kind}", dpi=130)
        print(f"{stem}.{kind}")
    plt.close(figure)


def unique_labels(runs, given):
    """Names of the runs; the directory's name where two are alike."""
    if given:
        if len(given) != len(runs):
            raise RunError(f"{len(given)} labels for {len(runs)} runs")
        return given
    names = [run.name for run in runs]
    if len(set(names)) < len(names):
        names = [os.path.basename(os.path.abspath(run.path)) for run in runs]
    if len(set(names)) < len(names):
        names = [run.path for run in runs]
    return names


def draw(options):
    runs = [Run(path) for path in options.runs]
    for run in runs:
        if not len(run.columns["step"]):
            raise RunError(f"{run.path}: no step is recorded yet")
    labels = unique_labels(runs, options.labels)
    context = panels.Context(runs, labels, options.x, options.smooth)
    save(overview(context), options.output)
    for run, label in zip(runs, labels):
        figure = expert_map.figure(run, label)
        if figure is not None:
            middle = "" if context.single else f".{label.replace('/', '_')}"
            save(figure, f"{options.output}{middle}.experts")
        for note in run.notes:
            print(f"note: {run.path}: {note}", file=sys.stderr)


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="+", help="run directories")
    parser.add_argument("-o", "--output", default="run", help="stem of the pictures")
    parser.add_argument("-x", "--x", choices=("step", "tokens"), default="step")
    parser.add_argument(
        "--smooth", type=int, help="steps of the running mean (default: 1 %% of the run)"
    )
    parser.add_argument(
        "--labels", type=lambda text: text.split(","), help="names of the runs, by commas"
    )
    parser.add_argument("--watch", type=float, help="draw again every WATCH seconds")
    return parser.parse_args()


def main():
    options = arguments()
    plt.rcParams.update(STYLE)
    while True:
        try:
            draw(options)
        except RunError as error:
            print(f"plot_run: {error}", file=sys.stderr)
            if not options.watch:
                return 4
        if not options.watch:
            return 0
        time.sleep(options.watch)


if __name__ == "__main__":
    sys.exit(main())
