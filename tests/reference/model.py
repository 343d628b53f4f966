"""The model of Capstan in PyTorch, written from its specification and from nothing else.

Forward only: gradients are autograd's. Parameters are a dict by canonical name
("embed/table", "layer_000/attn/w_q", ...), W is [in, out] and used as x @ W. Shapes: B
sequences, S tokens each, T = B * S, D hidden, H query heads, J stored key/value heads,
h head_dim, E experts, K top-k, Z latent width, F expert width, V vocabulary.

Public description of the model: marin-community/marin#8435; LatentMoE, QB routing,
GatedNorm, XSA and short convolutions as described there.
"""

from dataclasses import dataclass, field, fields

import torch
import torch.nn.functional as F


def parse_deck(text):
    """{"block/key": "value"} of the text of a deck."""
    values, block = {}, None
    for line in text.splitlines():
        line = line.split("#", 1)[0].strip()
        if not line:
            continue
        if line.startswith("<") and line.endswith(">"):
            block = line[1:-1].strip()
        else:
            key, value = line.split("=", 1)
            values[f"{block}/{key.strip()}"] = value.strip()
    return values


@dataclass
class Shape:
    """What the deck says about the model; names are the keys of <model> and <moe>."""

    hidden: int
    layers: int
    heads: int
    head_dim: int
    vocab: int
    experts: int
    top_k: int
    expert_width: int
    kv_heads: int = 0
    kv_heads_global: int = 0
    window: int = 0
    global_every: int = 0
    rope_theta: float = 1e4
    rope_fraction: float = 1.0
    qk_norm: bool = True
    qk_eps: float = 1e-6
    qk_multiplier: float = 1.0
    xsa: bool = False
    head_gate: bool = False
    gate_rank: int = 0
    sconv: list = field(default_factory=list)
    norm_eps: float = 1e-5
    z_loss: float = 0.0
    shared_experts: int = 0
    shared_width: int = 0
    latent_width: int = 0
    score: str = "sigmoid"
    score_sum: float = 1.0
    router_precision: str = "float"
    balance: str = "none"
    aux_loss: float = 0.0
    aux_scope: str = "global"
    micro_batches: int = 1
    router_z_loss: float = 0.0

    def __post_init__(self):
        self.kv_heads = self.kv_heads or self.heads
        self.kv_heads_global = self.kv_heads_global or self.kv_heads
        self.shared_width = self.shared_width or self.expert_width

    @staticmethod
    def from_deck(text):
        """The shape of a deck that has every key (deck.used)."""
        deck = parse_deck(text)
        convert = {
            int: lambda v: int(float(v)),
            float: float,
            bool: lambda v: v.lower() in ("true", "yes", "on", "1"),
            str: str,
            list: lambda v: [
                w.strip() for w in v.split(",") if w.strip() not in ("", "none")
            ],
        }
        chosen = {}
        for f in fields(Shape):
            for block in ("model", "moe", "grid"):
                value = deck.get(f"{block}/{f.name}", "")
                if value != "":
                    chosen[f.name] = convert[f.type](value)
        return Shape(**chosen)

    def is_global(self, layer):
        """Layer (from 0) sees the whole context, without rotary embedding."""
        if self.global_every == 0:
            return False
        return (layer + 1) % self.global_every == 0 or layer == self.layers - 1

    def norm_parameters(self, prefix):
        d, r = self.hidden, self.gate_rank
        gate = {f"{prefix}/gate_down": (d, r), f"{prefix}/gate_up": (r, d)}
        return {f"{prefix}/norm": (d,), **(gate if r else {})}

    def attention_parameters(self, a):
        d, q, kv = self.hidden, self.heads * self.head_dim, self.kv_heads * self.head_dim
        out = self.norm_parameters(a)
        out |= {f"{a}/w_q": (d, q), f"{a}/w_k": (d, kv), f"{a}/w_v": (d, kv)}
        out[f"{a}/w_o"] = (q, d)
        if self.head_gate:
            out[f"{a}/head_gate"] = (d, self.heads)
        if "k" in self.sconv:
            out[f"{a}/sconv_k"] = (4, kv)
        if "attn" in self.sconv:
            out[f"{a}/sconv_out"] = (4, d)
        return out

    def moe_parameters(self, m):
        d, z = self.hidden, self.latent_width or self.hidden
        e, f, n, g = (
            self.experts,
            self.expert_width,
            self.shared_experts,
            self.shared_width,
        )
        out = self.norm_parameters(m)
        out |= {f"{m}/router": (d, e), f"{m}/router_bias": (e,)}
        if self.latent_width:
            out |= {f"{m}/latent_down": (d, z), f"{m}/latent_norm": (z,)}
            out[f"{m}/latent_up"] = (z, d)
        out |= {
            f"{m}/w_gate": (e, z, f),
            f"{m}/w_up": (e, z, f),
            f"{m}/w_down": (e, f, z),
        }
        if n:
            out |= {f"{m}/shared_gate": (n, d, g), f"{m}/shared_up": (n, d, g)}
            out[f"{m}/shared_down"] = (n, g, d)
        if "moe" in self.sconv:
            out[f"{m}/sconv_out"] = (4, d)
        return out

    def parameters(self):
        """{canonical name: shape} of every tensor, router_bias included."""
        out = {"embed/table": (self.vocab, self.hidden), **self.norm_parameters("embed")}
        for layer in range(self.layers):
            out |= self.attention_parameters(f"layer_{layer:03d}/attn")
            out |= self.moe_parameters(f"layer_{layer:03d}/moe")
        out |= self.norm_parameters("final")
        out["head/table"] = (self.hidden, self.vocab)
        return out


