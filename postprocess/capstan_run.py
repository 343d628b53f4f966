"""Reads a run directory: live, finished or killed, all segments as one history.

    run = Run("runs/quickstart")
    run.columns["loss"]     numpy array, one value a step (see README for the names)
    run.units["loss"]       "nats"
    run.layer["entropy"]    [steps, layers]
    run.evals               {"step", "tokens", "loss"}: held-out points
    run.events              [Event]: checkpoints, signals, health rules ...
    run.restarts            [Restart]: where segments joined, deck keys that changed
    run.discarded           [columns]: steps that were rolled back
    run.deck                {"model/hidden": 256, ...} of the last segment
    run.experts()           (steps, load [steps, layers, experts])
    run.notes               what could not be read and what was read instead

A segment replaces every row of earlier segments after its start_step.
"""
import glob
import os
import re
from collections import namedtuple

import numpy as np

import hdf5_snapshot

Event = namedtuple("Event", "step tokens kind text segment")
Restart = namedtuple("Restart", "step segment changes")
Change = namedtuple("Change", "key before after")

TEXT_INTEGERS = ("segment", "step", "tokens", "assignments")
EVAL_COLUMNS = ("step", "tokens", "loss")


class RunError(Exception):
    """The directory holds no history that can be read."""


class Segment:
    """One start of the program; rows after `cut` were replaced by a later segment."""

    def __init__(self, number, start_step=0):
        self.number = number
        self.start_step = start_step
        self.cut = np.iinfo(np.int64).max
        self.attributes = {}
        self.columns, self.units, self.layer = {}, {}, {}
        self.layer_step = np.empty(0, np.int64)  # steps of the rows of `layer`
        self.evals = {name: np.empty(0) for name in EVAL_COLUMNS}
        self.events = []

    @property
    def deck_text(self):
        return self.attributes.get("deck", "")


