#!/usr/bin/python3
"""Fits loss = L0 + A C^-alpha to a ladder of runs and foretells the target's losses.

    ladder.py --table inputs/ladder/published.table -o published
    ladder.py runs/ladder/d* --target runs/ladder/target.deck -o runs/ladder/desk

C is the compute of a run without the head, times the fraction of training; one fit every
5 %. Writes OUT.band (what health rules read), OUT.png and OUT.svg. The band is the wider
of two ranges: one rung left out at a time, and a bootstrap over the noise of the
evaluations. When the target has been evaluated, its error is stated; a band that is there
already (the prediction) is kept then, unless --again.
"""
import argparse
import datetime
import os
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402
import numpy as np  # noqa: E402

import ladder_fit  # noqa: E402
from capstan_run import RunError  # noqa: E402
from ladder_fit import LadderError  # noqa: E402
from panels import COLORS  # noqa: E402
from plot_run import STYLE, save  # noqa: E402

SHOWN = (0.05, 0.2, 0.5, 1.0)  # fractions with a line in the left panel


def table_text(ladder, forecast):
    """The fits, one line a fraction."""
    kind = "fitted" if forecast.fitted else "given"
    lines = [f"L0 = {forecast.asymptote:.4f} ({kind})"]
    noise = zip(ladder.names, forecast.noise[-1])
    told = ", ".join(f"{name} {value:.4f}" for name, value in noise)
    lines.append(f"noise of the last evaluations: {told}")
    losses = " ".join(f"{name:>8}" for name in ladder.names)
    head = f"fraction {losses}        A   alpha  {ladder.target:>8}"
    lines.append(head + "     one left out        bootstrap")
    for i, fraction in enumerate(ladder.fractions):
        marks = [fraction >= ladder.extrapolated.get(n, 2) for n in ladder.names]
        cells = [f"{x:8.4f}" for x in ladder.loss[i]]
        cells = " ".join(c[1:] + "*" if m else c for c, m in zip(cells, marks))
        ranges = [*forecast.left_out[:, i], *forecast.drawn[:, i]]
        spans = "{:.4f}-{:.4f}  {:.4f}-{:.4f}".format(*ranges)
        fit = f"{forecast.a[i]:8.2f} {forecast.alpha[i]:7.5f}  {forecast.loss[i]:8.4f}"
        lines.append(f"{fraction:8.2f} {cells} {fit}  {spans}")
    if ladder.extrapolated:
        lines.append("* extrapolated before the fit")
    return "\n".join(lines)


def error_text(ladder, forecast):
    """What has been seen of the target against the forecast; "" where nothing was."""
    found = ladder_fit.errors(ladder, forecast)
    lines = []
    for fraction, loss, told, error in found:
        low = np.interp(fraction, ladder.fractions, forecast.low)
        high = np.interp(fraction, ladder.fractions, forecast.high)
        where = "inside" if low <= loss <= high else "outside"
        text = f"fraction={fraction:.4f} loss={loss:.4f} forecast={told:.4f}"
        text += f" error={error:+.4f} ({100 * error / told:+.2f} %)"
        lines.append(text + f" {where} the band")
    if found and found[-1][0] > 0.999:
        loss, told, error = found[-1][1:]
        text = f"{ladder.target} has finished: loss {loss:.4f}, forecast {told:.4f}"
        lines.append(f"{text}, error {error:+.4f} ({100 * error / told:+.2f} %)")
    return "\n".join(lines)


def write_band(path, ladder, forecast):
    """OUT.band; its format is in postprocess/README. Replaced as a whole."""
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    rungs = ",".join(ladder.names)
    tokens = ladder.target_tokens
    lines = [f"#band target={ladder.target} tokens={tokens:.0f} written={now}"]
    lines[0] += f" rungs={rungs} asymptote={forecast.asymptote:.6g}"
    lines.append("fraction tokens loss low high")
    for row in zip(ladder.fractions, forecast.loss, forecast.low, forecast.high):
        line = "{:.2f} {:.0f} {:.6f} {:.6f} {:.6f}"
        lines.append(line.format(row[0], row[0] * tokens, *row[1:]))
    with open(f"{path}.part", "w") as file:
        file.write("\n".join(lines) + "\n")
    os.replace(f"{path}.part", path)