def rms_norm(x, eps, gain=None):
    """x / sqrt(mean(x^2) + eps), times the gain where there is one."""
    y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
    return y if gain is None else y * gain


def gated_norm(shape, p, prefix, x):
    """RMSNorm, then times sigmoid(SiLU(y W_down) W_up)."""
    y = rms_norm(x, shape.norm_eps, p[f"{prefix}/norm"])
    if shape.gate_rank == 0:
        return y
    return y * torch.sigmoid(
        F.silu(y @ p[f"{prefix}/gate_down"]) @ p[f"{prefix}/gate_up"]
    )


def short_conv(x, taps, segments):
    """y_t = sum_j taps[j] x_{t-j} over the j whose token t-j is of the same document.

    x [B, S, C], taps [4, C] (tap 0: the current token), segments [B, S].
    """
    y = torch.zeros_like(x)
    for j in range(min(taps.shape[0], x.shape[1])):
        shifted = F.pad(x, (0, 0, j, 0))[:, : x.shape[1]]
        same = F.pad(segments, (j, 0), value=-2)[:, : x.shape[1]] == segments
        y = y + taps[j] * shifted * same[..., None]
    return y


def rotate(x, dims, theta):
    """Rotary embedding of adjacent pairs (2i, 2i+1) of the first `dims` of each head.

    x [B, S, heads, h]; the angle is position * theta^(-2i / dims).
    """
    if dims == 0:
        return x
    position = torch.arange(x.shape[1], dtype=x.dtype, device=x.device)
    pair = torch.arange(0, dims, 2, dtype=x.dtype, device=x.device)
    angle = position[:, None] * theta ** (-pair / dims)
    cos, sin = angle.cos()[:, None, :], angle.sin()[:, None, :]
    even, odd = x[..., 0:dims:2], x[..., 1:dims:2]
    turned = torch.stack(
        (even * cos - odd * sin, even * sin + odd * cos), dim=-1
    ).flatten(-2)
    return torch.cat((turned, x[..., dims:]), dim=-1)


