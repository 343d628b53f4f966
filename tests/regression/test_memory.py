#!/usr/bin/python3
"""capstan -m against the ledger's measured peak: grids, recompute, state, scalars,
transports, micro-batches."""
import re
import unittest

import runs

MUONH = ["optimizer/kind=adam", "optimizer/weight_decay=0", "group1/kind=muonh",
         "group1/match=embed/table, */w_*, */shared_*"]
# (data, expert), further keys
CASES = [
    ((1, 1), []),
    ((2, 1), []),
    ((1, 2), ["model/recompute=full"]),
    ((2, 2), ["model/recompute=moe"]),
    ((4, 1), ["memory/optimizer=sharded"]),
    ((4, 1), ["memory/optimizer=sharded", "model/recompute=full"]),
    ((2, 2), ["memory/optimizer=sharded", *MUONH]),
    ((2, 1), MUONH),
    ((2, 4), ["memory/optimizer=sharded"]),
    ((4, 2), ["grid/micro_batches=2"]),
    ((2, 1), ["model/sconv=none", "moe/latent_width=0", "model/head_gate=false"]),
    ((1, 1), ["model/gate_rank=0", "moe/shared_experts=0",
              "moe/balance=aux", "moe/aux_loss=0.01"]),
]
# Wide enough that arrays, not their rounding to 256 bytes, decide.
KEYS = ["job/steps=3", "model/hidden=64", "model/head_dim=16", "moe/expert_width=48",
        "batch/sequences=32", "eval/at_end=false", "model/scalar=float"]


class Memory(runs.Case):
    def test_plan_is_the_measured_peak(self):
        worst = 0
        for number, (grid, more) in enumerate(CASES):
            name = f"run{number}"
            words = [*KEYS, *more, f"grid/data={grid[0]}", f"grid/expert={grid[1]}"]
            with self.subTest(grid=grid, keys=more):
                plan = self.capstan("plan", "-m", *words, code=0).output
                planned = float(re.search(r"^ +sum +([0-9.]+)", plan, re.M)[1])
                self.capstan(name, *words, ranks=grid[0] * grid[1], code=0)
                (segment,) = self.history(name)
                measured = segment.values("memory_peak_mib")[-1]
                error = planned / measured - 1
                print(f"{grid} {more}: {planned:.1f} MiB planned, {measured:.1f} "
                      f"measured, {100 * error:+.1f} %")
                self.assertLess(abs(error), 0.05)
                worst = max(worst, abs(error))
        self.assertGreater(worst, 0)  # something was compared


if __name__ == "__main__":
    unittest.main()
