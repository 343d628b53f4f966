#!/usr/bin/env python3
"""Writes a run's metrics as an offline W&B run, under the published names.

    to_wandb.py runs/quickstart -o wandb_out --project capstan
    wandb sync wandb_out/wandb/offline-run-*          # later, where there is a network

Needs the package wandb beside numpy and h5py; nothing is sent.
"""
import argparse
import os
import sys

import published
from capstan_run import Run, RunError


def write(run, wandb, directory, project, every=1):
    """The folder of the offline run."""
    os.makedirs(directory, exist_ok=True)
    settings = wandb.Settings(mode="offline", silent=True, console="off")
    name = os.path.basename(os.path.abspath(run.path))
    logged = wandb.init(project=project, name=run.name, id=name, dir=directory,
                        config=run.deck, settings=settings)
    for row, (step, metrics) in enumerate(published.rows(run)):
        held_out = any(key.startswith("eval") for key in metrics)
        if row % every == 0 or held_out:
            logged.log(metrics, step=step)
    folder = os.path.dirname(logged.dir)
    logged.finish()
    return folder


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", help="run directory")
    parser.add_argument("-o", "--output", required=True, help="folder for wandb/")
    parser.add_argument("--project", default="capstan")
    parser.add_argument("--every", type=int, default=1, help="only every so many-th step")
    options = parser.parse_args()
    try:
        import wandb
    except ImportError:
        print("to_wandb: this Python has no package wandb", file=sys.stderr)
        return 2
    try:
        run = Run(options.run)
        print(write(run, wandb, options.output, options.project, max(1, options.every)))
    except RunError as error:
        print(f"to_wandb: {error}", file=sys.stderr)
        return 4
    return 0


if __name__ == "__main__":
    sys.exit(main())
