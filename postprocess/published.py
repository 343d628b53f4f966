"""A run's metrics under the names of the published run's own log (W&B).

    for step, metrics in published.rows(run): ...     # {"train/loss": 2.31, ...}

Names are those of marin-community/marin#8435 where Capstan has the quantity; held-out
loss is eval_dropless/held_out/loss, because it is no Paloma. Shares stay shares, except
throughput/mfu, which that log has in percent.
"""
import numpy as np

import report_facts

PLAIN = {
    "train/loss": "loss_total",
    "train/cross_entropy_loss": "loss",
    "train/router/routing_entropy_mean": "routing_entropy",
    "train/router/load_balancing_loss": "load_balancing_loss",
    "train/router/router_z_loss": "router_z_loss",
    "train/router/capacity_overflow_rate_mean": "drop_fraction",
    "train/router/sender_overflow_rate_mean": "drop_sender_fraction",
    "train/router/receiver_overflow_rate_mean": "drop_receiver_fraction",
    "train/router/skipped_padding_fraction_mean": "padding_skipped",
    "train/router/bias_min": "router_bias_min",
    "train/router/bias_max": "router_bias_max",
    "moe/drop_fraction": "drop_fraction",
    "moe/sender_drop_fraction": "drop_sender_fraction",
    "moe/receiver_drop_fraction": "drop_receiver_fraction",
    "moe/skipped_padding_fraction": "padding_skipped",
    "moe/valid_assignments": "assignments",
    "grad/norm/total": "grad_norm",
    "params/norm/total": "param_norm",
    "throughput/tokens_per_second": "tokens_per_second",
    "throughput/total_tokens": "tokens",
    "throughput/duration": "step_seconds",
    "memory/peak_mib": "memory_peak_mib",
}
STEMS = {"grad/norm": "grad_norm", "params/norm": "param_norm",
         "throughput/seconds": "seconds"}
LAYER = {"entropy": "entropy", "drops_sender": "sender_overflow_rate",
         "drops_receiver": "receiver_overflow_rate", "bias_min": "bias_min",
         "bias_max": "bias_max"}
MATRIX_KINDS = ("muonh", "muon")


def rates(run):
    """{published name: column} of the learning rates: that of the matrices and Adam's."""
    kinds = {}
    for group in run.groups("lr"):
        kind = run.deck.get(f"{group}/kind") or run.deck.get("optimizer/kind")
        kinds.setdefault("matrix" if kind in MATRIX_KINDS else "adam", f"lr_{group}")
    found = {"optim/learning_rate": kinds.get("matrix", "lr")}
    if "matrix" in kinds and "adam" in kinds:
        found["optim/adam_lr"] = kinds["adam"]
    return found


def columns(run):
    """{published name: one value a step}."""
    have = run.columns
    names = {**PLAIN, **rates(run)}
    for stem, column in STEMS.items():
        names.update({f"{stem}/{g}": f"{column}_{g}" for g in run.groups(column)})
    found = {name: have[column] for name, column in names.items() if column in have}
    if "mfu" in have:
        found["throughput/mfu"] = 100 * have["mfu"]
    if "assignments" in have and "drop_sender_fraction" in have:
        total = have["assignments"]
        sender, receiver = (np.rint(have[f"drop_{cause}_fraction"] * total)
                            for cause in ("sender", "receiver"))
        found["moe/sender_dropped"], found["moe/receiver_dropped"] = sender, receiver
        found["moe/dropped_assignments"] = sender + receiver
        found["moe/receiver_drop_fraction_of_received"] = receiver / (total - sender)
    planned = report_facts.planned_steps(run)
    if planned:
        found["run_progress"] = have["step"] / planned
    return found


def layer_columns(run):
    """{train/router/layer_i/...: one value a step}."""
    found = {}
    for column, name in LAYER.items():
        values = run.layer.get(column, np.empty((0, 0)))
        for layer in range(values.shape[1]):
            found[f"train/router/layer_{layer}/{name}"] = values[:, layer]
    return found


def rows(run):
    """(step, {name: value}) in order of steps; values that are not finite are left out.
    A held-out point belongs to the step after whose update it was taken."""
    steps = run.columns["step"]
    table = columns(run)
    if np.array_equal(run.layer_step, steps):
        table.update(layer_columns(run))
    evals = {}
    for i, step in enumerate(run.evals["step"]):
        evals[int(step)] = {f"eval_dropless/held_out/{key}": float(run.evals[key][i])
                            for key in run.evals if key.startswith("loss")}
    for i, step in enumerate(steps):
        metrics = {name: float(values[i]) for name, values in table.items()}
        metrics.update(evals.get(int(step), {}))
        yield int(step), {k: v for k, v in metrics.items() if np.isfinite(v)}
