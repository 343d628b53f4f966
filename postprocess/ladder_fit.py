"""The law behind a ladder of runs: loss = L0 + A C^-alpha at a fraction of training.

    ladder = read_table("inputs/ladder/published.table")     # or ladder_runs.from_runs
    forecast = forecast_of(ladder, asymptote=None)           # None: L0 fitted
    forecast.loss, forecast.low, forecast.high               # one value a fraction

At fraction g each rung of compute C counts with C g (FLOPs without the head), and
log(loss - L0) is fitted against log(C g) by least squares, as published in
marin-community/marin#8435. A fitted L0 is one for all fractions: the one with the least
sum of squared errors of the loss over the last fifth of training, where the learning rate
has decayed and evaluations scatter least.
"""
import re
from dataclasses import dataclass, field

import numpy as np

SETTLED = 0.8  # fractions before it do not take part in fitting L0
NEIGHBOURS = 3  # on either side, that tell the noise of an evaluation
DRAWS, SEED, INSIDE = 400, 1, 95  # of the bootstrap; per cent inside its range


class LadderError(Exception):
    """The ladder cannot be read or fitted."""


@dataclass
class Ladder:
    """Rungs and target. loss[i, r]: held-out loss of rung r at fraction fractions[i]."""

    names: list
    flops: np.ndarray
    fractions: np.ndarray
    loss: np.ndarray
    target: str
    target_flops: float
    target_tokens: float
    asymptote: float = None
    source: str = ""
    extrapolated: dict = field(default_factory=dict)  # rung name: first such fraction
    seen: list = field(default_factory=list)  # (fraction, loss) of the target
    notes: list = field(default_factory=list)


def pairs(line):
    """{"key": "value"} of `#kind key=value ...`; `text` takes the rest of the line."""
    head, _, text = line.partition(" text=")
    return {**dict(re.findall(r"(\w+)=(\S+)", head)), "text": text.strip()}


def read_table(path):
    """A Ladder from a text file; its format is described in postprocess/README."""
    rungs, rows, ladder, names = {}, [], {}, []
    with open(path) as file:
        for line in file:
            given = pairs(line)
            if line.startswith("#rung "):
                rungs[given["name"]] = float(given["flops"])
            elif line.startswith("#target "):
                ladder["target"] = given["name"]
                ladder["target_flops"] = float(given["flops"])
                ladder["target_tokens"] = float(given["tokens"])
            elif line.startswith("#asymptote "):
                ladder["asymptote"] = float(given["loss"])
            elif line.startswith("#source "):
                ladder["source"] = given["text"]
            elif line.startswith("#extrapolated "):
                marks = ladder.setdefault("extrapolated", {})
                marks[given["rung"]] = float(given["from"])
            elif line.startswith("#seen "):
                point = float(given["fraction"]), float(given["loss"])
                ladder.setdefault("seen", []).append(point)
            elif line.startswith("fraction "):
                names = line.split()[1:]
            elif line.strip() and not line.startswith("#"):
                rows.append([float(word) for word in line.split()])
    if "target" not in ladder or not rows or set(names) != set(rungs):
        raise LadderError(f"{path}: it needs #rung lines, a #target and a table of them")
    table = np.array(rows)
    flops = np.array([rungs[name] for name in names])
    return Ladder(names, flops, table[:, 0], table[:, 1:], **ladder)


def power_law(flops, loss, asymptote):
    """(log A, alpha) of each row of loss [..., rungs] on flops of that shape."""
    x, y = np.log(flops), np.log(loss - asymptote)
    dx = x - x.mean(axis=-1, keepdims=True)
    slope = (dx * y).sum(axis=-1) / (dx * dx).sum(axis=-1)
    return y.mean(axis=-1) - slope * x.mean(axis=-1), -slope


def law(flops, asymptote, log_a, alpha):
    return asymptote + np.exp(log_a - alpha * np.log(flops))


def fit_asymptote(fractions, flops, loss):
    """L0, from 0 to just below the least loss, by a grid that narrows three times."""
    settled = fractions >= SETTLED if (fractions >= SETTLED).any() else fractions > 0
    flops, loss = flops[settled], loss[settled]
    low, high = 0.0, 0.999 * loss.min()
    for _ in range(4):
        grid = np.linspace(low, high, 25)
        level = grid[:, None, None]
        log_a, alpha = power_law(flops, loss, level)
        told = law(flops, level, log_a[..., None], alpha[..., None])
        best = int(np.argmin(((told - loss) ** 2).sum(axis=(1, 2))))
        low, high = grid[max(0, best - 1)], grid[min(24, best + 1)]
    return 0.5 * (low + high) if low > 0 else low


