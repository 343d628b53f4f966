#!/usr/bin/python3
"""The model of inputs/bench/desk.deck in PyTorch eager mode on a CPU, on random tokens.

The measure that Capstan is timed beside, in its fair form: each stacked expert weight is
split once by unbind(0), so that its gradient is one stack; assignments are sorted by
expert once per layer; gate and up projections, and the shared experts, are one product
each; the optimizer works on lists of tensors. A sequence is one document: no mask by
segment is built.

    peer.py --threads 2 --steps 12   prints tokens_per_second=..., the median of the
                                     steps after the first two
    peer.py --dump diag/dump.1.h5    prints the loss of Capstan's parameters and batch
"""
import argparse
import math
import statistics
import time

import torch
import torch.nn.functional as F

SHAPE = {
    "hidden": 256,
    "layers": 6,
    "heads": 8,
    "kv_heads": 2,
    "kv_heads_global": 1,
    "head_dim": 32,
    "vocab": 8192,
    "seq_len": 512,
    "sequences": 8,
    "window": 256,
    "global_every": 4,
    "gate_rank": 32,
    "experts": 64,
    "top_k": 8,
    "expert_width": 128,
    "latent_width": 128,
    "shared_width": 256,  # two shared experts of 128, side by side
}
NORM_EPS, QK_EPS, XSA_EPS, WEIGHT_EPS = 1e-5, 1e-6, 1e-6, 1e-9
QK_MULTIPLIER, SCORE_SUM, Z_LOSS, ROPE_THETA = 1.3, 2.5, 1e-4, 10000.0
BINS, TAPS = 10000, 4


def matrix(*shape, hidden):
    std = 0.5 / math.sqrt(hidden)
    weight = torch.empty(*shape)
    torch.nn.init.trunc_normal_(weight, std=std, a=-3 * std, b=3 * std)
    return torch.nn.Parameter(weight)


def rms_norm(x, eps):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)


class GatedNorm(torch.nn.Module):
    """RMSNorm with gain n, then n * sigmoid(silu(n W_down) W_up)."""

    def __init__(self, s):
        super().__init__()
        self.gain = torch.nn.Parameter(torch.ones(s["hidden"]))
        self.down = matrix(s["hidden"], s["gate_rank"], hidden=s["hidden"])
        self.up = matrix(s["gate_rank"], s["hidden"], hidden=s["hidden"])

    def forward(self, x):
        n = rms_norm(x, NORM_EPS) * self.gain
        return n * torch.sigmoid(F.silu(n @ self.down) @ self.up)


class ShortConvolution(torch.nn.Module):
    """Depthwise causal convolution along the sequence; tap 0 is the current token."""

    def __init__(self, width):
        super().__init__()
        taps = torch.zeros(TAPS, width)
        taps[0] = 1.0
        self.taps = torch.nn.Parameter(taps)

    def forward(self, x):
        """x [B, S, width]."""
        length = x.shape[1]
        padded = F.pad(x, (0, 0, TAPS - 1, 0))
        y = x * self.taps[0]
        for tap in range(1, TAPS):
            start = TAPS - 1 - tap
            y = y + padded[:, start : start + length] * self.taps[tap]
        return y


def rotation(s):
    """cos and sin [S, R/2] of the rotated half of the head's dimensions."""
    rotated = s["head_dim"] // 2
    frequency = ROPE_THETA ** (-torch.arange(0, rotated, 2) / rotated)
    angle = torch.arange(s["seq_len"])[:, None] * frequency[None, :]
    return angle.cos(), angle.sin()


def rotate(x, cos, sin):
    """Rotates adjacent pairs in the first half of the dimensions of x [B, n, S, h]."""
    half = x.shape[-1] // 2
    even, odd = x[..., 0:half:2], x[..., 1:half:2]
    pairs = torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1)
    return torch.cat((pairs.flatten(-2), x[..., half:]), dim=-1)


