#!/usr/bin/python3
"""Pipeline stages change nothing but who computes what.

Losses, norms and weights of every split agree with one stage, any split reads the
checkpoint of any other, and the same grid goes on bit for bit.
"""
import os
import unittest

import runs
import h5py
import numpy as np

# 40 sequences suit every grid and number of micro-batches here; 5 layers suit no number
# of stages.
DECK = ["model/layers=5", "model/seq_len=16", "batch/sequences=40", "job/steps=20"]
COLUMNS = ("loss", "loss_total", "z_loss", "aux_loss", "grad_norm", "param_norm")
COLUMNS += ("grad_norm_embed", "grad_norm_head", "grad_norm_experts", "update_ratio")
COLUMNS += ("assignments", "routing_entropy", "load_balancing_loss", "router_bias_max")
COLUMNS += ("load_max_over_mean", "router_z_loss", "padding_skipped")
GRIDS = ("2x1x1", "2x2x1", "2x1x2", "4x1x1")  # pipe x data x expert
RECOMPUTE = {1: "none", 2: "moe", 4: "full", 5: "none"}  # by micro-batches


def words_of(grid):
    """(words, ranks) of a grid."""
    axes = [int(n) for n in grid.split("x")]
    words = [f"grid/{name}={n}" for name, n in zip(("pipe", "data", "expert"), axes)]
    return words, axes[0] * axes[1] * axes[2]


def dump_of(directory, step):
    return h5py.File(os.path.join(directory, "diag", f"dump.{step}.h5"), "r")


def layer_figures(directory):
    """{name: [steps, layers]} of the first segment."""
    path = os.path.join(directory, "diag", "history.1.h5")
    with h5py.File(path, "r", swmr=True) as file:
        return {name: item[()] for name, item in file["layer"].items()}


class Case(runs.Case):
    def train(self, name, grid, *words):
        grid_words, ranks = words_of(grid)
        done = self.capstan(name, *DECK, *grid_words, *words, ranks=ranks, code=0)
        return self.history(name)[-1], done

    def compare(self, one, other, what, steps=None):
        for column in COLUMNS:
            pair = one.values(column), other.values(column)
            if steps:  # the last so many
                pair = pair[0][-steps:], pair[1][-steps:]
            self.assert_close(pair[0] + 1, pair[1] + 1, 1e-9, f"{what}: {column}")


class Curves(Case):
    def test_every_grid_and_number_of_micro_batches(self):
        dump = ["job/dump_step=15", "eval/every_tokens=6400"]
        single, _ = self.train("1x1x1", "1x1x1", *dump)
        self.assertLess(single.values("loss")[-1], single.values("loss")[0] - 1)
        wanted = layer_figures(self.path("1x1x1"))
        for grid in GRIDS:
            for m, recompute in RECOMPUTE.items():
                name = f"{grid}_{m}"
                with self.subTest(name):
                    words = [f"grid/micro_batches={m}", f"model/recompute={recompute}"]
                    segment, _ = self.train(name, grid, *words, *dump)
                    self.compare(segment, single, name)
                    for step, loss in single.evals.items():
                        mine = float(segment.evals[step])
                        self.assert_close(mine, float(loss), 1e-9, f"{name}: held-out")
                    self.compare_dumps(name)
                    figures = layer_figures(self.path(name))
                    for key in ("entropy", "load_max_over_mean", "bias_min"):
                        self.assert_close(figures[key] + 9, wanted[key] + 9, 1e-9, key)

    def compare_dumps(self, name):
        """Every parameter and gradient by its largest element, and the routing."""
        with dump_of(self.path(name), 15) as mine, dump_of(self.path("1x1x1"), 15) as one:
            names = []
            one["grads"].visititems(
                lambda name, item: names.append(name) if hasattr(item, "shape") else None
            )
            self.assertGreater(len(names), 60)
            for group in ("params", "grads"):
                for tensor in names:
                    values, wanted = mine[group][tensor][()], one[group][tensor][()]
                    error = np.abs(values - wanted).max() / np.abs(wanted).max()
                    self.assertLess(error, 1e-9, f"{name}: {group}/{tensor}")
            for layer in one["router"]:
                values = [file["router"][layer]["experts"][()] for file in (mine, one)]
                values = [np.sort(v, axis=-1) for v in values]
                self.assertTrue((values[0] == values[1]).all(), f"{name}: {layer}")

    def test_balance_terms_of_every_scope(self):
        words = ["moe/balance=aux", "moe/aux_loss=0.02", "moe/router_z_loss=1e-3"]
        for scope in ("global", "micro_batch", "sequence"):
            scoped = [*words, f"moe/aux_scope={scope}", "grid/micro_batches=4"]
            single, _ = self.train("one_" + scope, "1x1x1", *scoped)
            segment, _ = self.train("two_" + scope, "2x1x1", *scoped)
            self.compare(segment, single, scope)

    def test_split_and_clipping_as_the_deck_says(self):
        words = ["optimizer/clip_norm=0.3", "group1/match=*/w_*", "group1/kind=muonh"]
        words += ["group1/lr=0.02", "moe/balance=sign", "optimizer/norm_scope=layer"]
        words += ["grid/micro_batches=2"]
        single, _ = self.train("clip_1", "1x1x1", *words)
        split = "grid/layers_per_stage=3,2"
        segment, _ = self.train("clip_2", "2x1x2", split, *words)
        self.compare(segment, single, "clipped")
        sharded = "memory/optimizer=sharded"
        segment, _ = self.train("clip_3", "2x2x1", sharded, *words)
        self.compare(segment, single, "clipped, sharded")


