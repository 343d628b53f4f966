"""The panels of the overview: each draws one quantity of some runs on one axes."""
import numpy as np
from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator, NullFormatter

# Okabe and Ito's palette, safe for colour-blind readers, and two more.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F3C8D")
COLORS += ("#8c6d31",)
GREY, OTHER, UNACCOUNTED = "#666666", "#a6a6a6", "#dddddd"
SHOWN_PHASES = 8


class Context:
    """What all panels share: the runs with their labels, the x axis, the smoothing."""

    def __init__(self, runs, labels, x="step", smooth=None):
        self.runs, self.labels, self.x, self.smooth = runs, labels, x, smooth
        self.single = len(runs) == 1

    def xs(self, run, steps=None):
        """The x value of steps (default: of every row)."""
        if self.x == "tokens":
            return run.columns["tokens"] if steps is None else run.tokens_at(steps)
        return run.columns["step"] if steps is None else np.asarray(steps)

    def color(self, i):
        return COLORS[i % len(COLORS)]

    def window(self, count):
        return self.smooth if self.smooth is not None else max(1, count // 100)

    def smoothed(self, values):
        """Centred mean over the window, which shrinks at the ends; NaN is left out."""
        values = np.asarray(values, dtype=float)
        half = self.window(len(values)) // 2
        if half == 0:
            return values
        good = np.isfinite(values)
        sums = np.concatenate([[0], np.cumsum(np.where(good, values, 0))])
        counts = np.concatenate([[0], np.cumsum(good)])
        first = np.clip(np.arange(len(values)) - half, 0, None)
        last = np.clip(np.arange(len(values)) + half + 1, None, len(values))
        first = np.maximum(first, 2 * np.arange(len(values)) + 1 - len(values))
        last = np.minimum(last, 2 * np.arange(len(values)) + 1)
        with np.errstate(invalid="ignore", divide="ignore"):
            return (sums[last] - sums[first]) / (counts[last] - counts[first])


def column(run, name):
    """The column, or None where the run has none or nothing finite in it."""
    values = run.columns.get(name)
    return values if values is not None and np.isfinite(values).any() else None


def line(context, axes, run, name, color, label=None, raw=True, smooth=True, **style):
    """One column as a line, smoothed, over its raw values. Returns the line's values."""
    values = column(run, name)
    if values is None:
        return None
    x, values = context.xs(run), np.asarray(values, dtype=float)
    shown = context.smoothed(values) if smooth else values
    if raw and smooth and context.window(len(values)) > 1:
        axes.plot(x, values, color=color, linewidth=0.6, alpha=0.25, zorder=1)
    marker = {"marker": "o", "markersize": 3} if len(values) < 3 else {}
    style = {"linewidth": 1.5, **marker, **style}
    axes.plot(x, shown, color=color, label=label, zorder=2, **style)
    return shown


def plain_log(axes):
    """Logarithmic y axis with plain numbers: 0.3, not 3 x 10^-1."""
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    steps = (1, 2, 5) if high / max(low, 1e-300) < 100 else (1,)
    axes.yaxis.set_major_locator(LogLocator(subs=steps))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def rolled_back(context, axes, run, name):
    """What was undone, in grey: the column of the steps that roll backs took away."""
    for i, gone in enumerate(run.discarded):
        if name in gone and len(gone["step"]):
            x = context.xs(run, gone["step"])
            label = "rolled back" if context.single and i == 0 else None
            axes.plot(x, gone[name], color=OTHER, linewidth=0.9, label=label, zorder=1)


def nothing(axes, text):
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", color=GREY)


def loss(context, axes):
    """Training loss, held-out points as markers; the first steps may leave the top."""
    lows, highs = [], []
    for i, run in enumerate(context.runs):
        color = context.color(i)
        label = "training" if context.single else context.labels[i]
        smooth = line(context, axes, run, "loss", color, label)
        if smooth is not None:
            rolled_back(context, axes, run, "loss")
            settled = smooth[np.isfinite(smooth)]
            lows.append(settled.min())
            highs.append(settled[len(settled) // 50 :].max())
        points = run.evals["loss"]
        if len(points):
            lows.append(np.nanmin(points))
            dark = "#000000" if context.single else color
            edge = {"markeredgecolor": "white", "markeredgewidth": 0.6}
            name = f"held-out ({points[-1]:.3f} last)" if context.single else None
            axes.plot(
                context.xs(run, run.evals["step"]),
                points,
                "o" if len(points) < 60 else ".",
                color=dark,
                label=name,
                zorder=3,
                markersize=5.5,
                **edge,
            )
    if lows and max(highs) > min(lows):
        span = max(highs) - min(lows)
        axes.set_ylim(min(lows) - 0.06 * span, max(highs) + 0.06 * span)
    axes.set(title="Loss" + ("" if context.single else " (circles: held-out)"))
    axes.set_ylabel("cross-entropy (nats/token)")


def drops(context, axes):
    """Dropped assignments by the cause that limits, stacked for one run."""
    causes = (("drop_sender_fraction", "sender full"),)
    causes += (("drop_receiver_fraction", "receiver full"),)
    axes.set(title="Dropped assignments by cause")
    if not any(column(run, "drop_fraction") is not None for run in context.runs):
        return
    axes.set_ylabel("share of assignments")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.3g}%"))
    if all(np.nansum(run.columns.get("drop_fraction", 0)) == 0 for run in context.runs):
        line(context, axes, context.runs[0], "drop_fraction", COLORS[0])
        nothing(axes, "none: every assignment was kept")
        axes.set_ylim(0, 0.01)
        return
    if context.single:
        run = context.runs[0]
        shares = [context.smoothed(run.columns[name]) for name, _ in causes]
        names = [label for _, label in causes]
        axes.stackplot(context.xs(run), *shares, labels=names, colors=COLORS, alpha=0.75)
    else:
        for i, run in enumerate(context.runs):
            for (name, label), dash in zip(causes, ("-", (0, (3, 2)))):
                text = f"{context.labels[i]}, {label}"
                line(context, axes, run, name, context.color(i), text, linestyle=dash)
    top = max(np.nanmax(run.columns.get("drop_fraction", [0])) for run in context.runs)
    axes.set_ylim(0, 1.05 * top)


def gradient_norms(context, axes):
    """The whole norm; for one run also that of every kind of parameter."""
    for i, run in enumerate(context.runs):
        if context.single:
            groups = run.groups("grad_norm")
            for k, group in enumerate(groups):
                color, name = context.color(k), f"grad_norm_{group}"
                line(context, axes, run, name, color, group, raw=False, linewidth=1.0)
        label = "all" if context.single else context.labels[i]
        color = "#000000" if context.single else context.color(i)
        line(context, axes, run, "grad_norm", color, label)
    axes.set(title="Gradient norm, before clipping", ylabel="norm")
    plain_log(axes)


def balance(context, axes):
    """Fullest expert over the mean, worst layer: 1 is perfect balance."""
    for i, run in enumerate(context.runs):
        label = None if context.single else context.labels[i]
        line(context, axes, run, "load_max_over_mean", context.color(i), label)
    if axes.lines:
        axes.axhline(1.0, color=GREY, linewidth=0.8, linestyle=":")
    axes.set(title="Expert load: fullest / mean, worst layer", ylabel="ratio (ideal 1)")


def learning_rate(context, axes):
    for i, run in enumerate(context.runs):
        groups = run.groups("lr")
        label = None if context.single and not groups else context.labels[i]
        line(context, axes, run, "lr", context.color(i), label, smooth=False)
        for k, group in enumerate(groups):
            color = context.color(i + k + 1) if context.single else context.color(i)
            text = group if context.single else None
            name = f"lr_{group}"
            line(context, axes, run, name, color, text, smooth=False, linewidth=1)
    axes.set(title="Learning rate", ylabel="learning rate")
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.4g}"))


def updates(context, axes):
    """Norm of a step's update over the norm of the masters; the latter where the former
    is not recorded."""
    recorded = any(column(run, "update_ratio") is not None for run in context.runs)
    name = "update_ratio" if recorded else "param_norm"
    for i, run in enumerate(context.runs):
        label = None if context.single else context.labels[i]
        line(context, axes, run, name, context.color(i), label)
    if recorded:
        axes.set(title="Update size / parameter norm", ylabel="ratio")
        plain_log(axes)
    else:
        axes.set(title="Parameter norm", ylabel="norm")


def throughput(context, axes):
    """Tokens a second; the model FLOP utilization is named where it is known."""
    top = 0.0
    for i, run in enumerate(context.runs):
        label = None if context.single else context.labels[i]
        smooth = line(context, axes, run, "tokens_per_second", context.color(i), label)
        if smooth is not None:
            top = max(top, np.nanmax(smooth))
    title = "Throughput"
    if context.single and column(context.runs[0], "mfu") is not None:
        title += f" (median MFU {np.nanmedian(context.runs[0].columns['mfu']):.1%})"
    axes.set(title=title, ylabel="tokens/s", ylim=(0, 1.25 * top or 1))
    axes.yaxis.set_major_formatter(EngFormatter(sep=""))


def phase_means(run):
    """[(phase, seconds a step)], costliest first; the small ones become `other`."""
    names = run.phases()
    means = [(name, np.nanmean(run.columns[f"seconds_{name}"])) for name in names]
    named = [pair for pair in means if pair[0] != "unaccounted"]
    if len(named) > SHOWN_PHASES:
        rest = sum(seconds for _, seconds in named[SHOWN_PHASES:])
        named = named[:SHOWN_PHASES] + [("other", rest)]
    return named + [pair for pair in means if pair[0] == "unaccounted"]


def phase_colors(names):
    """A colour a phase; greys for what is gathered and what no region has timed."""
    greys = {"other": OTHER, "unaccounted": UNACCOUNTED}
    named = [name for name in names if name not in greys]
    colors = {name: COLORS[i % len(COLORS)] for i, name in enumerate(named)}
    return [{**colors, **greys}[name] for name in names]


def phases(context, axes):
    """Seconds of a step by timer region: over time for one run, as bars for several."""
    axes.set(title="Time of a step by phase, mean over ranks")
    if not any(run.phases() for run in context.runs):
        return
    if context.single:
        phases_over_time(context, context.runs[0], axes)
    else:
        phase_bars(context, axes)


def phases_over_time(context, run, axes):
    names = [name for name, _ in phase_means(run)]
    parts = [context.smoothed(part) for part in stacked_phases(run, names)]
    axes.stackplot(context.xs(run), *parts, labels=names, colors=phase_colors(names))
    axes.set_ylim(0, 1.1 * np.nanpercentile(np.sum(parts, axis=0), 99))
    axes.set_ylabel("seconds")


def phase_bars(context, axes):
    means = [dict(phase_means(run)) for run in context.runs]
    names = list(dict.fromkeys(name for table in means for name in table))
    names.sort(key=lambda name: (name == "unaccounted", name == "other"))
    start = np.zeros(len(context.runs))
    for name, color in zip(names, phase_colors(names)):
        widths = np.array([table.get(name, 0) for table in means])
        axes.barh(context.labels, widths, left=start, color=color, label=name, height=0.6)
        start += widths
    axes.invert_yaxis()
    axes.set_xlabel("seconds")


def stacked_phases(run, names):
    """Columns of the shown phases; `other` is the sum of those that are not."""
    shown = [run.columns[f"seconds_{name}"] for name in names if name != "other"]
    if "other" in names:
        rest = [name for name in run.phases() if name not in names]
        other = np.nansum([run.columns[f"seconds_{name}"] for name in rest], axis=0)
        shown.insert(names.index("other"), other)
    return [np.nan_to_num(values) for values in shown]