def attention(shape, p, prefix, layer, x, segments):
    """The attention branch on the normed block input x [B, S, D]."""
    batch, seq, _ = x.shape
    h, heads, is_global = shape.head_dim, shape.heads, shape.is_global(layer)
    q, k, v = (x @ p[f"{prefix}/{name}"] for name in ("w_q", "w_k", "w_v"))
    if "k" in shape.sconv:
        k = short_conv(k, p[f"{prefix}/sconv_k"], segments)
    q = q.view(batch, seq, heads, h)
    kept = shape.kv_heads_global if is_global else shape.kv_heads
    k, v = (t.view(batch, seq, shape.kv_heads, h)[:, :, :kept] for t in (k, v))
    if shape.qk_norm:
        q, k = rms_norm(q, shape.qk_eps), rms_norm(k, shape.qk_eps)
    if not is_global:
        dims = round(shape.rope_fraction * h)
        q, k = rotate(q, dims, shape.rope_theta), rotate(k, dims, shape.rope_theta)
    q = q * shape.qk_multiplier
    # Query head i reads kept head i div (heads / kept).
    k, v = (t.repeat_interleave(heads // kept, dim=2) for t in (k, v))
    score = torch.einsum("bihd,bjhd->bhij", q, k) / h**0.5
    i = torch.arange(seq, device=x.device)
    back = i[:, None] - i[None, :]
    seen = back >= 0
    if not is_global and shape.window > 0:
        seen = seen & (back < shape.window)
    seen = seen & (segments[:, :, None] == segments[:, None, :])
    score = score.masked_fill(~seen[:, None], float("-inf"))
    out = torch.einsum("bhij,bjhd->bihd", score.softmax(-1), v)
    if shape.xsa:
        along = (out * v).sum(-1, keepdim=True) / (v.pow(2).sum(-1, keepdim=True) + 1e-6)
        out = out - along * v
    if shape.head_gate:
        out = out * 2 * torch.sigmoid(x @ p[f"{prefix}/head_gate"])[..., None]
    out = out.reshape(batch, seq, heads * h) @ p[f"{prefix}/w_o"]
    if "attn" in shape.sconv:
        out = short_conv(out, p[f"{prefix}/sconv_out"], segments)
    return out


def swiglu(x, gate, up, down):
    return (F.silu(x @ gate) * (x @ up)) @ down


def route(shape, logits, bias, experts=None, routed=None):
    """(experts [T, K], weights [T, K]): top-k of logits + bias, weights from the logits.

    Ties go to the lower index. Given `experts`, the selection is theirs. Given `routed`
    (experts after spill), the weights are theirs, over the sum of the selected.
    """
    if experts is None:
        experts = ranked(logits, bias)[:, : shape.top_k]
    chosen = logits.gather(1, experts)
    used = chosen if routed is None else logits.gather(1, routed)
    if shape.score == "sigmoid":
        score, used = torch.sigmoid(chosen), torch.sigmoid(used)
    else:
        # The shift keeps exp in range and is a constant: but for the 1e-9 it cancels.
        shift = chosen.max(-1, keepdim=True).values.detach()
        score, used = torch.exp(chosen - shift), torch.exp(used - shift)
    return experts, shape.score_sum * used / (score.sum(-1, keepdim=True) + 1e-9)


def ranked(logits, bias):
    """All experts of each token, best first [T, E]."""
    biased = logits.detach() + bias
    return torch.sort(biased, dim=-1, descending=True, stable=True).indices


def round_to_bf16(x):
    """bf16 rounding whose gradient passes through."""
    return x + (x.to(torch.bfloat16).to(x.dtype) - x).detach()


def routed_experts(p, prefix, z, experts, weights):
    """sum_k weights[t, k] * expert(experts[t, k])(z_t); z [T, Z]."""
    out = torch.zeros_like(z)
    token, choice = (
        torch.arange(len(z)).repeat_interleave(experts.shape[1]),
        experts.flatten(),
    )
    weight = weights.flatten()
    matrices = [p[f"{prefix}/{name}"].unbind(0) for name in ("w_gate", "w_up", "w_down")]
    for e, (gate, up, down) in enumerate(zip(*matrices)):
        rows = (choice == e).nonzero().squeeze(1)
        if len(rows) > 0:
            y = swiglu(z[token[rows]], gate, up, down)
            out = out.index_add(0, token[rows], weight[rows, None] * y)
    return out


def moe(shape, p, prefix, x, segments, fixed=None):
    """The MoE branch on the normed block input x [B, S, D], and what the router did.

    `fixed` may hold "experts" [T, K] (selection to use), "routed" [T, K] (experts after
    spill) and "accepted" [T, K] (0: dropped).
    """
    fixed = fixed or {}
    flat, valid = x.flatten(0, 1), segments.flatten() >= 0
    logits = flat @ p[f"{prefix}/router"]
    if shape.router_precision == "bf16_out":
        logits = round_to_bf16(logits)
    bias, routed = p[f"{prefix}/router_bias"].detach(), fixed.get("routed")
    experts, weights = route(shape, logits, bias, fixed.get("experts"), routed)
    kept = weights * valid[:, None]
    if "accepted" in fixed:
        kept = kept * fixed["accepted"]
    z = flat
    if shape.latent_width:
        z = rms_norm(
            flat @ p[f"{prefix}/latent_down"], shape.norm_eps, p[f"{prefix}/latent_norm"]
        )
    y = routed_experts(p, prefix, z, experts if routed is None else routed, kept)
    if shape.latent_width:
        y = y @ p[f"{prefix}/latent_up"]
    for n in range(shape.shared_experts):
        y = y + swiglu(
            flat, *(p[f"{prefix}/shared_{name}"][n] for name in ("gate", "up", "down"))
        )
    y = y.view_as(x)
    if "moe" in shape.sconv:
        y = short_conv(y, p[f"{prefix}/sconv_out"], segments)
    return y, {
        "logits": logits,
        "experts": experts,
        "weights": weights,
        "valid": valid,
        "sequences": len(segments),
        "ranked": ranked(logits, bias),
    }


def router_losses(shape, routing):
    """Weighted terms of the objective: means over layers, over all valid tokens.

    Load balance of a layer: E sum_e f_e p_e of a token, f_e the share of the assignments
    before drops of the tokens of its scope (the step, its micro-batch, its sequence), p_e
    the softmax probability: 1 when balanced. Router z: mean of logsumexp^2.
    """
    aux = 0.0
    for r in routing:
        logits = r["logits"][r["valid"]]
        if shape.balance == "aux" and shape.aux_loss != 0:
            weight = shape.aux_loss * shape.experts / len(logits)
            groups = {"global": 1, "micro_batch": shape.micro_batches}
            parts = groups.get(shape.aux_scope, r["sequences"])
            for valid, experts, scores in zip(
                *(r[name].chunk(parts) for name in ("valid", "experts", "logits"))
            ):
                if not valid.any():
                    continue
                counts = torch.bincount(experts[valid].flatten(), minlength=shape.experts)
                share = counts.to(logits.dtype) / counts.sum()
                aux = aux + weight * (scores[valid].softmax(-1) @ share).sum()
        if shape.router_z_loss != 0:
            aux = aux + shape.router_z_loss * logits.logsumexp(-1).pow(2).mean()
    return aux / len(routing)


def hidden_states(shape, p, tokens, segments, fixed=None):
    """The normed states that the head reads [B, S, D], and the routing of each layer."""
    x = gated_norm(shape, p, "embed", p["embed/table"][tokens])
    routing = []
    for layer in range(shape.layers):
        a, m = f"layer_{layer:03d}/attn", f"layer_{layer:03d}/moe"
        x = x + attention(shape, p, a, layer, gated_norm(shape, p, a, x), segments)
        y, r = moe(
            shape,
            p,
            m,
            gated_norm(shape, p, m, x),
            segments,
            fixed[layer] if fixed else None,
        )
        x = x + y
        routing.append(r)
    return gated_norm(shape, p, "final", x), routing


def losses(shape, p, tokens, targets, segments, fixed=None):
    """({"total", "cross_entropy", "z_loss", "aux"} as tensors, routing of each layer)."""
    x, routing = hidden_states(shape, p, tokens, segments, fixed)
    counted = targets >= 0
    logits = x[counted] @ p["head/table"]
    lse = logits.logsumexp(-1)
    right = logits.gather(1, targets[counted][:, None]).squeeze(1)
    parts = {
        "cross_entropy": (lse - right).mean(),
        "z_loss": shape.z_loss * lse.pow(2).mean(),
        "aux": torch.as_tensor(router_losses(shape, routing), dtype=lse.dtype),
    }
    parts["total"] = sum(parts.values())
    return parts, routing
