"""What a run page shows, as plain lists: curves thinned to envelopes, events, heat maps.

A curve of many steps becomes at most POINTS bins of equally many rows. Each bin keeps the
mean, the least and the greatest value of its rows, so a spike of one step stays visible.
"""
import base64
import hashlib
import os

import numpy as np

from capstan_run import parse_deck

POINTS = 600  # bins of a curve
HEAT_BYTES = 500_000  # of all maps of expert load of a run
HEAT_TIMES = 40
LAYER_TIMES = 240
LOUD = ("restart", "health", "skip", "save_failed", "deck_change", "stop", "signal")
LOUD += ("rollback", "contingency")
EVENTS_LISTED = 400
PHASES_SHOWN = 8


def rounded(values, digits=5):
    """Numbers with so many digits, None where there is none: what JSON takes."""
    result = []
    for value in np.asarray(values, dtype=float):
        number = float(f"{value:.{digits}g}") if np.isfinite(value) else None
        whole = number is not None and number == int(number)
        result.append(int(number) if whole else number)
    return result


class Bins:
    """Rows 0..n-1 in at most POINTS bins of equally many rows."""

    def __init__(self, rows, points=POINTS):
        self.count = min(rows, points)
        self.edges = np.linspace(0, rows, self.count + 1).astype(int)
        self.rows_each = rows / max(1, self.count)

    def last(self, values):
        return np.asarray(values)[self.edges[1:] - 1]

    def mean(self, values):
        values = np.asarray(values, dtype=float)
        good = np.isfinite(values)
        sums = np.add.reduceat(np.where(good, values, 0), self.edges[:-1])
        counts = np.add.reduceat(good.astype(float), self.edges[:-1])
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(counts > 0, sums / counts, np.nan)

    def envelope(self, values):
        """(mean, least, greatest) of each bin; not-finite values are left out."""
        values = np.asarray(values, dtype=float)
        good = np.isfinite(values)
        low = np.minimum.reduceat(np.where(good, values, np.inf), self.edges[:-1])
        high = np.maximum.reduceat(np.where(good, values, -np.inf), self.edges[:-1])
        return self.mean(values), low, high


def has(run, name):
    values = run.columns.get(name)
    return values is not None and np.isfinite(values).any()


def curves(run, bins):
    """{name: [mean, low, high]} or {name: [mean]} of what the page draws."""
    found = {}
    names = ["loss", "grad_norm", "drop_fraction", "tokens_per_second", "mfu"]
    names += ["load_max_over_mean", "update_ratio", "lr", "z_loss"]
    for name in names:
        if has(run, name):
            parts = bins.envelope(run.columns[name])
            kept = 3 if bins.rows_each > 1 else 1
            found[name] = [rounded(part) for part in parts[:kept]]
    means = ["drop_sender_fraction", "drop_receiver_fraction", "routing_entropy"]
    for stem in ("grad_norm", "lr"):
        means += [f"{stem}_{group}" for group in run.groups(stem)]
    for name in means:
        if has(run, name):
            found[name] = [rounded(bins.mean(run.columns[name]))]
    return found


def phases(run, bins):
    """[[name, seconds of each bin]], costliest first; small ones gathered as `other`."""
    named = [name for name in run.phases() if name != "unaccounted"]
    shown, rest = named[:PHASES_SHOWN], named[PHASES_SHOWN:]
    parts = [[name, bins.mean(run.columns[f"seconds_{name}"])] for name in shown]
    if rest:
        columns = [np.nan_to_num(run.columns[f"seconds_{name}"]) for name in rest]
        parts.append(["other", bins.mean(np.sum(columns, axis=0))])
    if "unaccounted" in run.phases():
        parts.append(["unaccounted", bins.mean(run.columns["seconds_unaccounted"])])
    return [[name, rounded(np.nan_to_num(values), 4)] for name, values in parts]


def as_bytes(values):
    """Base64 of values in 0..1 as one byte each; 255 stands for 1."""
    levels = np.nan_to_num(np.clip(values, 0, 1)) * 255
    return base64.b64encode(levels.round().astype(np.uint8).tobytes()).decode()


