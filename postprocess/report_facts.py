"""Figures and verdict of a run page: what a reader wants to know first."""
import os

import numpy as np

from report_data import has, rounded


def status_of(run):
    """{"state": ..., "step": ...} of the run's status line."""
    path = os.path.join(run.path, "status")
    if not os.path.exists(path):
        return {"state": "unknown"}
    with open(path) as file:
        words = file.readline().split()
    return dict(word.partition("=")[::2] for word in words)


def planned_steps(run):
    """Length of the run in steps, 0 where its deck gives none."""
    steps = int(status_of(run).get("steps", 0) or 0)
    if steps:
        return steps
    steps = run.deck.get("job/steps") or 0
    each = run.columns["tokens"][-1] / run.columns["step"][-1]
    return int(steps or (run.deck.get("schedule/tokens") or 0) / each)


def recent(run, name, share=0.1, least=10):
    """Finite values of the column's last tenth."""
    values = run.columns.get(name, np.empty(0))
    values = np.asarray(values[-max(least, int(len(values) * share)) :], dtype=float)
    return values[np.isfinite(values)]


def middle(values):
    return float(np.median(values)) if len(values) else float("nan")


def mean(values):
    return float(np.mean(values)) if len(values) else float("nan")


def clock(seconds):
    """1 d 02:03 or 02:03:04."""
    seconds = int(seconds)
    days, rest = divmod(seconds, 86400)
    hours, rest = divmod(rest, 3600)
    if days:
        return f"{days} d {hours:02d}:{rest // 60:02d}"
    return f"{hours:02d}:{rest // 60:02d}:{rest % 60:02d}"


def short(number, digits=3):
    """12.3k, 4.56M, 18.0T."""
    if not np.isfinite(number):
        return "–"
    for limit, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= limit:
            return f"{number / limit:.{digits}g}{letter}"
    return f"{number:.{digits + 1}g}"


def percent(share):
    if not np.isfinite(share):
        return "–"
    return "0" if share == 0 else f"{100 * share:.3g} %"


def tiles(run):
    """[[label, figure, small print]] of the head of a run."""
    step, tokens = int(run.columns["step"][-1]), int(run.columns["tokens"][-1])
    planned = planned_steps(run)
    losses = recent(run, "loss", 0.01)
    rows = [["Step", f"{step:,}", f"of {planned:,}" if planned else ""]]
    rows.append(["Tokens", short(tokens), f"{tokens:,}"])
    rows.append(["Training loss", f"{mean(losses):.4f}",
                 f"mean of the last {len(losses)} steps"])
    if len(run.evals["loss"]):
        best = np.nanmin(run.evals["loss"])
        rows.append(["Held-out loss", f"{run.evals['loss'][-1]:.4f}",
                     f"dropless; best {best:.4f}"])
    if has(run, "drop_fraction"):
        parts = [percent(mean(recent(run, f"drop_{cause}_fraction")))
                 for cause in ("sender", "receiver")]
        rows.append(["Dropped", percent(mean(recent(run, "drop_fraction"))),
                     f"sender {parts[0]}, receiver {parts[1]}; last tenth"])
    rate = middle(recent(run, "tokens_per_second"))
    rows.append(["Tokens/s", short(rate), "median of the last tenth"])
    if has(run, "mfu"):
        rows.append(["MFU", percent(middle(recent(run, "mfu"))),
                     "published FLOPs, forward + backward"])
    seconds = float(np.nansum(run.columns.get("step_seconds", [0])))
    left = max(0, planned - step) * middle(recent(run, "step_seconds"))
    small = f"{clock(left)} to go" if planned > step and np.isfinite(left) else ""
    rows.append(["Time in steps", clock(seconds), small])
    return rows


