"""The reference checked against itself, so that it can be trusted before any dump exists.

For every feature: the loss against a literal second forward (naive.py); every gradient
against central differences of fourth order; a dump file written from these values must
pass, and must fail once any one gradient, weight or loss in it is changed a little. Then
truths that hold without a second computation: documents do not see one another, a
sequence does not see its batch mates, a window hides what lies before it.
"""

import contextlib
import io
import os
import tempfile

import h5py
import numpy as np
import torch

import model
import naive
import reference
from features import AUX, FEATURES, OBJECTIVES

HERE = os.path.dirname(os.path.abspath(__file__))


def deck_with(overrides):
    """Text of reference.deck with overrides "block/key=value" applied."""
    with open(os.path.join(HERE, "reference.deck"), encoding="utf-8") as f:
        values = model.parse_deck(f.read())
    values.update(line.split("=", 1) for line in overrides)
    text, block = "", None
    for path in sorted(values):
        if path.split("/")[0] != block:
            block = path.split("/")[0]
            text += f"<{block}>\n"
        text += f"{path.split('/')[1]} = {values[path]}\n"
    return text


def random_case(deck, seed):
    """Shape, random parameters and a batch with documents and padding."""
    shape = model.Shape.from_deck(deck)
    generator = torch.Generator().manual_seed(seed)

    def normal(size, scale):
        return scale * torch.randn(size, generator=generator, dtype=torch.float64)

    params = {}
    for name, size in shape.parameters().items():
        scale = 0.5 if name.endswith("router_bias") else 0.4
        params[name] = normal(size, scale)
        if name.endswith("norm"):
            params[name] = params[name] + 1
    batch, seq = 3, 12
    tokens = torch.randint(0, shape.vocab, (batch, seq), generator=generator)
    segments = torch.zeros(batch, seq, dtype=torch.long)
    segments[0, 5:], segments[0, 6:], segments[1, 9:] = 1, 2, -1
    targets = torch.full_like(tokens, -1)
    goes_on = (segments[:, 1:] == segments[:, :-1]) & (segments[:, 1:] >= 0)
    targets[:, :-1] = torch.where(goes_on, tokens[:, 1:], targets[:, :-1])
    return shape, params, (tokens, targets, segments)


def differences_disagree(shape, params, batch, routing, grads):
    """Worst relative error of grads against central differences, random directions."""
    fixed = [{"experts": r["experts"]} for r in routing]
    worst = (0.0, "")
    for index, (name, grad) in enumerate(grads.items()):
        generator = torch.Generator().manual_seed(index)
        u = torch.randn(grad.shape, generator=generator, dtype=torch.float64)
        u = u / u.norm()

        def at(step):
            moved = dict(params)
            moved[name] = params[name] + step * u
            with torch.no_grad():
                return model.losses(shape, moved, *batch, fixed)[0]["total"].item()

        h = 2e-4
        slope = (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h)
        error = abs(slope - (grad * u).sum().item()) / (grad.norm().item() + 1e-3)
        worst = max(worst, (error, name))
    return worst


def gradients(shape, params, batch):
    leaves = {
        name: value.clone().requires_grad_(not name.endswith("router_bias"))
        for name, value in params.items()
    }
    parts, routing = model.losses(shape, leaves, *batch)
    parts["total"].backward()
    grads = {
        name: value.grad if value.grad is not None else torch.zeros_like(value)
        for name, value in leaves.items()
        if value.requires_grad
    }
    return {name: value.item() for name, value in parts.items()}, routing, grads


def write_dump(path, deck, params, batch, parts, routing, grads):
    with h5py.File(path, "w") as f:
        f.attrs["deck"] = deck
        for name, value in zip(("tokens", "targets", "segments"), batch):
            f[f"batch/{name}"] = value.numpy().astype(np.int32)
        for name, value in params.items():
            f[f"params/{name}"] = value.numpy()
        for name, value in grads.items():
            f[f"grads/{name}"] = value.numpy()
        loss = f.create_group("loss")
        for name, value in parts.items():
            loss.attrs[name] = value
        loss.attrs["tokens"] = int((batch[1] >= 0).sum())
        for layer, r in enumerate(routing):
            group, padding = (
                f.create_group(f"router/layer_{layer:03d}"),
                ~r["valid"][:, None],
            )
            group["logits"] = r["logits"].detach().numpy()
            group["experts"] = (
                r["experts"].masked_fill(padding, -1).numpy().astype(np.int32)
            )
            group["weights"] = r["weights"].detach().masked_fill(padding, 0).numpy()
            group["accepted"] = (
                (~padding).expand_as(r["experts"]).numpy().astype(np.uint8)
            )