def plain(value):
    """An attribute as str, int, float or list."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace").rstrip("\0")
    return value.tolist() if hasattr(value, "tolist") else value


def parse_value(text):
    """A deck value as bool, int, float, text or a list of them."""
    if "," in text:
        return [parse_value(part.strip()) for part in text.split(",")]
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def parse_deck(text):
    """{"block/key": value} of a deck."""
    deck, block = {}, ""
    for line in text.splitlines():
        line = line.split("#", 1)[0].strip()
        if line.startswith("<") and line.endswith(">"):
            block = line[1:-1]
        elif "=" in line:
            key, value = (part.strip() for part in line.split("=", 1))
            deck[f"{block}/{key}"] = parse_value(value)
    return deck


def deck_changes(before, after):
    """Keys whose values differ between two decks."""
    keys = sorted(before.keys() | after.keys())
    pairs = [Change(key, before.get(key), after.get(key)) for key in keys]
    return [change for change in pairs if change.before != change.after]


def read_segment_file(file, layer_rows=None):
    """Segment from an open diag/history.<seg>.h5; rows that every column has. Of the
    columns by layer only about `layer_rows` rows, evenly spread, where that is given."""
    attributes = {name: plain(value) for name, value in file.attrs.items()}
    segment = Segment(int(attributes["segment"]), int(attributes["start_step"]))
    segment.attributes = attributes
    flat = {name: item for name, item in file.items() if hasattr(item, "shape")}
    layers = dict(file["layer"].items()) if "layer" in file else {}
    rows = min(len(item) for item in (*flat.values(), *layers.values()))
    segment.columns = {name: item[:rows] for name, item in flat.items()}
    stride = max(1, rows // layer_rows) if layer_rows else 1
    segment.layer = {name: item[:rows:stride] for name, item in layers.items()}
    segment.layer_step = segment.columns["step"][::stride]
    for name, item in flat.items():
        segment.units[name] = plain(item.attrs.get("unit", "1"))
    if "eval" in file:
        names = [name for name in file["eval"] if name not in EVAL_COLUMNS]
        segment.evals = read_group(file["eval"], (*EVAL_COLUMNS, *names))
    if "events" in file:
        rows = read_group(file["events"], ("step", "tokens", "kind", "text"))
        for step, tokens, kind, text in zip(*rows.values()):
            where = int(step), int(tokens)
            event = Event(*where, plain(kind), plain(text), segment.number)
            segment.events.append(event)
    return segment


def read_group(group, names):
    """Columns of a group, cut to the shortest."""
    rows = min(len(group[name]) for name in names)
    return {name: group[name][:rows] for name in names}


def parse_pairs(line):
    """{"key": "value"} of `#kind key=value ...`; `text` takes the rest of the line."""
    head, _, text = line.partition(" text=")
    pairs = dict(re.findall(r"(\w+)=(\S+)", head))
    return {**pairs, "text": text.strip()}


def rows_to_columns(names, rows):
    """Text rows as columns. The counts are integers, everything else is double."""
    table = np.loadtxt(rows, ndmin=2) if rows else np.empty((0, len(names)))
    columns = {name: table[:, i] for i, name in enumerate(names)}
    for name in TEXT_INTEGERS:
        if name in columns:
            columns[name] = columns[name].astype(np.int64)
    columns.pop("segment")
    return columns


def read_text(path):
    """{number: Segment} from history.txt; a last line without a line feed is left out."""
    with open(path) as file:
        lines = file.read().split("\n")[:-1]
    segments, names, rows, segment, evals = {}, [], [], None, []

    def finish():
        if segment is None:
            return
        whole = [row for row in rows if row.count(" ") == len(names) - 1]
        segment.columns = rows_to_columns(names, whole)
        keys = list(evals[0]) if evals else EVAL_COLUMNS
        segment.evals = {
            key: np.array([float(line.get(key, "nan")) for line in evals]) for key in keys
        }
        segments[segment.number] = segment

    for line in lines:
        if line.startswith("#segment "):
            finish()
            names, rows, segment, evals = line[1:].split(), [], None, []
        elif line.startswith("#start "):
            pairs = parse_pairs(line)
            segment = Segment(int(pairs["segment"]), int(pairs["start_step"]))
            segment.attributes = pairs
        elif line.startswith("#eval "):
            pairs = parse_pairs(line)
            del pairs["text"]
            evals.append(pairs)
        elif line.startswith("#event "):
            pairs = parse_pairs(line)
            where = int(pairs["step"]), int(pairs["tokens"])
            segment.events.append(
                Event(*where, pairs["kind"], pairs["text"], segment.number)
            )
        elif line and not line.startswith("#"):
            rows.append(line)
    finish()
    return segments


def numbered(directory, pattern):
    """{number: path} of files `directory/pattern`, `*` being the number."""
    found = {}
    for path in glob.glob(os.path.join(glob.escape(directory), pattern)):
        number = os.path.basename(path).split(".")[1]
        if number.isdigit():
            found[int(number)] = path
    return found


def joined(parts, keep):
    """Concatenates columns of segments; NaN where a segment lacks one."""
    names = list(dict.fromkeys(name for part in parts for name in part))
    result = {}
    for name in names:
        trailing = next(part[name].shape[1:] for part in parts if name in part)
        pieces = [
            part[name][mask] if name in part else np.full((mask.sum(), *trailing), np.nan)
            for part, mask in zip(parts, keep)
        ]
        result[name] = np.concatenate(pieces)
    return result


def last_step(segment):
    return max(segment.columns["step"], default=segment.start_step)


def ended_early(segments):
    """Numbers of segments whose rows end before the next one starts: those of a run that
    was killed between two flushes of its file."""
    numbers = sorted(segments)
    return [
        one
        for one, following in zip(numbers, numbers[1:])
        if last_step(segments[one]) < segments[following].start_step
    ]


def complete(segment, text):
    """Adds to a segment of a file what the same segment of history.txt has after it."""
    last = last_step(segment)
    segment.columns = with_rows_after(segment.columns, text.columns, last)
    last_eval = max(segment.evals["step"], default=-1)
    segment.evals = with_rows_after(segment.evals, text.evals, last_eval)
    segment.events = segment.events + text.events[len(segment.events) :]


def with_rows_after(columns, more, step):
    keep = np.full(len(columns["step"]), True), more["step"] > step
    return joined([columns, more], keep)


class Run:
    """A run directory as one history. Raises RunError if nothing in it can be read.

    `layer_rows` thins the columns by layer (run.layer, at run.layer_step) to about so
    many rows a segment: of a long run they are most of the bytes.
    """

    def __init__(self, path, layer_rows=None):
        self.path = os.fspath(path)
        self.layer_rows = layer_rows
        self.notes = []
        self.segments = self._read_segments()
        if not self.segments:
            raise RunError(f"{self.path}: no history to read. " + " ".join(self.notes))
        self._cut()
        self._join()
        last = self.segments[-1]
        self.deck_text = last.deck_text or self._deck_used()
        self.deck = parse_deck(self.deck_text)
        folder = os.path.basename(os.path.abspath(self.path))
        self.name = last.attributes.get("run") or self.deck.get("job/name") or folder

    def _read_segments(self):
        files = numbered(self.path, "diag/history.*.h5")
        expected = set(files) | set(numbered(self.path, "log.*"))
        segments = {}
        for number, path in sorted(files.items()):
            try:
                segments[number] = hdf5_snapshot.read(
                    path, lambda file: read_segment_file(file, self.layer_rows)
                )
            except hdf5_snapshot.Damaged as error:
                self.notes.append(f"{error}.")
        text = os.path.join(self.path, "history.txt")
        short = ended_early(segments)
        needed = expected - set(segments) or not segments or short
        if needed and os.path.exists(text):
            for number, segment in read_text(text).items():
                if number not in segments:
                    segments[number] = segment
                    self.notes.append(f"segment {number} read from history.txt.")
                elif number in short:
                    complete(segments[number], segment)
                    self.notes.append(f"segment {number} ends with rows of history.txt.")
        return [segments[number] for number in sorted(segments)]

    def _cut(self):
        limit = np.iinfo(np.int64).max
        for segment in reversed(self.segments):
            segment.cut = limit
            limit = min(limit, segment.start_step)

    def _join(self):
        segments = self.segments
        keep = [segment.columns["step"] <= segment.cut for segment in segments]
        self.columns = joined([segment.columns for segment in segments], keep)
        self.units = {key: unit for part in segments for key, unit in part.units.items()}
        thinned = [segment.layer_step <= segment.cut for segment in segments]
        self.layer = joined([segment.layer for segment in segments], thinned)
        steps = [part.layer_step[mask] for part, mask in zip(segments, thinned)]
        self.layer_step = np.concatenate(steps)
        keep = [segment.evals["step"] <= segment.cut for segment in segments]
        self.evals = joined([segment.evals for segment in segments], keep)
        self.events = [
            event
            for segment in segments
            for event in segment.events
            if event.step <= segment.cut
        ]
        self.restarts = []
        for before, after in zip(segments, segments[1:]):
            changes = []
            if before.deck_text and after.deck_text:
                decks = parse_deck(before.deck_text), parse_deck(after.deck_text)
                changes = deck_changes(*decks)
            self.restarts.append(Restart(after.start_step, after.number, changes))
        self.discarded = self._discarded()

    def _discarded(self):
        """Columns of the steps that each roll back undid, in their order."""
        found = []
        for before, after in zip(self.segments, self.segments[1:]):
            if any(event.kind == "rollback" for event in after.events):
                gone = before.columns["step"] > after.start_step
                found.append({k: column[gone] for k, column in before.columns.items()})
        return found

    def _deck_used(self):
        path = os.path.join(self.path, "deck.used")
        if not os.path.exists(path):
            return ""
        with open(path) as file:
            return file.read()

    def phases(self):
        """Names of the timer regions, the costliest first, `unaccounted` last."""
        stem = "seconds_"
        names = [key[len(stem) :] for key in self.columns if key.startswith(stem)]
        cost = {name: np.nansum(self.columns[stem + name]) for name in names}
        return sorted(names, key=lambda name: (name == "unaccounted", -cost[name]))

    def groups(self, stem):
        """Names g for which the column `<stem>_<g>` exists."""
        stem += "_"
        return [key[len(stem) :] for key in self.columns if key.startswith(stem)]

    def tokens_at(self, step):
        """Tokens seen after `step`; the rows give it, evenly spaced between them."""
        steps = np.concatenate([[0], self.columns["step"]])
        return np.interp(step, steps, np.concatenate([[0], self.columns["tokens"]]))

    def experts(self, bins=400, rows=None):
        """(last step of each bin, mean load [bins, L, E] of the bin's rows, or of its
        last `rows` rows); bins = None gives every row. Empty arrays where the run has no
        load files."""
        parts = []
        files = numbered(self.path, "diag/experts.*.h5")
        known = {segment.number: segment for segment in self.segments}
        for number in sorted(set(files) & set(known)):
            cut = known[number].cut
            try:
                part = hdf5_snapshot.read(
                    files[number], lambda file: read_load(file, cut, bins, rows)
                )
                parts.append(part)
            except hdf5_snapshot.Damaged as error:
                self.notes.append(f"{error}.")
        parts = [part for part in parts if len(part[0])]
        if not parts:
            return np.empty(0, np.int64), np.empty((0, 0, 0))
        return tuple(np.concatenate(piece) for piece in zip(*parts))


def read_load(file, cut, bins, most):
    """One segment's part of Run.experts, read bin by bin."""
    rows = min(len(file["step"]), len(file["load"]))
    steps = file["step"][:rows]
    rows = int(np.searchsorted(steps, cut, side="right"))
    if not rows:
        return steps[:0], np.empty((0, *file["load"].shape[1:]))
    count = rows if bins is None else min(bins, rows)
    edges = np.linspace(0, rows, count + 1).astype(int)
    spans = list(zip(edges[:-1], edges[1:]))
    if most:
        spans = [(max(first, last - most), last) for first, last in spans]
    load = [file["load"][first:last].mean(axis=0) for first, last in spans]
    return steps[edges[1:] - 1], np.stack(load)
