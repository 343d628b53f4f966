"""The forward pass a second time: numpy, a token and a head at a time, no shared code.

Slow and literal on purpose. It guards model.py against errors of broadcasting, masking
and indexing, which finite differences cannot see.
"""

import numpy as np


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def silu(x):
    return x * sigmoid(x)


def norm(x, eps, gain=1.0):
    return x / np.sqrt(np.mean(x * x) + eps) * gain


def gated(shape, p, prefix, x):
    y = norm(x, shape.norm_eps, p[prefix + "/norm"])
    if shape.gate_rank:
        y = y * sigmoid(silu(y @ p[prefix + "/gate_down"]) @ p[prefix + "/gate_up"])
    return y


def convolve(rows, taps, segment):
    out = []
    for t in range(len(rows)):
        y = np.zeros_like(rows[t])
        for j in range(4):
            if t - j >= 0 and segment[t - j] == segment[t]:
                y = y + taps[j] * rows[t - j]
        out.append(y)
    return out


def turn(x, position, dims, theta):
    y = x.copy()
    for i in range(dims // 2):
        angle = position * theta ** (-2.0 * i / dims)
        a, b = x[2 * i], x[2 * i + 1]
        y[2 * i] = a * np.cos(angle) - b * np.sin(angle)
        y[2 * i + 1] = a * np.sin(angle) + b * np.cos(angle)
    return y


def attend(shape, p, prefix, layer, rows, segment):
    h, last = shape.head_dim, layer == shape.layers - 1
    everywhere = shape.global_every > 0 and (
        (layer + 1) % shape.global_every == 0 or last
    )
    kept = shape.kv_heads_global if everywhere else shape.kv_heads
    flat_k = [x @ p[prefix + "/w_k"] for x in rows]
    if "k" in shape.sconv:
        flat_k = convolve(flat_k, p[prefix + "/sconv_k"], segment)
    branch = []
    for t, x in enumerate(rows):
        q_all, heads = x @ p[prefix + "/w_q"], []
        for head in range(shape.heads):
            source = head // (shape.heads // kept)

            def prepare(vector, position, factor):
                if shape.qk_norm:
                    vector = norm(vector, shape.qk_eps)
                if not everywhere:
                    dims = round(shape.rope_fraction * h)
                    vector = turn(vector, position, dims, shape.rope_theta)
                return vector * factor

            q = prepare(q_all[head * h : (head + 1) * h], t, shape.qk_multiplier)
            scores, values = [], []
            for s in range(t + 1):
                near = everywhere or shape.window == 0 or s > t - shape.window
                if segment[s] == segment[t] and near:
                    part = slice(source * h, (source + 1) * h)
                    scores.append(q @ prepare(flat_k[s][part], s, 1.0) / np.sqrt(h))
                    values.append((rows[s] @ p[prefix + "/w_v"])[part])
            weight = np.exp(np.array(scores) - max(scores))
            out = (weight / weight.sum()) @ np.array(values)
            if shape.xsa:
                own = values[-1]  # the last key seen is the token itself
                out = out - (out @ own) / (own @ own + 1e-6) * own
            if shape.head_gate:
                out = out * 2.0 * sigmoid(x @ p[prefix + "/head_gate"][:, head])
            heads.append(out)
        branch.append(np.concatenate(heads) @ p[prefix + "/w_o"])
    if "attn" in shape.sconv:
        branch = convolve(branch, p[prefix + "/sconv_out"], segment)
    return branch


def choose(shape, logits, bias):
    """[(expert, weight)] of one token."""
    ranked = sorted(range(shape.experts), key=lambda e: (-(logits[e] + bias[e]), e))
    chosen = ranked[: shape.top_k]
    if shape.score == "sigmoid":
        score = [sigmoid(logits[e]) for e in chosen]
    else:
        score = [np.exp(logits[e] - max(logits[c] for c in chosen)) for e in chosen]
    return [(e, shape.score_sum * s / (sum(score) + 1e-9)) for e, s in zip(chosen, score)]


def mixture(shape, p, prefix, rows, segment, sequence, statistics):
    branch = []
    for t, x in enumerate(rows):
        logits = x @ p[prefix + "/router"]
        z = x
        if shape.latent_width:
            down = x @ p[prefix + "/latent_down"]
            z = norm(down, shape.norm_eps, p[prefix + "/latent_norm"])
        y = np.zeros_like(z)
        if segment[t] >= 0:
            chosen = choose(shape, logits, p[prefix + "/router_bias"])
            statistics.append((logits, [e for e, _ in chosen], sequence))
            for e, weight in chosen:
                inner = silu(z @ p[prefix + "/w_gate"][e]) * (z @ p[prefix + "/w_up"][e])
                y = y + weight * (inner @ p[prefix + "/w_down"][e])
        if shape.latent_width:
            y = y @ p[prefix + "/latent_up"]
        for n in range(shape.shared_experts):
            gate = silu(x @ p[prefix + "/shared_gate"][n])
            y = (
                y
                + (gate * (x @ p[prefix + "/shared_up"][n]))
                @ p[prefix + "/shared_down"][n]
            )
        branch.append(y)
    if "moe" in shape.sconv:
        branch = convolve(branch, p[prefix + "/sconv_out"], segment)
    return branch


def balance_terms(shape, sequences, statistics):
    """Terms of one layer, from (logits, chosen experts, sequence) of its valid tokens."""
    size = {"global": sequences, "micro_batch": sequences // shape.micro_batches}
    size = size.get(shape.aux_scope, 1)  # sequences that share their counts
    counts = np.zeros((sequences, shape.experts))
    for _, chosen, sequence in statistics:
        for e in chosen:
            counts[sequence // size, e] += 1.0
    aux = z = 0.0
    for logits, _, sequence in statistics:
        exp, count = np.exp(logits - logits.max()), counts[sequence // size]
        aux += shape.experts * (exp / exp.sum()) @ (count / count.sum())
        z += (np.log(exp.sum()) + logits.max()) ** 2
    weight = shape.aux_loss if shape.balance == "aux" else 0.0
    return (weight * aux + shape.router_z_loss * z) / len(statistics)


def loss(shape, p, tokens, targets, segments):
    """The parts of the loss as floats; arguments are numpy arrays."""
    statistics = [[] for _ in range(shape.layers)]
    entropy = z_loss = 0.0
    count = 0
    for sequence in range(tokens.shape[0]):
        segment = segments[sequence]
        rows = [gated(shape, p, "embed", p["embed/table"][id]) for id in tokens[sequence]]
        for layer in range(shape.layers):
            a, m = f"layer_{layer:03d}/attn", f"layer_{layer:03d}/moe"
            normed = [gated(shape, p, a, x) for x in rows]
            rows = [
                x + y for x, y in zip(rows, attend(shape, p, a, layer, normed, segment))
            ]
            normed = [gated(shape, p, m, x) for x in rows]
            branch = mixture(shape, p, m, normed, segment, sequence, statistics[layer])
            rows = [x + y for x, y in zip(rows, branch)]
        for x, target in zip(rows, targets[sequence]):
            if target < 0:
                continue
            logits = gated(shape, p, "final", x) @ p["head/table"]
            lse = np.log(np.exp(logits - logits.max()).sum()) + logits.max()
            entropy += lse - logits[target]
            z_loss += shape.z_loss * lse**2
            count += 1
    parts = {"cross_entropy": entropy / count, "z_loss": z_loss / count}
    n = tokens.shape[0]
    parts["aux"] = sum(balance_terms(shape, n, s) for s in statistics) / shape.layers
    parts["total"] = sum(parts.values())
    return parts
