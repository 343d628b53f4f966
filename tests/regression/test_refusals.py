#!/usr/bin/python3
"""What a restart accepts and what it refuses: other grids, changed decks and data, and
checkpoints that are absent, damaged or foreign. Never a fresh start by accident."""
import os
import shutil
import unittest

import h5py
import runs

DECK, FILE = 2, 4  # exit codes
STEPS = 20
WORDS = ["schedule/tokens=102400", "eval/at_end=false"]


class Base(runs.Case):
    """A run of 20 steps with checkpoints at 10 and 20; tests work on copies."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        first = cls("run_once")
        saves = f"checkpoint/every_tokens={10 * runs.TOKENS}"
        first.capstan("first", *WORDS, saves, f"job/steps={STEPS}", code=0)

    def run_once(self):
        """Only names an instance that makes the run."""

    def copy(self, name):
        shutil.copytree(self.path("first"), self.path(name))
        return name

    def restart(self, directory, *words, code=0, **more):
        words = [*WORDS, f"job/steps={STEPS + 10}", "-r", "latest", *words]
        return self.capstan(directory, *words, code=code, **more)

    def untouched(self, directory):
        """No step was made and no file of the run was changed."""
        self.assertEqual(runs.last_step(self.path(directory)), STEPS)
        for name in ("deck.used", "history.txt", "status", "ckpt/latest"):
            with open(self.path("first", name)) as one:
                with open(self.path(directory, name)) as other:
                    self.assertEqual(one.read(), other.read(), name)


class OtherGrids(Base):
    def test_any_grid_goes_on(self):
        """Losses to 1e-9, the next samples, no sample twice."""
        dump = f"job/dump_step={STEPS + 1}"
        self.restart(self.copy("same"), dump)
        single = self.history("same")[1]
        for data, expert in ((1, 2), (2, 1), (2, 2)):
            name = self.copy(f"{data}x{expert}")
            words = [f"grid/data={data}", f"grid/expert={expert}", dump]
            done = self.restart(name, *words, ranks=data * expert)
            self.assert_says(done, f"restart: grid 1x1x1 -> 1x{data}x{expert}")
            segment = self.history(name)[1]
            self.assertEqual(list(segment.rows), list(range(STEPS + 1, STEPS + 11)))
            for column in ("loss", "grad_norm", "router_bias_max"):
                pair = segment.values(column), single.values(column)
                self.assert_close(*pair, 1e-9, f"{name}: {column}")
            self.assertEqual(*self.batches(name, "same"))
        # And back: what four ranks wrote, one reads.
        self.capstan("2x2", *WORDS, f"job/steps={STEPS + 12}", "-r", "latest", code=0)
        self.assertEqual(list(self.history("2x2")[2].rows), [STEPS + 11, STEPS + 12])

    def batches(self, *names):
        for name in names:
            with h5py.File(self.path(name, "diag", f"dump.{STEPS + 1}.h5")) as file:
                yield file["batch/tokens"][()].tolist()


class Absent(Base):
    def test_latest_without_checkpoints(self):
        for ranks, words in ((1, []), (2, ["grid/expert=2"])):
            done = self.restart(f"nothing{ranks}", *words, ranks=ranks, code=FILE)
            self.assert_says(done, f"nothing{ranks}/ckpt")
            self.assertEqual(self.history(f"nothing{ranks}"), [])
        done = self.capstan("nowhere", "-r", "latest", deck=None, code=FILE)
        self.assert_says(done, "nowhere/ckpt")
        self.assertFalse(os.path.exists(self.path("nowhere")))

    def test_wrong_path(self):
        done = self.restart("wrong", "-r", "first/ckpt/step_00000015", code=DECK)
        self.assert_says(done, "-r")  # given twice
        words = [*WORDS, "-r", "first/ckpt/step_00000015"]
        done = self.capstan("wrong", *words, code=FILE)
        self.assert_says(done, "first/ckpt/step_00000015")
        self.assertEqual(self.history("wrong"), [])

    def test_fresh_start_beside_checkpoints(self):
        name = self.copy("fresh")
        for ranks, words in ((1, []), (2, ["grid/data=2"])):
            done = self.capstan(name, *WORDS, *words, ranks=ranks, code=DECK)
            self.assert_says(done, "step_00000020", "-r latest")
        self.untouched(name)

    def test_deck_of_the_checkpoint(self):
        name = self.copy("deckless")
        self.capstan(name, "-r", "latest", "job/steps=22", deck=None, code=0)
        words = [*WORDS, "-r", "first/ckpt/step_00000020", "job/steps=22"]
        self.capstan("with_deck", *words, code=0)
        self.assertEqual(self.last_hash(name), self.last_hash("with_deck"))


class Changed(Base):
    def test_fixed_keys(self):
        name = self.copy("fixed")
        words = ["moe/experts=16", "model/hidden=64", "model/xsa=false"]
        words += ["data/valid_fraction=0.2"]
        done = self.restart(name, *words, code=DECK)
        for line in ("moe/experts: 8 -> 16", "model/hidden: 32 -> 64",
                     "model/xsa: true -> false", "data/valid_fraction: 0.1 -> 0.2"):
            self.assert_says(done, line)
        done = self.restart(name, "grid/expert=2", *words, ranks=2, code=DECK)
        self.assert_says(done, "moe/experts: 8 -> 16")
        self.untouched(name)

    def test_changed_data(self):
        words = [*WORDS, "job/steps=4", "data/files=corpus,own"]
        documents = [list(b"to be or not to be, " * 40)] * 5
        runs.write_tokens(self.path("own"), documents)
        self.capstan("data", *words, code=0)
        changed = [list(b"to be or not to do, " * 40)] * 5
        runs.write_tokens(self.path("own"), changed)
        words = [*words, "job/steps=6", "-r", "latest"]
        done = self.capstan("data", *words, code=FILE)
        self.assert_says(done, "data source own")
        self.assertNotIn("source corpus", done.output)
        self.assertEqual(runs.last_step(self.path("data")), 4)
        runs.write_tokens(self.path("own"), documents)
        self.capstan("data", *words, code=0)


class Damaged(Base):
    """A damaged checkpoint is refused with every fault listed; -r latest falls back."""

    def damage(self, name, harm):
        self.copy(name)
        folder = self.path(name, "ckpt", "step_00000020")
        harm(folder)
        return folder

    def check(self, name, *texts):
        explicit = ["-r", f"{name}/ckpt/step_00000020"]
        done = self.capstan("other", *WORDS, *explicit, code=FILE)
        self.assert_says(done, f"{name}/ckpt/step_00000020", *texts)
        self.assertEqual(self.history("other"), [])
        done = self.restart(name)
        self.assert_says(done, *texts, "falling back to", "checkpoint step=10")
        self.assertEqual(self.history(name)[1].start_step, 10)

    def flip(self, shard, *tensors):
        """One bit of each tensor."""
        with h5py.File(shard, "r") as file:
            places = [file["rank_00000"][name].id.get_offset() for name in tensors]
        with open(shard, "r+b") as file:
            for place in places:
                file.seek(place + 5)
                byte = file.read(1)[0]
                file.seek(place + 5)
                file.write(bytes([byte ^ 4]))

    def test_flipped_bits(self):
        names = ["params/embed/table", "optimizer/second/layer_001/moe/w_up"]
        folder = self.damage("flipped", lambda folder: None)
        self.flip(os.path.join(folder, "shard_00000.h5"), *names)
        verified = self.capstan("-", "--verify", folder, deck=None, code=FILE)
        self.assert_says(verified, *names)
        self.check("flipped", *names)

    def test_truncated(self):
        def harm(folder):
            shard = os.path.join(folder, "shard_00000.h5")
            os.truncate(shard, os.path.getsize(shard) // 2)

        self.damage("truncated", harm)
        self.check("truncated", "shard_00000.h5")

    def test_missing_shard(self):
        harm = lambda f: os.unlink(os.path.join(f, "shard_00000.h5"))  # noqa: E731
        self.damage("missing", harm)
        self.check("missing", "shard_00000.h5")

    def test_foreign_shard(self):
        def harm(folder):
            other = folder.replace("step_00000020", "step_00000010")
            for part in (folder, other):
                self.assertTrue(os.path.exists(os.path.join(part, "shard_00000.h5")))
            shutil.copy(os.path.join(other, "shard_00000.h5"), folder)

        self.damage("foreign", harm)
        self.check("foreign", "shard_00000.h5")

    def test_missing_meta(self):
        self.damage("meta", lambda folder: os.unlink(os.path.join(folder, "meta.h5")))
        done = self.capstan("meta", "-r", "latest", "job/steps=22", deck=None, code=0)
        self.assert_says(done, "meta.h5", "checkpoint step=10")

    def test_all_faults_of_several_ranks(self):
        words = [*WORDS, "grid/expert=2", "job/steps=3"]
        self.capstan("two", *words, ranks=2, code=0)
        folder = self.path("two", "ckpt", "step_00000003")
        os.unlink(os.path.join(folder, "shard_00001.h5"))
        self.flip(os.path.join(folder, "shard_00000.h5"), "params/embed/table")
        words = [*words, "job/steps=5", "-r", "latest"]
        done = self.capstan("two", *words, ranks=2, code=FILE)
        self.assert_says(done, "shard_00001.h5", "params/embed/table")
        self.assertEqual(runs.last_step(self.path("two")), 3)

    def test_verify_lists_all_of_it_on_any_number_of_ranks(self):
        words = [*WORDS, "grid/data=2", "grid/expert=2", "job/steps=2"]
        self.capstan("four", *words, ranks=4, code=0)
        folder = self.path("four", "ckpt", "step_00000002")
        shards = [os.path.join(folder, f"shard_{rank:05d}.h5") for rank in range(4)]
        for ranks in (1, 3):
            done = self.capstan("-", "--verify", folder, deck=None, ranks=ranks, code=0)
            self.assert_says(done, "intact")
        os.truncate(shards[0], os.path.getsize(shards[0]) // 2)
        os.unlink(shards[1])
        with h5py.File(shards[2], "r+") as file:
            del file["rank_00002/params/embed/table"]
        with h5py.File(shards[3], "r+") as file:
            file["rank_00003/optimizer/first/embed/table"][0, 0] += 1e-9
        for ranks in (1, 3):
            words = ["-", "--verify", folder]
            done = self.capstan(*words, deck=None, ranks=ranks, code=FILE)
            found = [line for line in done.output.splitlines() if folder in line]
            self.assertEqual(len(found), 5, done.output)  # the last line counts them
            self.assert_says(done, *shards, "params/embed/table", ": 4 problems")
            self.assert_says(done, "corrupt (hash differs): optimizer/first/embed/table")
        nowhere = folder + "0"
        done = self.capstan("-", "--verify", nowhere, deck=None, ranks=2, code=FILE)
        self.assert_says(done, f"no such checkpoint: {nowhere}", ": 1 problem\n")

    def test_other_model(self):
        """Tensors that are absent or left over are listed by name."""
        folder = self.path("first", "ckpt", "step_00000020")
        words = ["-r", folder, "model/xsa=true", "--eval", "moe/latent_width=0"]
        done = self.capstan("other", *words, code=FILE)
        self.assert_says(done, "mis-shaped: tensor params/layer_000/moe/w_gate")


if __name__ == "__main__":
    unittest.main()