class Attention(torch.nn.Module):
    def __init__(self, s, is_global):
        super().__init__()
        self.s, self.is_global = s, is_global
        d, width = s["hidden"], s["head_dim"]
        self.kept = s["kv_heads_global"] if is_global else s["kv_heads"]
        self.w_q = matrix(d, s["heads"] * width, hidden=d)
        self.w_k = matrix(d, s["kv_heads"] * width, hidden=d)
        self.w_v = matrix(d, s["kv_heads"] * width, hidden=d)
        self.w_o = matrix(s["heads"] * width, d, hidden=d)
        self.head_gate = torch.nn.Parameter(torch.zeros(d, s["heads"]))
        self.sconv_k = ShortConvolution(s["kv_heads"] * width)
        self.sconv_out = ShortConvolution(d)
        i = torch.arange(s["seq_len"])
        outside = i[None, :] > i[:, None]
        if not is_global:
            outside |= i[None, :] <= i[:, None] - s["window"]
        mask = torch.zeros(outside.shape).masked_fill(outside, -math.inf)
        self.register_buffer("mask", mask)
        self.rotation = None if is_global else rotation(s)

    def heads_of(self, x, heads):
        """[B, S, n * h] -> [B, heads, S, h], the first `heads` of n."""
        batch, length, _ = x.shape
        x = x.view(batch, length, -1, self.s["head_dim"])
        return x[:, :, :heads].transpose(1, 2)

    def forward(self, x):
        batch, length, _ = x.shape
        heads, width = self.s["heads"], self.s["head_dim"]
        q = self.heads_of(x @ self.w_q, heads)
        k = self.heads_of(self.sconv_k(x @ self.w_k), self.kept)
        v = self.heads_of(x @ self.w_v, self.kept)
        q, k = rms_norm(q, QK_EPS), rms_norm(k, QK_EPS)
        if self.rotation is not None:
            q, k = rotate(q, *self.rotation), rotate(k, *self.rotation)
        share = heads // self.kept
        q = q * (QK_MULTIPLIER / math.sqrt(width))
        q = q.reshape(batch, self.kept, share * length, width)
        scores = (q @ k.transpose(-1, -2)).view(batch, self.kept, share, length, length)
        weights = torch.softmax(scores + self.mask, dim=-1)
        y = weights.view(batch, self.kept, share * length, length) @ v
        y = y.view(batch, self.kept, share, length, width)
        v = v.unsqueeze(2)
        size = v.square().sum(-1, keepdim=True) + XSA_EPS
        y = y - (y * v).sum(-1, keepdim=True) / size * v
        y = y.view(batch, heads, length, width).transpose(1, 2)
        y = y * (2.0 * torch.sigmoid(x @ self.head_gate)).unsqueeze(-1)
        return self.sconv_out(y.reshape(batch, length, heads * width) @ self.w_o)