def origin(run):
    """[[label, text]]: where and how the run was made."""
    facts = run.segments[-1].attributes
    grid = facts.get("grid", "")
    if isinstance(grid, list):
        grid = " x ".join(str(n) for n in grid)
    ranks = int(facts.get("ranks", 1) or 1)
    hours = float(np.nansum(run.columns.get("step_seconds", [0]))) / 3600
    rows = [["Directory", os.path.abspath(run.path)]]
    rows.append(["Grid", f"{grid} (pipe x data x expert), {ranks} ranks"])
    rows.append(["Rank-hours in steps", f"{hours * ranks:.3g}"])
    for label, key in (("Version", "version"), ("Deck hash", "deck_hash"),
                       ("Host of rank 0", "host"), ("Last start", "started")):
        if facts.get(key):
            rows.append([label, str(facts[key])])
    rows.append(["Segments", str(len(run.segments))])
    return rows


def band_lines(run, band):
    """One line for the last held-out point, one for the share inside the band."""
    tokens, losses = np.asarray(run.evals["tokens"], float), run.evals["loss"]
    reach = (tokens >= band["tokens"][0]) & (tokens <= band["tokens"][-1] * 1.0001)
    if not reach.any():
        return [["info", "No held-out point lies in the range of the ladder's band yet."]]
    tokens, losses = tokens[reach], np.asarray(losses)[reach]
    low, high, told = (np.interp(tokens, band["tokens"], band[name])
                       for name in ("low", "high", "loss"))
    inside = (losses >= low) & (losses <= high)
    word = "inside" if inside[-1] else "above" if losses[-1] > high[-1] else "below"
    kind = {"inside": "good", "below": "good", "above": "bad"}[word]
    text = f"Held-out loss {losses[-1]:.4f} after {short(tokens[-1])} tokens is {word}"
    text += f" the ladder's band {low[-1]:.4f} to {high[-1]:.4f}"
    text += f" (forecast {told[-1]:.4f})."
    share = f"{inside.sum()} of {len(inside)} held-out points lie inside the band, "
    share += f"{(losses < low).sum()} below, {(losses > high).sum()} above."
    return [[kind, text], ["info", share]]


def verdict(run, found, band):
    """[[good | warn | bad | info, sentence]], from figures and events alone."""
    status, planned = status_of(run), planned_steps(run)
    step = int(run.columns["step"][-1])
    state = status.get("state", "unknown")
    done = state == "done" or (planned and step >= planned)
    word = f"is {state}" if state != "unknown" else "left no status and stands"
    text = f"The run {word} at step {step:,}"
    text += f" of {planned:,} ({step / planned:.1%})." if planned else "."
    lines = [["good" if done else "bad" if state == "failed" else "info", text]]
    if band:
        lines += band_lines(run, band)
    counts = found["counts"]
    for kind, what in (("health", "health rules fired"), ("skip", "updates were skipped"),
                       ("save_failed", "saves failed"), ("rollback", "rollbacks")):
        if counts.get(kind):
            lines.append(["warn", f"{counts[kind]} {what}."])
    if run.restarts:
        changed = sum(bool(r.changes) for r in run.restarts)
        word = "restart" if len(run.restarts) == 1 else "restarts"
        lines.append(["info", f"{len(run.restarts)} {word}; the deck was changed at "
                      f"{changed or 'none'} of them."])
    lost = ~np.isfinite(np.asarray(run.columns["loss"], float))
    if lost.any():
        lines.append(["bad", f"{lost.sum()} steps have no finite loss."])
    for note in run.notes:
        lines.append(["warn", f"Reading: {note}"])
    return lines


def written_verdict(run):
    """RUN/verdict.txt: what people concluded; "" where there is none."""
    path = os.path.join(run.path, "verdict.txt")
    if not os.path.exists(path):
        return ""
    with open(path) as file:
        return file.read().strip()


def comparison(runs):
    """[[label, figure of each run]] for several runs side by side."""
    tables = [{label: [figure, small] for label, figure, small in tiles(run)}
              for run in runs]
    labels = list(dict.fromkeys(label for table in tables for label in table))
    rows = [[label, *(table.get(label, ["–", ""])[0] for table in tables)]
            for label in labels]
    norms = [recent(run, "grad_norm") for run in runs]
    rows.append(["Gradient norm", *(short(middle(norm)) for norm in norms)])
    return rows


def axis(run, bins):
    """The x values of a run's bins."""
    return {"step": bins.last(run.columns["step"]).tolist(),
            "tokens": rounded(bins.last(run.columns["tokens"]), 12)}
