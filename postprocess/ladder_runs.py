"""A Ladder (ladder_fit) from run directories and the deck of the target."""
import os

import numpy as np

from capstan_run import Run, RunError, parse_deck
from ladder_fit import Ladder, LadderError

FRACTIONS = np.arange(1, 21) / 20
NEAR = 0.01  # of the run: how far from its fraction an evaluation may lie
# What must be alike for the losses to lie on one curve.
ALIKE = ("scale/tokens_per_active", "scale/lr_multiplier", "data/files", "model/vocab")
ALIKE += ("model/seq_len", "eval/sequences", "data/valid_fraction", "moe/experts")
ALIKE += ("moe/top_k", "moe/shared_experts", "model/head_dim", "schedule/shape")


def active_parameters(deck):
    """Elements that work for one token: projections, router, latent, shared and top_k
    experts; no embedding, head, gains, gates and convolutions."""
    d, heads, kv = (deck[f"model/{key}"] for key in ("hidden", "heads", "kv_heads"))
    width, latent = deck["moe/expert_width"], deck["moe/latent_width"]
    shared = deck["moe/shared_width"] or width
    attention = 2 * d * deck["model/head_dim"] * (heads + kv)
    experts = 3 * (latent or d) * deck["moe/top_k"] * width
    experts += 2 * d * latent + d * deck["moe/experts"]
    experts += 3 * d * deck["moe/shared_experts"] * shared
    return deck["model/layers"] * (attention + experts)


def forward_flops(deck):
    """Published convention, forward, one token, without the head: attention is not
    halved for causality, 12 for each neuron that works."""
    layers, every = deck["model/layers"], deck["model/global_every"]
    seq_len = deck["model/seq_len"]
    n_global = layers // every if every else 0
    window = min(deck["model/window"] or seq_len, seq_len)
    kv = deck["model/kv_heads"]
    fewer = kv - (deck["model/kv_heads_global"] or kv)
    unused = 4 * deck["model/hidden"] * deck["model/head_dim"] * fewer * n_global
    span = seq_len * n_global + window * (layers - n_global)
    attention = 4 * deck["model/heads"] * deck["model/head_dim"] * span
    neurons = deck["moe/top_k"] * deck["moe/expert_width"]
    shared = deck["moe/shared_width"] or deck["moe/expert_width"]
    neurons += deck["moe/shared_experts"] * shared
    return 2 * active_parameters(deck) - unused + attention + 12 * layers * neurons


def total_tokens(deck):
    per_step = deck["batch/sequences"] * deck["model/seq_len"]
    steps = deck["job/steps"] or -(-deck["schedule/tokens"] // per_step)
    return steps * per_step


def total_flops(deck):
    return 3.0 * forward_flops(deck) * total_tokens(deck)


def read_deck(path):
    """The deck of a run directory, or a whole deck (deck.used, or what -n prints)."""
    if os.path.isdir(path):
        path = os.path.join(path, "deck.used")
    try:
        with open(path) as file:
            deck = parse_deck(file.read())
        total_flops(deck)
    except (OSError, KeyError) as error:
        hint = "it must be whole: deck.used, or what capstan -n prints"
        raise LadderError(f"{path}: {error}: {hint}") from error
    return deck


def losses(run, tokens):
    """Held-out loss at each of FRACTIONS, NaN where there was no evaluation."""
    found = np.full(len(FRACTIONS), np.nan)
    at = np.asarray(run.evals["tokens"], dtype=float) / tokens
    for i, fraction in enumerate(FRACTIONS):
        if len(at) and np.abs(at - fraction).min() < NEAR:
            found[i] = run.evals["loss"][np.abs(at - fraction).argmin()]
    return found


def differences(decks, names):
    notes = []
    for key in ALIKE:
        values = [deck.get(key) for deck in decks]
        if any(value != values[0] for value in values):
            listed = ", ".join(f"{n} {v}" for n, v in zip(names, values))
            notes.append(f"{key} is not alike: {listed}")
    return notes


def target_points(path, tokens):
    """[(fraction, held-out loss)] of the target, as far as it has come."""
    try:
        run = Run(path)
    except RunError:
        return []
    at = np.asarray(run.evals["tokens"], dtype=float) / tokens
    return list(zip(at.tolist(), np.asarray(run.evals["loss"], dtype=float).tolist()))


def from_runs(paths, target):
    """`target`: a run directory, or a whole deck of a run that has not been made."""
    runs = [Run(path) for path in paths]
    names = [os.path.basename(os.path.abspath(path)) for path in paths]
    decks = [run.deck for run in runs]
    tokens = [total_tokens(deck) for deck in decks]
    flops = np.array([total_flops(deck) for deck in decks])
    loss = np.stack([losses(run, n) for run, n in zip(runs, tokens)], axis=1)
    whole = np.isfinite(loss).all(axis=1)
    if not whole.any():
        raise LadderError("no 5 % of training at which every rung has been evaluated")
    goal = read_deck(target)
    name = os.path.basename(os.path.abspath(target)).removesuffix(".deck")
    aim = name, total_flops(goal), float(total_tokens(goal))
    notes = differences([*decks, goal], [*names, name])
    order = np.argsort(flops)
    names = [names[i] for i in order]
    ladder = Ladder(names, flops[order], FRACTIONS[whole], loss[whole][:, order], *aim)
    ladder.notes = notes
    if not whole.all():
        ladder.notes.append(f"fractions without every rung: {(~whole).sum()} of 20")
    if os.path.isdir(target):
        ladder.seen = target_points(target, total_tokens(goal))
    return ladder