def plot_law(axes, ladder, forecast):
    """Loss above L0 against compute: points, fits and the target, at some fractions."""
    reach = np.array([ladder.flops.min(), ladder.target_flops])
    shown = [i for i, g in enumerate(ladder.fractions) if np.isclose(g, SHOWN).any()]
    for color, i in zip(COLORS, shown):
        fraction = ladder.fractions[i]
        axes.plot(
            ladder.flops * fraction,
            ladder.loss[i] - forecast.asymptote,
            "o",
            color=color,
            label=f"{100 * fraction:.0f} % of training",
        )
        line = forecast.a[i] * (reach * fraction) ** -forecast.alpha[i]
        axes.plot(reach * fraction, line, color=color, linewidth=1)
        span = [forecast.low[i], forecast.high[i]]
        at = [ladder.target_flops * fraction] * 2
        axes.plot(at, np.array(span) - forecast.asymptote, color=color, linewidth=3)
    axes.set(xscale="log", yscale="log", title="The law; bars: band of the target")
    axes.set(xlabel="compute without the head (FLOP)")
    axes.set(ylabel=f"loss - {forecast.asymptote:.3f} (nats)")
    axes.yaxis.set_minor_formatter("{x:g}")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.legend()


def plot_course(axes, ladder, forecast):
    """Loss along training: rungs, forecast with band, what the target did."""
    for color, name, loss in zip(COLORS[1:], ladder.names, ladder.loss.T):
        axes.plot(ladder.fractions, loss, ".-", color=color, linewidth=1, label=name)
    x = ladder.fractions
    label = f"{ladder.target}: {forecast.loss[-1]:.4f} at {100 * x[-1]:.0f} %"
    axes.plot(x, forecast.loss, color=COLORS[0], linewidth=1.8, label=label)
    axes.fill_between(x, forecast.low, forecast.high, color=COLORS[0], alpha=0.25)
    seen = [point for point in ladder.seen if point[0] >= x[0] - 1e-9]
    if seen:
        name = f"{ladder.target} as trained"
        axes.plot(*zip(*seen), "kx", markersize=5, label=name)
    axes.set(title="Forecast of the target, with its band", xlabel="fraction of training")
    axes.set(ylabel="held-out loss (nats/token)")
    axes.legend()


def plot(ladder, forecast, stem):
    plt.rcParams.update(STYLE)
    figure, axes = plt.subplots(1, 2, figsize=(12, 4.6))
    plot_law(axes[0], ladder, forecast)
    plot_course(axes[1], ladder, forecast)
    save(figure, stem)


def asymptote_of(text):
    return None if text == "fit" else float(text)


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="*", help="run directories of the rungs")
    parser.add_argument("--table", help="losses from a text file instead of runs")
    parser.add_argument("--target", help="run directory, or whole deck, of the target")
    parser.add_argument(
        "--asymptote",
        type=asymptote_of,
        default=False,
        help="L0, or fit (default: what the table says, else fit)",
    )
    parser.add_argument("--again", action="store_true", help="write the band anew")
    parser.add_argument("-o", "--output", default="ladder", help="stem of the files")
    return parser.parse_args()


def ladder_of(options):
    if options.table:
        return ladder_fit.read_table(options.table)
    if not options.runs or not options.target:
        raise LadderError("rungs and --target are needed, or --table; see -h")
    import ladder_runs  # needs h5py, which a table does not

    return ladder_runs.from_runs(options.runs, options.target)


def report(options):
    ladder = ladder_of(options)
    given = options.asymptote
    asymptote = ladder.asymptote if given is False else given
    forecast = ladder_fit.forecast_of(ladder, asymptote)
    print(table_text(ladder, forecast))
    for note in ladder.notes:
        print(f"note: {note}", file=sys.stderr)
    band = f"{options.output}.band"
    seen = error_text(ladder, forecast)
    if seen:
        print(seen)
    if seen and os.path.exists(band) and not options.again:
        print(f"{band}: kept as it was written before the target was seen")
    else:
        write_band(band, ladder, forecast)
        print(band)
    plot(ladder, forecast, options.output)


def main():
    try:
        report(arguments())
    except (LadderError, RunError, OSError) as error:
        print(f"ladder: {error}", file=sys.stderr)
        return 4
    return 0


if __name__ == "__main__":
    sys.exit(main())
