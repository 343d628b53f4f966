#!/usr/bin/python3
"""The price of expert parallelism on the desk deck (inputs/bench), its claims checked.

    run_exchange.py CAPSTAN BENCH_DISPATCH [--pairs 5] [--steps 12] [--only speed,...]

speed     tokens/s of pooled_wave and ragged at factor 1.15 on two ranks of one thread,
          over those of one rank with two threads just before and after: median of the
          pairs at least 0.9
share     routing, permutation and exchange bookkeeping (the regions router, permute,
          dispatch_plan and exchange; not the waits): at most 10 % of the step
planning  processor time to plan an exchange of 64 ranks, 524,288 assignments each, two
          waves: from 128 to 4,096 experts at most twice as much. (64 experts are one
          a rank and one wave: rows are in their final order when they are sorted.)

Run it on a quiet machine. Exit code 1 if a check fails, 2 if a program does.
"""
import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile

from run_perf import Bench, call, check, read_timing

FACTOR = 1.15
OVERHEAD = ("router", "permute", "dispatch_plan", "exchange")
LEAST_SPEED, MOST_SHARE, MOST_PLANNING = 0.9, 0.10, 2.0


def keys(transport):
    """Overrides of a run with this transport."""
    return (f"moe/transport={transport}", f"moe/capacity_send={FACTOR}",
            f"moe/capacity_receive={FACTOR}", "moe/waves=2", "moe/drop_policy=rotate")


def rate(bench, *overrides, **how):
    """Tokens per second of the median step of a run."""
    columns = bench.columns("diagnostics/history=true", *overrides, **how)
    return statistics.median(columns["tokens_per_second"])


def speed(bench, options):
    """Two ranks that exchange, between runs of one rank that need not."""
    ratios = {"pooled_wave": [], "ragged": []}
    after = rate(bench)
    for pair in range(options.pairs):
        for transport, list_of in ratios.items():
            before = after
            two = rate(bench, *keys(transport), ranks=2, threads=1)
            after = rate(bench)
            list_of.append(2 * two / (before + after))
            print(f"pair {pair + 1}: {transport}: {two:.0f} tokens/s, one rank "
                  f"{before:.0f} and {after:.0f}, ratio {list_of[-1]:.3f}", flush=True)
    results = []
    for transport, values in ratios.items():
        middle = statistics.median(values)
        results.append(check("speed", middle >= LEAST_SPEED,
                             f"{transport}: ratio_median={middle:.3f}"))
    return all(results)


def share(bench, _):
    """Where the time of a step goes, on one rank and on two."""
    results = []
    for transport, ranks in (("pooled_wave", 2), ("ragged", 2), ("dropless", 1)):
        with bench.train(*keys(transport), ranks=ranks, threads=2 // ranks) as rundir:
            table = dict(read_timing(os.path.join(rundir, "timing.txt")))
        parts = {name: table[name]["share"] for name in OVERHEAD if name in table}
        text = ", ".join(f"{name} {value:.1%}" for name, value in parts.items())
        wait = table.get("exchange_wait", {"share": 0})["share"]
        total = sum(parts.values())
        results.append(check("share", total <= MOST_SHARE,
                             f"{transport} on {ranks}: {total:.1%} ({text}); exposed "
                             f"communication {wait:.1%}"))
    return all(results)


def planning(_, options):
    """Milliseconds of a plan by experts, from the Google Benchmark."""
    words = ["--benchmark_filter=65536/(128|384|4096)/", "--benchmark_format=json",
             "--benchmark_repetitions=5", "--benchmark_report_aggregates_only=true"]
    found = json.loads(call([options.bench, *words], 1))["benchmarks"]
    results = []
    for name in ("ragged", "pooled_wave"):
        times = {int(b["run_name"].split("/")[2]): b["cpu_time"] for b in found
                 if b["run_name"].startswith(name) and b["aggregate_name"] == "median"}
        worst = times[4096] / times[128]
        text = ", ".join(f"E={e}: {ms:.2f} ms" for e, ms in sorted(times.items()))
        results.append(check("planning", worst <= MOST_PLANNING,
                             f"{name}: {text}; ratio {worst:.2f}"))
    return all(results)


CHECKS = {"share": share, "planning": planning, "speed": speed}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("capstan", help="path of the program")
    parser.add_argument("bench", help="path of bench_dispatch")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=12, help="of each run")
    parser.add_argument("--only", default=",".join(CHECKS), help="checks, by commas")
    options = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="capstan_exchange_")
    try:
        bench = Bench(os.path.abspath(options.capstan), options.steps, folder)
        print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
        results = [CHECKS[name](bench, options) for name in options.only.split(",")]
    finally:
        shutil.rmtree(folder)
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
