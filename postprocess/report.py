#!/usr/bin/python3
"""Writes one self-contained HTML page about a run or several: RUN.html, no network.

    report.py runs/quickstart -o quickstart.html
    report.py runs/a runs/b --labels base,wide -o compare.html
    report.py runs/535b --band inputs/ladder/published.band -o 535b.html

On it: the question as it stood at the start, verdict, curves with every event, load of
the experts, the deck and what changed at each restart. RUN/verdict.txt, where it exists,
is shown as what people concluded.
"""
import argparse
import datetime
import html
import json
import os
import sys

import report_data
import report_facts
from capstan_run import Run, RunError

HERE = os.path.dirname(os.path.abspath(__file__))
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>
{style}</style></head>
<body><div id="page"><noscript>This page draws its curves with a script of its own; it
loads nothing from elsewhere. Please allow scripts for this file.</noscript></div>
<script type="application/json" id="data">{data}</script>
<script>
{script}</script></body></html>
"""


def run_data(run, label, band):
    """All of one run, ready for JSON."""
    bins = report_data.Bins(len(run.columns["step"]))
    found = report_data.events(run)
    evals = {name: report_data.rounded(values, 9 if name == "tokens" else 6)
             for name, values in run.evals.items()}
    return {
        "label": label,
        "state": report_facts.status_of(run).get("state", "unknown"),
        "planned": report_facts.planned_steps(run),
        "x": report_facts.axis(run, bins),
        "stepsPerPoint": round(bins.rows_each, 1),
        "curves": report_data.curves(run, bins),
        "phases": report_data.phases(run, bins),
        "evals": evals,
        "events": found,
        "restarts": report_data.restarts(run),
        "experts": report_data.expert_maps(run),
        "layers": report_data.layer_maps(run),
        "experiment": report_data.experiment(run),
        "deck": run.deck_text,
        "tiles": report_facts.tiles(run),
        "origin": report_facts.origin(run),
        "verdict": report_facts.verdict(run, found, band),
        "written": report_facts.written_verdict(run),
    }


def find_band(options):
    """The band of --band, else the only *.band beside a run."""
    if options.band:
        return report_data.read_band(options.band)
    for path in options.runs:
        names = [name for name in sorted(os.listdir(path)) if name.endswith(".band")]
        if len(names) == 1:
            return report_data.read_band(os.path.join(path, names[0]))
    return None


def read(name):
    with open(os.path.join(HERE, name)) as file:
        return file.read()


def labels_of(runs, given):
    if given and len(given) != len(runs):
        raise RunError(f"{len(given)} labels for {len(runs)} runs")
    names = given or [run.name for run in runs]
    if len(set(names)) < len(names):
        names = [os.path.basename(os.path.abspath(run.path)) for run in runs]
    if len(set(names)) < len(names):
        names = [run.path for run in runs]
    return names


def page(runs, labels, band):
    """The HTML text."""
    now = datetime.datetime.now(datetime.timezone.utc)
    several = len(runs) > 1
    data = {
        "title": " and ".join(labels) if several else labels[0],
        "written": now.strftime("%Y-%m-%d %H:%M UTC"),
        "runs": [run_data(run, label, band) for run, label in zip(runs, labels)],
        "band": band,
        "comparison": report_facts.comparison(runs) if several else [],
        "differences": report_data.deck_changes_between(runs) if several else [],
    }
    # "</" inside a string would end the script element.
    script = "".join(read(f"report_{part}.js") for part in ("chart", "maps", "sections"))
    text = json.dumps(data, separators=(",", ":"), allow_nan=False).replace("</", "<\\/")
    return PAGE.format(title=html.escape(data["title"]), data=text,
                       style=read("report_page.css"), script=script)


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="+", help="run directories")
    parser.add_argument("-o", "--output", default="report.html")
    parser.add_argument("--band", help="forecast that ladder.py wrote")
    parser.add_argument(
        "--labels", type=lambda text: text.split(","), help="names of the runs, by commas"
    )
    return parser.parse_args()


def main():
    options = arguments()
    try:
        runs = [Run(path, layer_rows=1000) for path in options.runs]
        for run in runs:
            if not len(run.columns["step"]):
                raise RunError(f"{run.path}: no step is recorded yet")
        text = page(runs, labels_of(runs, options.labels), find_band(options))
    except RunError as error:
        print(f"report: {error}", file=sys.stderr)
        return 4
    with open(f"{options.output}.part", "w") as file:
        file.write(text)
    os.replace(f"{options.output}.part", options.output)
    print(options.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