class Experts(torch.nn.Module):
    """Router with quantile balancing, routed experts in latent space, shared experts."""

    def __init__(self, s):
        super().__init__()
        self.s = s
        d, z, f, e = s["hidden"], s["latent_width"], s["expert_width"], s["experts"]
        self.router = matrix(d, e, hidden=d)
        self.register_buffer("bias", torch.zeros(e))
        self.latent_down = matrix(d, z, hidden=d)
        self.latent_norm = torch.nn.Parameter(torch.ones(z))
        self.latent_up = matrix(z, d, hidden=d)
        self.w_gate_up = matrix(e, z, 2 * f, hidden=d)
        self.w_down = matrix(e, f, z, hidden=d)
        self.shared_gate_up = matrix(d, 2 * s["shared_width"], hidden=d)
        self.shared_down = matrix(s["shared_width"], d, hidden=d)
        self.sconv_out = ShortConvolution(d)

    @torch.no_grad()
    def rebalance(self, margins):
        """The bias of the next step from margins [T, E]: minus the upper K/E quantile of
        each expert by a histogram on [min, max], made zero-mean."""
        tokens, experts = margins.shape
        low, high = margins.min(), margins.max()
        width = (high - low).clamp(min=1e-6) / BINS
        cells = ((margins - low) / width).long().clamp_(0, BINS - 1)
        cells += torch.arange(experts) * BINS
        counts = torch.bincount(cells.flatten(), minlength=experts * BINS)
        above = counts.view(experts, BINS).flip(1).cumsum(1).double()
        target = tokens * self.s["top_k"] / experts
        crossing = torch.searchsorted(above, torch.full((experts, 1), target).double())
        upper = above.gather(1, crossing)
        inside = counts.view(experts, BINS).flip(1).gather(1, crossing)
        part = 1.0 - (upper - target) / inside
        quantile = high - width * (crossing + part).squeeze(1)
        self.bias = (-quantile + quantile.mean()).float()

    def route(self, x):
        """Expert ids and weights [T, K] of tokens x [T, D]."""
        logits = x @ self.router
        k = self.s["top_k"]
        top, ids = (logits.detach() + self.bias).topk(k + 1, dim=-1)
        if self.training:
            self.rebalance(logits.detach() - top[:, k:])
        ids = ids[:, :k]
        scores = torch.sigmoid(logits.gather(1, ids))
        weights = SCORE_SUM * scores / (scores.sum(-1, keepdim=True) + WEIGHT_EPS)
        return ids, weights

    def routed(self, x):
        ids, weights = self.route(x)
        k = self.s["top_k"]
        latent = rms_norm(x @ self.latent_down, NORM_EPS) * self.latent_norm
        flat = ids.flatten()
        order = flat.argsort()
        counts = torch.bincount(flat, minlength=self.s["experts"]).tolist()
        rows = latent.index_select(0, order.div(k, rounding_mode="floor")).split(counts)
        results = []
        weights_of = zip(rows, self.w_gate_up.unbind(0), self.w_down.unbind(0))
        for row, gate_up, down in weights_of:
            gate, up = (row @ gate_up).chunk(2, dim=-1)
            results.append((F.silu(gate) * up) @ down)
        back = torch.empty_like(order)
        back[order] = torch.arange(len(order))
        y = torch.cat(results).index_select(0, back).view(len(x), k, -1)
        return (y * weights.unsqueeze(-1)).sum(1) @ self.latent_up

    def forward(self, x):
        """x [B, S, D]."""
        gate, up = (x @ self.shared_gate_up).chunk(2, dim=-1)
        shared = (F.silu(gate) * up) @ self.shared_down
        return self.sconv_out(self.routed(x.flatten(0, 1)).view_as(x) + shared)


class Model(torch.nn.Module):
    def __init__(self, s):
        super().__init__()
        self.embedding = matrix(s["vocab"], s["hidden"], hidden=s["hidden"])
        self.embed_norm, self.final_norm = GatedNorm(s), GatedNorm(s)
        self.head = matrix(s["hidden"], s["vocab"], hidden=s["hidden"])
        count, every = s["layers"], s["global_every"]
        where = [(i + 1) % every == 0 or i == count - 1 for i in range(count)]
        self.attention = torch.nn.ModuleList(Attention(s, flag) for flag in where)
        self.experts = torch.nn.ModuleList(Experts(s) for _ in range(count))
        norms = ([GatedNorm(s), GatedNorm(s)] for _ in range(count))
        self.norms = torch.nn.ModuleList(torch.nn.ModuleList(pair) for pair in norms)

    def forward(self, tokens):
        """Mean cross-entropy plus z-loss of tokens [B, S] given those before them."""
        x = self.embed_norm(F.embedding(tokens, self.embedding))
        for attention, experts, norms in zip(self.attention, self.experts, self.norms):
            x = x + attention(norms[0](x))
            x = x + experts(norms[1](x))
        logits = self.final_norm(x)[:, :-1].flatten(0, 1) @ self.head
        total = torch.logsumexp(logits, dim=-1)
        picked = logits.gather(1, tokens[:, 1:].flatten().unsqueeze(1)).squeeze(1)
        return (total - picked).mean() + Z_LOSS * total.square().mean()