class Restart(Case):
    def test_another_split_goes_on(self):
        whole, _ = self.train("whole", "1x1x1")
        self.train("half", "2x1x1", "job/steps=10", "grid/micro_batches=4")
        source = runs.checkpoints(self.path("half"))[10]
        others = {"1x1x1": [], "4x1x1": ["grid/micro_batches=5"]}
        others["2x1x2"] = ["grid/layers_per_stage=1,4", "grid/micro_batches=2"]
        others["2x2x1"] = ["memory/optimizer=sharded"]
        for grid, words in others.items():
            with self.subTest(grid):
                segment, _ = self.train("to_" + grid, grid, "-r", source, *words)
                self.assertEqual(list(segment.rows), list(range(11, 21)))
                self.compare(segment, whole, grid, steps=10)

    def test_the_same_grid_goes_on_bit_for_bit(self):
        for grid, m in (("2x1x2", 4), ("4x1x1", 5)):
            words = [f"grid/micro_batches={m}", "model/scalar=float"]
            self.train("gold" + grid, grid, *words)
            self.train("silver" + grid, grid, *words, "job/steps=10")
            self.train("silver" + grid, grid, *words, "-r", "latest")
            gold, silver = [runs.merged(self.history(name + grid))
                            for name in ("gold", "silver")]
            self.assertEqual(len(gold), 20)
            self.assertEqual(gold, silver)
            hashes = {self.last_hash(name + grid) for name in ("gold", "silver")}
            self.assertEqual(len(hashes), 1)

    def test_modes_read_any_split(self):
        self.train("modes", "2x1x1", "job/steps=5", "checkpoint/check_replicas=true")
        source = runs.checkpoints(self.path("modes"))[5]
        said = {}
        for grid in ("1x1x1", "2x1x1", "2x1x2"):
            words, ranks = words_of(grid)
            words += [*DECK, "-r", source]
            text = self.capstan("g" + grid, *words, "--generate", "def f", ranks=ranks)
            held_out = self.capstan("e" + grid, *words, "--eval", ranks=ranks)
            for done in (text, held_out):
                self.assertEqual(done.code, 0, done.output)
            loss = held_out.output.split("loss=")[1].split()[0]
            said[grid] = (text.output.split("def f", 1)[1], loss)
        self.assertEqual(len(set(said.values())), 1, said)


class Refused(Case):
    def test_stages_without_layers(self):
        words, ranks = words_of("4x1x1")
        done = self.capstan("few", *DECK, *words, "model/layers=3", ranks=ranks)
        self.assertEqual(done.code, 2, done.output)
        self.assert_says(done, "grid/pipe x grid/stages_per_rank = 4 exceeds")

    def test_a_list_that_does_not_fit(self):
        words, ranks = words_of("2x1x1")
        for split in ("1,2,2", "2,2", "5"):
            done = self.capstan("list", *DECK, *words, f"grid/layers_per_stage={split}",
                                ranks=ranks)
            self.assertEqual(done.code, 2, done.output)
            self.assert_says(done, "grid/layers_per_stage gives")


class Bubble(Case):
    def test_measured_beside_the_formula(self):
        self.train("bubble", "2x1x1", "grid/micro_batches=4")
        with open(self.path("bubble", "timing.txt")) as file:
            (line,) = [text for text in file if text.startswith("#pipeline")]
        pairs = dict(part.split("=") for part in line.split()[1:])
        self.assertEqual(pairs["stages"], "2")
        self.assertEqual(pairs["in_flight"], "2,1")
        self.assertAlmostEqual(float(pairs["bubble_formula"]), 0.2)
        self.assertTrue(0 < float(pairs["bubble_measured"]) < 1, line)


if __name__ == "__main__":
    unittest.main()