def exit_code(path):
    """Of `reference.py path`, quietly."""
    with contextlib.redirect_stdout(io.StringIO()):
        return 1 if reference.check(reference.read_dump(path), 1e-9).failed() else 0


def dumps_disagree(deck, *values):
    """What is wrong with the verdicts on a true dump and on falsified ones, or ""."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "dump.h5")
        write_dump(path, deck, *values)
        if exit_code(path) != 0:
            return "a true dump is refused"
        with h5py.File(path, "r") as f:
            targets = [f"grads/{name}" for name in values[-1]]
            targets += ["router/layer_000/weights", "router/layer_001/logits"]
            targets = [name for name in targets if np.any(f[name][()])]
        for name in targets:
            with h5py.File(path, "r+") as f:
                good = f[name][()]
                bad = good.copy()
                bad.flat[np.argmax(np.abs(good))] *= 1 + 1e-7
                f[name][...] = bad
            refused = exit_code(path) == 1
            with h5py.File(path, "r+") as f:
                f[name][...] = good
            if not refused:
                return f"a falsified {name} is let through"
        with h5py.File(path, "r+") as f:
            f["loss"].attrs["total"] *= 1 + 1e-7
        if exit_code(path) != 1:
            return "a falsified loss is let through"
    return ""


def check_feature(name, overrides, falsify):
    """One line of problems, or ""."""
    deck = deck_with(overrides)
    shape, params, batch = random_case(deck, seed=len(name))
    parts, routing, grads = gradients(shape, params, batch)
    plain = {k: v.numpy() for k, v in params.items()}
    literal = naive.loss(shape, plain, *(t.numpy() for t in batch))
    problems = []
    for part, value in literal.items():
        if not abs(parts[part] - value) <= 1e-12 * max(1.0, abs(value)):
            problems.append(f"{part} {parts[part]:.15g}, naive {value:.15g}")
    error, where = differences_disagree(shape, params, batch, routing, grads)
    if not error <= 1e-7:
        problems.append(f"gradient of {where} off by {error:.1e}")
    if falsify:
        problems += filter(
            None, [dumps_disagree(deck, params, batch, parts, routing, grads)]
        )
    print(
        f"  {'BAD' if problems else 'ok '} {name:20s} loss {parts['total']:.6f}, "
        f"differences {error:.1e} {'; '.join(problems)}",
        flush=True,
    )
    return len(problems)


def check_independence():
    """Number of problems: documents, batch mates and windows."""
    shape, params, (tokens, _, segments) = random_case(deck_with([]), seed=5)
    problems = []

    def close(a, b):
        return torch.allclose(a, b, rtol=1e-11, atol=1e-11)

    with torch.no_grad():
        base = model.hidden_states(shape, params, tokens, segments)[0]
        other = tokens.clone()
        other[0, :5] = (other[0, :5] + 1) % shape.vocab
        changed = model.hidden_states(shape, params, other, segments)[0]
        if not close(changed[0, 5:], base[0, 5:]):
            problems.append("document 1 changes document 2")
        if close(changed[0, :5], base[0, :5]):
            problems.append("document 1 does not change itself")
        if not close(changed[1:], base[1:]):
            problems.append("sequence 0 changes its batch mates")
        alone = model.hidden_states(shape, params, tokens[1:2], segments[1:2])[0]
        if not close(alone[0], base[1]):
            problems.append("a sequence alone differs from the one in the batch")
        # One local layer without convolutions: token t sees t-6 and not t-7.
        local = ["model/layers=1", "model/global_every=0", "model/sconv=none"]
        shape, params, (tokens, _, segments) = random_case(deck_with(local), seed=6)
        base = model.hidden_states(shape, params, tokens, segments)[0]
        other = tokens.clone()
        other[2, 0] = (other[2, 0] + 1) % shape.vocab
        change = (model.hidden_states(shape, params, other, segments)[0] - base)[2].abs()
        reach = change.amax(-1) > 1e-10
        if reach.nonzero().flatten().tolist() != list(range(shape.window)):
            problems.append("the window is not what the deck says")
    print(f"  {'BAD' if problems else 'ok '} independence {'; '.join(problems)}")
    return len(problems)


def run():
    torch.set_num_threads(1)
    cases = {**FEATURES, **OBJECTIVES}
    cut = ["moe/aux_scope=micro_batch", "grid/micro_batches=3"]
    cases["aux_micro_batch"] = [*AUX, *cut]
    bad = check_independence()
    for name, overrides in cases.items():
        bad += check_feature(name, overrides, falsify=name in ("all_on", "plain"))
    verdict = "FAILED" if bad else "passed"
    print(f"REFERENCE: self-test {verdict}: {len(cases)} cases, {bad} problems")
    return 1 if bad else 0
