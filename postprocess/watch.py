#!/usr/bin/python3
"""Follows a running job in the terminal: loss, drops, tokens/s, time to finish, events.

    watch.py runs/quickstart             # again every 2 seconds; ends with the run, or ^C
    watch.py runs/quickstart --once      # once, for scripts

Reads the diagnostics while they are written, and history.txt where the file system has
no SWMR or the HDF5 file is damaged.
"""
import argparse
import os
import shutil
import sys
import time

import numpy as np

import report_facts
from capstan_run import Run, RunError

BARS = "▁▂▃▄▅▆▇█"
LAST_EVENTS = 6
BOLD, DIM, RED, RESET = "\033[1m", "\033[2m", "\033[31m", "\033[0m"
LOUD = ("health", "skip", "save_failed", "rollback")


def sparkline(values, width):
    """Means of `width` parts as bars between the least and the greatest of them."""
    values = np.asarray(values, dtype=float)
    values = values[np.isfinite(values)]
    if not len(values):
        return ""
    parts = np.array_split(values, min(width, len(values)))
    means = np.array([part.mean() for part in parts])
    span = means.max() - means.min()
    levels = (means - means.min()) / span * (len(BARS) - 1) if span > 0 else means * 0
    return "".join(BARS[int(round(level))] for level in levels)


def progress(share, width):
    done = int(round(min(1.0, max(0.0, share)) * width))
    return "█" * done + "░" * (width - done)


def recent_loss(run, steps):
    values = run.columns["loss"][-steps:]
    return float(np.nanmean(values)) if np.isfinite(values).any() else float("nan")


def head_lines(run, status, paint, width):
    step, planned = int(run.columns["step"][-1]), report_facts.planned_steps(run)
    state = status.get("state", "unknown")
    lines = [f"{paint(BOLD)}{run.name}{paint(RESET)}  {state}  "
             f"{paint(DIM)}{run.path}{paint(RESET)}"]
    text = f"step {step:,}"
    if planned:
        share = step / planned
        left = (planned - step) * report_facts.middle(
            report_facts.recent(run, "step_seconds"))
        text += f" of {planned:,}  {share:6.1%}  {progress(share, max(10, width - 60))}  "
        text += "finished" if step >= planned else f"{report_facts.clock(left)} to go"
    tokens = report_facts.short(run.columns["tokens"][-1])
    return [*lines, text + f"  {tokens} tokens"]


def figure_lines(run):
    short, percent = report_facts.short, report_facts.percent
    last = {name: values[-1] for name, values in run.columns.items()}
    held = [f"{name.replace('loss', 'held-out', 1)} {values[-1]:.4f}"
            for name, values in run.evals.items()
            if name.startswith("loss") and len(values)]
    lines = [f"loss {last['loss']:.4f}   mean of 50 {recent_loss(run, 50):.4f}   "
             + "   ".join(held)]
    rate = report_facts.middle(report_facts.recent(run, "tokens_per_second"))
    text = f"tokens/s {short(rate)}"
    if np.isfinite(last.get("mfu", np.nan)) and last["mfu"] > 0:
        text += f"   MFU {percent(last['mfu'])}"
    text += f"   grad norm {short(last.get('grad_norm', np.nan))}"
    text += f"   lr {last.get('lr', np.nan):.4g}"
    lines.append(text)
    text = f"drops {percent(last.get('drop_fraction', np.nan))}"
    for cause in ("sender", "receiver"):
        text += f"   {cause} {percent(last.get(f'drop_{cause}_fraction', np.nan))}"
    text += f"   fullest expert {short(last.get('load_max_over_mean', np.nan))} x mean"
    return [*lines, text]


def view(path, color=False, width=100):
    """The text of one moment."""
    run = Run(path, layer_rows=1)
    status = report_facts.status_of(run)
    if not len(run.columns["step"]):
        return f"{path}: {status.get('state', 'unknown')}, no step yet\n", status

    def paint(code):
        return code if color else ""

    lines = head_lines(run, status, paint, width) + [""] + figure_lines(run)
    lines += ["", "loss      " + sparkline(run.columns["loss"], width - 12)]
    lines.append("tokens/s  " + sparkline(run.columns["tokens_per_second"], width - 12))
    if run.events:
        lines.append("")
    for event in run.events[-LAST_EVENTS:]:
        ink = paint(RED) if event.kind in LOUD else ""
        text = f"{event.step:>9,}  {event.kind:<11} {event.text}"
        lines.append(ink + text[: width - 1] + (paint(RESET) if ink else ""))
    lines += [f"{paint(DIM)}{note}{paint(RESET)}" for note in run.notes]
    return "\n".join(lines) + "\n", status


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", help="run directory")
    parser.add_argument("--once", action="store_true", help="print once")
    parser.add_argument("--every", type=float, default=2.0, help="seconds between views")
    options = parser.parse_args()
    terminal = sys.stdout.isatty()
    while True:
        size = shutil.get_terminal_size((100, 30))
        try:
            text, status = view(options.run, terminal, size.columns)
        except RunError as error:
            text, status = f"watch: {error}\n", {}
            if options.once or not os.path.isdir(options.run):
                print(text, end="", file=sys.stderr)
                return 4
        home = "\033[H\033[J" if terminal and not options.once else ""
        print(home + text, end="", flush=True)
        ended = status.get("state") in ("done", "failed", "stalled")
        if options.once or ended:
            return 0
        time.sleep(options.every)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(0)