def set_from_dump(model, params):
    """Copies the tensors of /params of a dump file into the model."""

    def put(parameter, *names, dim=-1):
        arrays = [torch.from_numpy(params[name][()]) for name in names]
        with torch.no_grad():
            parameter.copy_(torch.cat(arrays, dim=dim).view_as(parameter))

    def norm_gate(module, prefix, gain="norm"):
        put(module.gain, f"{prefix}/{gain}")
        put(module.down, f"{prefix}/gate_down")
        put(module.up, f"{prefix}/gate_up")

    put(model.embedding, "embed/table")
    put(model.head, "head/table")
    norm_gate(model.embed_norm, "embed")
    norm_gate(model.final_norm, "final")
    for i, (attention, experts) in enumerate(zip(model.attention, model.experts)):
        prefix = f"layer_{i:03d}/attn"
        norm_gate(model.norms[i][0], prefix)
        for name in ("w_q", "w_k", "w_v", "w_o", "head_gate"):
            put(getattr(attention, name), f"{prefix}/{name}")
        put(attention.sconv_k.taps, f"{prefix}/sconv_k")
        put(attention.sconv_out.taps, f"{prefix}/sconv_out")
        prefix = f"layer_{i:03d}/moe"
        norm_gate(model.norms[i][1], prefix)
        for name in ("router", "latent_down", "latent_norm", "latent_up", "w_down"):
            put(getattr(experts, name), f"{prefix}/{name}")
        put(experts.bias, f"{prefix}/router_bias")
        put(experts.sconv_out.taps, f"{prefix}/sconv_out")
        put(experts.w_gate_up, f"{prefix}/w_gate", f"{prefix}/w_up")
        shared = [list(params[f"{prefix}/shared_{kind}"]) for kind in ("gate", "up")]
        wide = [torch.from_numpy(matrix) for matrix in shared[0] + shared[1]]
        down = [torch.from_numpy(matrix) for matrix in params[f"{prefix}/shared_down"]]
        with torch.no_grad():
            experts.shared_gate_up.copy_(torch.cat(wide, dim=1))
            experts.shared_down.copy_(torch.cat(down, dim=0))


def loss_of_dump(shape, path):
    """The loss that this model gives to the parameters and the batch of a dump file."""
    import h5py

    model = Model(shape).eval()
    with h5py.File(path, "r") as file:
        segments = torch.from_numpy(file["batch/segments"][()])
        if (segments != segments[:, :1]).any():
            raise SystemExit(f"{path}: a sequence holds more than one document")
        set_from_dump(model, file["params"])
        tokens = torch.from_numpy(file["batch/tokens"][()]).long()
        written = file["loss"].attrs["total"]
    with torch.no_grad():
        loss = model(tokens).item()
    parameters = sum(p.numel() for p in model.parameters())
    print(f"parameters={parameters} loss={loss:.7f} dumped={written:.7f}")


def measure(shape, threads, steps):
    """Seconds of each step; prints one line a step."""
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    model = Model(shape)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.0, foreach=True
    )
    seconds = []
    for step in range(1, steps + 1):
        tokens = torch.randint(shape["vocab"], (shape["sequences"], shape["seq_len"]))
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        loss = model(tokens)
        loss.backward()
        optimizer.step()
        value = loss.item()
        seconds.append(time.perf_counter() - start)
        print(f"step={step} loss={value:.6f} seconds={seconds[-1]:.4f}", flush=True)
    return seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=12, help="the first two are dropped")
    parser.add_argument("--experts", type=int, default=SHAPE["experts"])
    parser.add_argument("--dump", help="print the loss of a dump file, then end")
    options = parser.parse_args()
    shape = {**SHAPE, "experts": options.experts}
    if options.dump:
        return loss_of_dump(shape, options.dump)
    seconds = measure(shape, options.threads, max(3, options.steps))
    tokens = shape["sequences"] * shape["seq_len"]
    print(f"tokens_per_second={tokens / statistics.median(seconds[2:]):.1f}")


if __name__ == "__main__":
    main()