def extrapolate(ladder, loss, rungs, asymptote):
    """(L0, log A, alpha, loss of the target) of each fraction, from some of the rungs."""
    flops = ladder.fractions[:, None] * ladder.flops[None, rungs]
    loss = loss[:, rungs]
    if asymptote is None:
        asymptote = fit_asymptote(ladder.fractions, flops, loss)
    log_a, alpha = power_law(flops, loss, asymptote)
    target = law(ladder.fractions * ladder.target_flops, asymptote, log_a, alpha)
    return asymptote, log_a, alpha, target


def evaluation_noise(loss):
    """Standard deviation of each point about a smooth curve, of the size of loss
    [fractions, rungs]: points against the quadratic through two neighbours on either
    side, the mean over some points around; 0 below 5 points."""
    if len(loss) < 5:
        return np.zeros(loss.shape)
    near, far = loss[1:-3] + loss[3:-1], loss[:-4] + loss[4:]
    variance = (loss[2:-2] - (4 * near - far) / 6) ** 2 / (35 / 18)
    noise = np.empty(loss.shape)
    for i in range(len(loss)):
        centre = min(max(i - 2, NEIGHBOURS), max(len(variance) - 1 - NEIGHBOURS, 0))
        around = variance[max(0, centre - NEIGHBOURS) : centre + NEIGHBOURS + 1]
        noise[i] = np.sqrt(around.mean(axis=0))
    return noise


@dataclass
class Forecast:
    """One value a fraction each, besides L0."""

    asymptote: float
    fitted: bool
    a: np.ndarray
    alpha: np.ndarray
    loss: np.ndarray
    left_out: np.ndarray  # [2, fractions]: least and greatest with one rung left out
    drawn: np.ndarray  # [2, fractions]: the range of the bootstrap
    noise: np.ndarray  # [fractions, rungs]
    low: np.ndarray  # of both ranges
    high: np.ndarray


def forecast_of(ladder, asymptote=None):
    """Fit, forecast and band. asymptote = None: L0 is fitted, and again for each rung
    left out and each draw, so that the band holds what is not known of it."""
    count = len(ladder.names)
    if count < 3:
        raise LadderError(f"{count} rungs: a forecast with a band needs three or more")
    if asymptote is not None and ladder.loss.min() <= asymptote:
        raise LadderError(f"L0 = {asymptote} is not below every loss of the rungs")
    rungs = np.arange(count)
    level, log_a, alpha, loss = extrapolate(ladder, ladder.loss, rungs, asymptote)
    less = [np.delete(rungs, r) for r in rungs]
    left_out = [extrapolate(ladder, ladder.loss, few, asymptote)[3] for few in less]
    noise = evaluation_noise(ladder.loss)
    random = np.random.default_rng(SEED)
    draws = []
    for _ in range(DRAWS):
        moved = ladder.loss + noise * random.standard_normal(ladder.loss.shape)
        draws.append(extrapolate(ladder, moved, rungs, asymptote)[3])
    tail = (100 - INSIDE) / 2
    drawn = np.percentile(draws, [tail, 100 - tail], axis=0)
    left_out = np.array([np.min(left_out, axis=0), np.max(left_out, axis=0)])
    low = np.minimum(np.minimum(left_out[0], drawn[0]), loss)
    high = np.maximum(np.maximum(left_out[1], drawn[1]), loss)
    fitted = asymptote is None
    parts = left_out, drawn, noise, low, high
    return Forecast(level, fitted, np.exp(log_a), alpha, loss, *parts)


def errors(ladder, forecast):
    """[(fraction, loss, forecast, error)] of what has been seen of the target: between
    the fractions of the forecast, which is interpolated in a straight line."""
    first, last = ladder.fractions[0], ladder.fractions[-1]
    found = []
    for fraction, loss in ladder.seen:
        if first - 1e-9 <= fraction <= last + 1e-9:
            told = float(np.interp(fraction, ladder.fractions, forecast.loss))
            found.append((fraction, loss, told, loss - told))
    return found
