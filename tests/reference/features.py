"""Feature switches of the model: each is a list of overrides of reference.deck."""

FEATURES = {
    "all_on": [],
    "no_gated_norm": ["model/gate_rank=0"],
    "no_latent": ["moe/latent_width=0"],
    "no_shared": ["moe/shared_experts=0"],
    "one_shared": ["moe/shared_experts=1"],
    "no_xsa": ["model/xsa=false"],
    "no_head_gate": ["model/head_gate=false"],
    "no_sconv": ["model/sconv=none"],
    "sconv_k": ["model/sconv=k"],
    "sconv_attn": ["model/sconv=attn"],
    "sconv_moe": ["model/sconv=moe"],
    "no_rope": ["model/rope_fraction=0"],
    "full_rope": ["model/rope_fraction=1"],
    "no_window": ["model/window=0"],
    "window_2": ["model/window=2"],
    "window_1": ["model/window=1", "model/xsa=false"],
    "no_global": ["model/global_every=0"],
    "every_layer_global": ["model/global_every=1"],
    "same_kv_heads": ["model/kv_heads_global=2"],
    "one_head_each": ["model/kv_heads=4", "model/kv_heads_global=4"],
    "softmax": ["moe/score=softmax"],
    "no_z_loss": ["model/z_loss=0"],
    "no_qk_norm": ["model/qk_norm=false", "model/qk_multiplier=1"],
    "top_all": ["moe/top_k=6"],
    "plain": [
        "model/gate_rank=0",
        "moe/latent_width=0",
        "moe/shared_experts=0",
        "model/xsa=false",
        "model/head_gate=false",
        "model/sconv=none",
        "model/qk_norm=false",
        "model/qk_multiplier=1",
        "model/global_every=0",
        "model/window=0",
        "model/z_loss=0",
    ],
}

# What changes the arithmetic of Capstan or its way through a step, not the function that
# is differentiated (rounding to bf16 has no derivative to compare with differences).
WAYS = {
    "bf16_router": ["moe/router_precision=bf16_out"],
    "no_balance": ["moe/balance=none"],
    "recompute_moe": ["model/recompute=moe"],
    "recompute_full": ["model/recompute=full"],
    "micro_batches": ["grid/micro_batches=2"],
}

# The same step on grids of ranks: (ranks, overrides).
GRIDS = {
    "expert_2": (2, ["grid/expert=2"]),
    "data_2": (2, ["grid/data=2"]),
    "data_2_expert_2": (4, ["grid/data=2", "grid/expert=2"]),
    "expert_2_micro_batches": (2, ["grid/expert=2", "grid/micro_batches=2"]),
}

# Transports that drop: the reference is told which assignments, and what spill made of
# them; values and gradients must then agree as ever.
TIGHT = ["moe/capacity_send=1", "moe/capacity_receive=1"]
TRANSPORTS = {
    "cells": (1, ["moe/transport=cells", *TIGHT]),
    "cells_by_weight": (1, ["moe/transport=cells", "moe/drop_policy=weight", *TIGHT]),
    "spill": (1, ["moe/transport=spill", *TIGHT]),
    "spill_softmax": (1, ["moe/transport=spill", "moe/score=softmax", *TIGHT]),
    "pooled_wave": (1, ["moe/transport=pooled_wave", "moe/waves=3", *TIGHT]),
    "expert_2_cells": (
        2,
        ["grid/expert=2", "moe/transport=cells", "moe/waves=3", *TIGHT],
    ),
    "expert_2_spill": (2, ["grid/expert=2", "moe/transport=spill", *TIGHT]),
    "expert_2_pooled_wave": (
        2,
        ["grid/expert=2", "moe/transport=pooled_wave", "moe/waves=3", *TIGHT],
    ),
    "expert_2_pooled_wave_recompute": (
        2,
        [
            "grid/expert=2",
            "moe/transport=pooled_wave",
            "model/recompute=moe",
            "grid/micro_batches=2",
            *TIGHT,
        ],
    ),
    "expert_2_ragged": (
        2,
        ["grid/expert=2", "moe/transport=ragged", "moe/waves=3", *TIGHT],
    ),
    "expert_2_ragged_rotate": (
        2,
        ["grid/expert=2", "moe/transport=ragged", "moe/drop_policy=rotate", *TIGHT],
    ),
    "data_2_expert_2_waterfill": (
        4,
        ["grid/data=2", "grid/expert=2", "moe/transport=waterfill", *TIGHT],
    ),
    "expert_2_waves": (2, ["grid/expert=2", "moe/waves=3"]),
}

# Terms of the objective that routers add.
AUX = ["moe/balance=aux", "moe/aux_loss=0.3"]
OBJECTIVES = {
    "aux_loss": AUX,
    "aux_sequence": [*AUX, "moe/aux_scope=sequence"],
    "router_z_loss": ["moe/router_z_loss=0.2"],
    "both_router_losses": [*AUX, "moe/router_z_loss=0.2"],
}
# The same where the step is cut into micro-batches and spread over ranks.
BOTH = OBJECTIVES["both_router_losses"]
CUT = ["grid/micro_batches=2"]
ROUTER_LOSSES = {
    "aux_global_cut": (1, [*BOTH, *CUT]),
    "aux_micro_batch_cut": (1, [*BOTH, *CUT, "moe/aux_scope=micro_batch"]),
    "aux_recompute": (1, [*BOTH, *CUT, "model/recompute=full"]),
    "aux_bf16_router": (1, [*BOTH, "moe/router_precision=bf16_out"]),
    "aux_spill": (1, [*BOTH, *CUT, "moe/transport=spill", *TIGHT]),
    "sign": (1, ["moe/balance=sign"]),
    "data_2_aux_sequence": (2, [*BOTH, *CUT, "grid/data=2", "moe/aux_scope=sequence"]),
    "expert_2_aux_micro_batch": (
        2,
        [*BOTH, *CUT, "grid/expert=2", "moe/aux_scope=micro_batch"],
    ),
    "expert_2_aux_ragged": (
        2,
        [*BOTH, *CUT, "grid/expert=2", "moe/transport=ragged", *TIGHT],
    ),
    "data_2_expert_2_aux": (4, [*BOTH, "grid/data=2", "grid/expert=2"]),
}