def expert_maps(run):
    """Load over the mean of every expert and layer at some times, as bytes: 0 = a quarter
    of the mean or less, 255 = four times or more, even steps of the logarithm."""
    steps, load = run.experts(bins=HEAT_TIMES, rows=8)
    if not len(steps):
        return None
    each = max(1, load.shape[1] * load.shape[2])
    most = int(max(2, min(HEAT_TIMES, HEAT_BYTES // each)))
    if len(steps) > most:
        keep = np.unique(np.linspace(0, len(steps) - 1, most).round().astype(int))
        steps, load = steps[keep], load[keep]
    mean = load.mean(axis=2, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        levels = np.log2(load / mean) / 4 + 0.5
    times = {"step": steps.tolist(), "tokens": rounded(run.tokens_at(steps), 9)}
    size = {"layers": load.shape[1], "experts": load.shape[2]}
    worst = rounded((load / np.maximum(mean, 1e-30)).max(axis=(1, 2)), 4)
    return {**times, **size, "worst": worst, "data": as_bytes(levels)}


def layer_maps(run):
    """Maps [layer, time] of the layers' drops and of their fullest expert."""
    maps = []
    rows = len(run.layer_step)
    if not rows:
        return maps
    bins = Bins(rows, LAYER_TIMES)
    parts = {name: run.layer.get(name) for name in ("drops_sender", "drops_receiver")}
    drops = [values for values in parts.values() if values is not None]
    wanted = [("Load of the fullest expert over the mean", "load_max_over_mean", 1, "x")]
    table = {**run.layer, "drops": np.sum(drops, axis=0) if drops else None}
    wanted.append(("Dropped assignments", "drops", 0, "%"))
    for title, name, floor, unit in wanted:
        values = table.get(name)
        if values is None or not np.isfinite(values).any():
            continue
        shown = np.array([bins.mean(values[:, i]) for i in range(values.shape[1])])
        top = float(np.nanpercentile(shown, 99.5))
        if top <= floor:
            continue
        scale = (shown - floor) / (top - floor)
        maps.append({"title": title, "floor": floor, "top": top, "unit": unit,
                     "layers": shown.shape[0], "times": shown.shape[1],
                     "data": as_bytes(scale), "step": bins.last(run.layer_step).tolist()})
    return maps


def events(run):
    """Every event on the time axis (quiet ones at most once a bin, in `marks`); the list
    keeps the newest ones and the loud ones."""
    marks = [[e.step, e.tokens, e.kind, e.text, e.segment] for e in run.events]
    loud = [m for m in marks if m[2] in LOUD]
    quiet = [m for m in marks if m[2] not in LOUD]
    kept = sorted(loud[-EVENTS_LISTED:] + quiet[-EVENTS_LISTED:], key=lambda m: m[0])
    counts = {}
    for mark in marks:
        counts[mark[2]] = counts.get(mark[2], 0) + 1
    last = max(1, max((m[0] for m in quiet), default=1))
    thinned = {(m[2], m[0] * POINTS // last): [m[0], m[1]] for m in quiet}
    places = {}
    for (kind, _), place in thinned.items():
        places.setdefault(kind, []).append(place)
    return {"marks": places, "list": kept, "counts": counts, "all": len(marks)}


def restarts(run):
    return [{"step": r.step, "segment": r.segment,
             "changes": [[c.key, shown(c.before), shown(c.after)] for c in r.changes]}
            for r in run.restarts]


def shown(value):
    if value is None:
        return "(absent)"
    if isinstance(value, list):
        return ", ".join(str(part) for part in value)
    return str(value)


def experiment_lines(text):
    """The <experiment> block of a deck as `key = value` lines; empty keys stay."""
    deck = parse_deck_text(text)
    return [f"{key} = {value}".rstrip() for key, value in deck]


def parse_deck_text(text):
    """[(key, value)] of <experiment>, values as written."""
    found, inside = [], False
    for line in text.splitlines():
        line = line.strip()
        if line.startswith("<"):
            inside = line == "<experiment>"
        elif inside and "=" in line and not line.startswith("#"):
            key, value = line.split("=", 1)
            found.append((key.strip(), value.split(" #")[0].strip()))
    return found


def experiment(run):
    """The question as it stood before the first step, and what became of it."""
    first = next((s.deck_text for s in run.segments if s.deck_text), run.deck_text)
    result = {"start": parse_deck_text(first), "now": parse_deck_text(run.deck_text)}
    path = os.path.join(run.path, "experiment.txt")
    if not os.path.exists(path):
        return {**result, "seal": None}
    with open(path) as file:
        lines = file.read().splitlines()
    body = [line for line in lines if not line.startswith("# ")]
    seal = dict(word.partition("=")[::2] for word in lines[-1][2:].split())
    text = "\n".join(body) + "\n"
    intact = hashlib.sha256(text.encode()).hexdigest() == seal.get("sha256")
    pairs = [tuple(p.strip() for p in line.split("=", 1)) for line in body if "=" in line]
    asked = [(k, v) for k, v in result["start"] if v or k in dict(pairs)]
    return {**result, "start": pairs, "seal": {**seal, "intact": intact,
            "same": dict(pairs) == dict(asked)}}


def read_band(path):
    """The ladder's forecast: {"tokens", "loss", "low", "high"}."""
    with open(path) as file:
        head, names, *rows = file.read().splitlines()
    table = np.array([[float(x) for x in row.split()] for row in rows])
    columns = dict(zip(names.split(), table.T))
    band = {name: rounded(columns[name], 9) for name in ("tokens", "loss", "low", "high")}
    return {**band, "head": head.lstrip("#")}


def deck_changes_between(runs):
    """[[key, value of each run]] where the decks of the runs differ."""
    decks = [parse_deck(run.deck_text) for run in runs]
    keys = sorted({key for deck in decks for key in deck})
    rows = [[key, *(shown(deck.get(key)) for deck in decks)] for key in keys]
    return [row for row in rows if len(set(row[1:])) > 1]
