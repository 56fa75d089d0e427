#!/usr/bin/env python3
"""Checkpoints from outside: a run that is cut and goes on has the bits of one that was not, on any number of ranks; what may
change and what not; files that are damaged, left over, in the way; what is in the files, read with NumPy."""
import ctypes
import ctypes.util
import fcntl
import json
import os
import re
import subprocess
import threading
import time

import numpy as np

import fixture
import launch
from fixture import events

DETERMINISTIC = "train.deterministic=true"
# All of an optimizer's kinds of state. Steps of 16 of 120 rows: the last batch of an epoch, the eighth, is short.
OPTIMIZERS = {
    "adagrad": "optimizer.embedding={name: adagrad, learning_rate: 0.1, initial_accumulator: 0.1}",
    "rowwise": "optimizer.embedding={name: rowwise_adagrad, learning_rate: 0.1}",
    "adam": "optimizer={dense: {name: adam, learning_rate: 0.01}, embedding: {name: adam, learning_rate: 0.01}}",
    "momentum": "optimizer={dense: {name: sgd, learning_rate: 0.1, momentum: 0.9}, embedding: {name: sgd, learning_rate: 0.1, momentum: 0.5}}",
}
SCHEDULE = "optimizer.schedule={warmup_steps: 6, decay_start_step: 15, decay_steps: 9}"


def checkpoints(folder):
    return sorted(name for name in os.listdir(folder) if name.startswith("step_")) if os.path.isdir(folder) else []


def leftovers(folder):
    return sorted(name for name in os.listdir(folder) if name.startswith(".step_"))


def read_checkpoint(folder):
    """{tensor: its values}, put together from the pieces of all files."""
    whole, filled = {}, {}
    for name in sorted(name for name in os.listdir(folder) if name.endswith(".safetensors")):
        with open(os.path.join(folder, name), "rb") as f:
            data = f.read()
        start = 8 + int.from_bytes(data[:8], "little")
        header = json.loads(data[8:start])
        place = header.pop("__metadata__")
        for piece, t in header.items():
            if piece == "checksums":
                continue
            rows, columns, row, step, column = map(int, re.fullmatch(r"whole=(\d+)x(\d+) row=(\d+) step=(\d+) column=(\d+)", place[piece]).groups())
            values = np.frombuffer(data[start:], {"F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "U32": "<u4"}[t["dtype"]], np.prod(t["shape"], dtype=int),
                                   t["data_offsets"][0])
            values = values.reshape(t["shape"] if len(t["shape"]) == 2 else (1, -1) if rows == 1 else (-1, 1))
            tensor = piece.split("@")[0]
            part = np.s_[row:row + (len(values) - 1) * step + 1:step, column:column + values.shape[1]]
            whole.setdefault(tensor, np.zeros((rows, columns), values.dtype))[part] = values
            filled.setdefault(tensor, np.zeros((rows, columns), int))[part] += 1
    for tensor, times in filled.items():
        assert (times == 1).all(), tensor
    return whole


class CheckpointTest(fixture.RunTest):
    def straight(self, *args, name="straight"):
        """A run in one go; the bytes of its weights and its log."""
        self.succeed(2, "config.yaml", "checkpoint.export=" + name, "log.jsonl=%s.jsonl" % name, *args)
        return self.file_bytes(name, "model.safetensors"), events(self.path(name + ".jsonl"))

    def forge(self, folder, change):
        """A manifest that says something else, with the checksum of what it says."""
        xxh = load_xxhash()
        if xxh is None:
            self.skipTest("the library of XXH3 is not installed")
        path = self.path(folder, "manifest.json")
        with open(path) as f:
            manifest = json.load(f)
        del manifest["checksum"]
        change(manifest)
        text = json.dumps(manifest, separators=(",", ":"))
        self.assertEqual(text[-2:], '"}')
        with open(path, "w") as f:
            f.write('%s","checksum":"%016x"}\n' % (text[:-2], xxh(text[:-2].encode())))

    def kinds(self, log, *names):
        """Events of these kinds without what takes time or differs by the number of ranks."""
        keep = ("event", "step", "loss", "loss_mean", "lr", "lr_embedding", "auc", "samples")
        return [{k: e[k] for k in keep if k in e} for e in log if e["event"] in names]


class Resume(CheckpointTest):
    def test_bits(self):
        """Cut twice, on other numbers of ranks each time."""
        self.make_data()
        for i, (name, optimizer) in enumerate(sorted(OPTIMIZERS.items())):
            with self.subTest(optimizer=name):
                args = [optimizer, SCHEDULE, DETERMINISTIC, "train.epochs=3", "log.every_steps=5", "eval.every_steps=7"]
                weights, log = self.straight(*args, name="straight_" + name)
                ranks = [(3, 1, 2), (1, 4, 1), (2, 3, 3), (4, 2, 1)][i]
                cut = args + ["checkpoint.path=ckpt_" + name, "log.jsonl=cut.jsonl", "checkpoint.resume=auto"]
                if os.path.exists(self.path("cut.jsonl")):
                    os.remove(self.path("cut.jsonl"))
                self.succeed(ranks[0], "config.yaml", "train.steps=8", *cut)
                self.succeed(ranks[1], "config.yaml", "train.steps=13", *cut)
                done = self.succeed(ranks[2], "config.yaml", "checkpoint.export=cut", *cut)
                self.assertIn("resumed from ckpt_%s/step_000000013: step 13, epoch 1, written by %d rank" % (name, ranks[1]), done.stdout)
                self.assertEqual(self.file_bytes("cut", "model.safetensors"), weights)
                self.compare_logs(log, events(self.path("cut.jsonl")))

    def compare_logs(self, straight, cut):
        """The lines of a straight run are there, with the same losses; a cut run has a line at each cut besides."""
        self.assertEqual([e["step"] for e in cut if e["event"] == "resume"], [8, 13])
        self.assertEqual([e["event"] for e in cut].count("start"), 3)
        lines = {e["step"]: e for e in self.kinds(cut, "step")}
        for line in self.kinds(straight, "step"):
            if line["step"] in (10, 15):  # the line at the cut took a part of the window
                for e in (line, lines[line["step"]]):
                    e.pop("loss_mean")
            self.assertEqual(lines[line["step"]], line)
        evaluated = {e["step"]: e for e in self.kinds(cut, "eval")}
        for evaluation in self.kinds(straight, "eval"):
            self.assertEqual(evaluated[evaluation["step"]], evaluation)

    def test_window_of_losses(self):
        """A checkpoint within a window of the log does not change the window's mean."""
        self.make_data()
        args = [DETERMINISTIC, "train.epochs=2", "log.every_steps=6"]
        _, log = self.straight(*args)
        self.succeed(3, "config.yaml", "checkpoint.path=ckpt", "checkpoint.every_steps=8", "checkpoint.keep=5", *args)
        os.rename(self.path("run.jsonl"), self.path("saved.jsonl"))
        self.succeed(2, "config.yaml", "checkpoint.resume=ckpt/step_000000008", *args)
        for name in ("saved.jsonl", "run.jsonl"):
            lines = self.kinds(events(self.path(name)), "step")
            self.assertEqual(lines, self.kinds(log, "step")[-len(lines):])
        self.assertEqual([e["step"] for e in lines], [12, 16])

    def test_log_cut_off(self):
        """A line that a killed run left half written does not spoil the next one."""
        self.make_data()
        self.succeed(1, "config.yaml", "train.steps=2", "checkpoint.path=ckpt")
        with open(self.path("run.jsonl"), "a") as f:
            f.write('{"event":"st')
        self.succeed(1, "config.yaml", "train.steps=3", "checkpoint.path=ckpt")
        lines = self.file_bytes("run.jsonl").decode().splitlines()
        at = lines.index('{"event":"st')
        self.assertEqual([json.loads(line)["event"] for line in lines[at + 1:]][:2], ["start", "resume"])

    def test_default_order_of_sums(self):
        """Not deterministic: the same bits on the same number of ranks."""
        self.make_data()
        self.succeed(2, "config.yaml", "train.epochs=2", "checkpoint.export=straight")
        self.succeed(2, "config.yaml", "train.steps=11", "checkpoint.path=ckpt")
        self.succeed(2, "config.yaml", "train.epochs=2", "checkpoint.path=ckpt", "checkpoint.export=cut")
        self.assertEqual(self.file_bytes("cut", "model.safetensors"), self.file_bytes("straight", "model.safetensors"))

    def test_after_scaled_losses(self):
        """Of a run in fp16 that skipped two of five updates: without scaling Adam goes on from the three that were made."""
        self.make_data()
        args = ["config.yaml", DETERMINISTIC, OPTIMIZERS["adam"]]
        weights = []
        for k, progress in enumerate(({"updates": 3}, {"updates": 5, "skipped_steps": 2, "loss_scale": 1024.0, "good_steps": 1}, {"updates": 5})):
            path = "ckpt_%d" % k
            self.succeed(2, *args, "checkpoint.path=" + path, "train.steps=5")
            self.forge(os.path.join(path, "step_000000005"), lambda manifest: manifest["progress"].update(progress))
            self.succeed(2, *args, "checkpoint.path=" + path, "checkpoint.export=out")
            weights.append(self.file_bytes("out", "model.safetensors"))
        self.assertEqual(weights[1], weights[0])
        self.assertNotEqual(weights[2], weights[0])
        with open(self.path("ckpt_1", "step_000000008", "manifest.json")) as f:
            saved = json.load(f)["progress"]
        self.assertEqual([saved[k] for k in ("step", "updates", "skipped_steps", "loss_scale", "good_steps")], [8, 6, 0, 0, 0])

    def test_finished(self):
        """Nothing is left to do: no step, no other checkpoint, the same export."""
        self.make_data()
        args = [DETERMINISTIC, "checkpoint.path=ckpt", "checkpoint.export=out"]
        self.succeed(2, "config.yaml", *args)
        before = self.file_bytes("out", "model.safetensors"), self.file_bytes("ckpt", "step_000000008", "manifest.json")
        os.remove(self.path("out", "model.safetensors"))
        done = self.succeed(3, "config.yaml", *args)
        self.assertIn("note: this training of 8 steps has ended before; train.epochs or train.steps makes it longer", done.stdout)
        self.assertEqual((self.file_bytes("out", "model.safetensors"), self.file_bytes("ckpt", "step_000000008", "manifest.json")), before)
        end = events(self.path("run.jsonl"), "end")
        self.assertEqual([(e["first_step"], e["steps"], e["checkpoints"]["saved"]) for e in end], [(0, 8, 1), (8, 0, 0)])
        self.assertIsNone(end[1]["samples_per_s"])
        # From elsewhere: the folder of this run has none yet.
        self.succeed(2, "config.yaml", DETERMINISTIC, "checkpoint.path=ckpt_2", "checkpoint.resume=ckpt/step_000000008")
        self.assertEqual(checkpoints(self.path("ckpt_2")), ["step_000000008"])

    def test_target(self):
        """A run that ended at its target is at its end when resumed; with a higher one it goes on."""
        self.make_data()
        args = [DETERMINISTIC, "train.epochs=4", "eval.every_steps=3", "checkpoint.path=ckpt"]
        self.succeed(2, "config.yaml", "eval.target_auc=0.01", *args)
        self.assertEqual(checkpoints(self.path("ckpt")), ["step_000000003"])
        self.succeed(2, "config.yaml", "eval.target_auc=0.01", *args)
        self.assertEqual([e["why"] for e in events(self.path("run.jsonl"), "end")], ["target AUC reached"] * 2)
        self.assertEqual([e["step"] for e in events(self.path("run.jsonl"), "eval")], [3])
        self.succeed(2, "config.yaml", "eval.target_auc=1", *args)
        self.assertEqual(events(self.path("run.jsonl"), "end")[-1]["steps"], 29)

    def test_never_and_path(self):
        self.make_data()
        args = [DETERMINISTIC, "checkpoint.path=ckpt", "checkpoint.every_steps=4", "checkpoint.keep=10"]
        self.succeed(2, "config.yaml", *args)
        self.assertEqual(checkpoints(self.path("ckpt")), ["step_000000004", "step_000000008"])
        self.succeed(2, "config.yaml", "checkpoint.resume=ckpt/step_000000004", *args)
        self.assertEqual([e["step"] for e in events(self.path("run.jsonl"), "resume")], [4])
        done = self.succeed(2, "config.yaml", "checkpoint.resume=never", "train.seed=2", "train.steps=4", *args)
        self.assertNotIn("resumed", done.stdout)
        self.assertEqual([e["event"] for e in events(self.path("run.jsonl"))].count("start"), 1)  # a new log
        # The newest is that of the latest run, whatever its step.
        done = self.succeed(2, "config.yaml", "train.seed=2", *args)
        self.assertIn("resumed from ckpt/step_000000004", done.stdout)
        self.refuse(2, 1, r'checkpoint\.resume: found "ckpt", a folder of checkpoints; expected one of them, such as ckpt/step_0000', "config.yaml",
                    "checkpoint.resume=ckpt", *args)
        self.refuse(2, 1, r"checkpoint\.resume: cannot find \"absent\": No such file or directory; expected ", "config.yaml", "checkpoint.resume=absent", *args)

    def test_init_from(self):
        self.make_data()
        self.succeed(2, "config.yaml", "checkpoint.export=out", "train.steps=2")
        args = [DETERMINISTIC, "checkpoint.path=ckpt", "checkpoint.init_from=out"]
        self.succeed(2, "config.yaml", "train.steps=3", *args)
        done = self.succeed(2, "config.yaml", *args)
        self.assertIn("resumed from ckpt/step_000000003", done.stdout)
        self.assertIn("checkpoint.init_from is not read", done.stdout)


class Placements(CheckpointTest):
    """Tables of 50, 30 and 40 rows of 4: saved under one placement, gone on with under another."""
    REPLICATED = [(3, ["parallel.strategy=basic"]), (2, ["parallel.data_parallel_threshold=130"]), (4, ["parallel.data_parallel_threshold=1000"]),
                  (1, [])]
    ROWS = [(3, ["parallel.strategy=basic"]), (2, ["parallel.data_parallel_threshold=130"]), (3, ["parallel.row_slice_threshold=150"]), (1, []),
            (4, ["parallel.row_slice_threshold=1", "parallel.data_parallel_threshold=130"])]
    COLUMNS = [(4, ["parallel.strategy=basic", "parallel.column_slice_threshold=50"]), (2, ["parallel.column_slice_threshold=100", "parallel.data_parallel_threshold=130"]),
               (4, ["parallel.column_slice_threshold=100", "parallel.row_slice_threshold=200"]), (7, [])]

    def check(self, optimizer, placements):
        """Each placement takes over from the one before."""
        self.make_data()
        args = [DETERMINISTIC, optimizer, "train.epochs=2", "checkpoint.keep=20"]
        self.succeed(2, "config.yaml", "checkpoint.path=straight", *args)
        for i, (ranks, placement) in enumerate(placements):
            self.succeed(ranks, "config.yaml", "checkpoint.path=ckpt", "train.steps=%d" % (2 + 2 * i), *placement, *args)
        self.succeed(2, "config.yaml", "checkpoint.path=ckpt", *args)
        last, straight = (read_checkpoint(self.path(folder, "step_000000016")) for folder in ("ckpt", "straight"))
        self.assertEqual(sorted(last), sorted(straight))
        for name in straight:
            np.testing.assert_array_equal(last[name], straight[name], name)

    def test_replicated(self):
        self.check(OPTIMIZERS["momentum"], self.REPLICATED)

    def test_rows(self):
        self.check("optimizer.embedding={name: rowwise_adagrad, learning_rate: 0.1}", self.ROWS)
        self.assertTrue(any("@rows_" in piece for piece in self.pieces("step_000000006")))

    def test_columns(self):
        self.check(OPTIMIZERS["adam"], self.COLUMNS)
        self.assertTrue(any("@cols_" in piece for piece in self.pieces("step_000000002")))

    def pieces(self, step):
        """Names in the files of a checkpoint."""
        names = []
        for name in os.listdir(self.path("ckpt", step)):
            with open(self.path("ckpt", step, name), "rb") as f:
                names += json.loads(f.read(int.from_bytes(f.read(8), "little"))) if name.startswith("rank") else []
        return names


class When(CheckpointTest):
    def test_steps_and_keep(self):
        self.make_data()
        self.succeed(3, "config.yaml", "train.epochs=3", "checkpoint.path=deep/ckpt", "checkpoint.every_steps=5", "checkpoint.keep=3")
        self.assertEqual(checkpoints(self.path("deep", "ckpt")), ["step_000000015", "step_000000020", "step_000000024"])
        saved = events(self.path("run.jsonl"), "checkpoint")
        self.assertEqual([(e["step"], e["saved"], e["checkpoint"]) for e in saved],
                         [(n, True, "deep/ckpt/step_%09d" % n) for n in (5, 10, 15, 20, 24)])
        for e in saved:
            self.assertGreater(e["stall_ms"], 0)
            self.assertGreaterEqual(e["save_ms"], e["stall_ms"] * 0.99)
            self.assertGreater(e["bytes"], 2 * 4 * 120 * 4)
        end = events(self.path("run.jsonl"), "end")[0]["checkpoints"]
        self.assertEqual((end["saved"], end["failed"]), (5, 0))
        self.assertAlmostEqual(end["stall_s"] * 1e3, sum(e["stall_ms"] for e in saved), delta=1e-3)

    def test_minutes(self):
        self.write("config.yaml", fixture.SYNTHETIC)
        self.succeed(2, "config.yaml", "train.steps=500", "log.every_steps=100", "checkpoint.path=ckpt", "checkpoint.every_minutes=0.00005")
        self.assertGreater(len(events(self.path("run.jsonl"), "checkpoint")), 2)
        self.assertEqual(len(checkpoints(self.path("ckpt"))), 2)
        start = time.monotonic()
        self.succeed(2, "config.yaml", "train.steps=3000", "log.every_steps=0", "checkpoint.path=seldom", "checkpoint.every_minutes=0.002")
        self.assertLess(len(events(self.path("run.jsonl"), "checkpoint")), 2 + (time.monotonic() - start) / 0.12)

    def test_nothing_without_path(self):
        self.make_data()
        self.succeed(1, "config.yaml")
        self.assertEqual(events(self.path("run.jsonl"), "checkpoint"), [])
        self.refuse(1, 1, r"checkpoint\.every_steps: found 5, but checkpoint\.path is not set", "config.yaml", "checkpoint.every_steps=5")

    def test_check_and_eval(self):
        """--check tells what would be resumed; --eval and --predict take the checkpoint's weights, and leave all as it is."""
        self.make_data()
        self.succeed(2, "config.yaml", DETERMINISTIC, "checkpoint.path=ckpt", "checkpoint.export=out")
        trained = events(self.path("run.jsonl"), "eval")[-1]
        before = sorted(os.listdir(self.path("ckpt")))
        args = ["checkpoint.path=ckpt", DETERMINISTIC]
        self.assertIn("resumes    ckpt/step_000000008, at step 8", self.succeed(2, "config.yaml", "--check", *args).stdout)
        self.succeed(3, "config.yaml", "--eval", *args)
        evaluation = events(self.path("run.jsonl"), "eval")[-1]
        self.assertEqual({k: evaluation[k] for k in ("step", "auc", "samples")}, {k: trained[k] for k in ("step", "auc", "samples")})
        self.succeed(1, "config.yaml", "--predict", "a.npy", "train.seed=7", "optimizer.dense.learning_rate=3", *args)
        self.succeed(1, "config.yaml", "--predict", "b.npy", "checkpoint.init_from=out", DETERMINISTIC)
        np.testing.assert_array_equal(np.load(self.path("a.npy")), np.load(self.path("b.npy")))
        self.assertEqual(sorted(os.listdir(self.path("ckpt"))), before)


class Changed(CheckpointTest):
    """What may differ from the checkpoint's config."""

    def setUp(self):
        super().setUp()
        self.make_data()
        self.args = ["config.yaml", DETERMINISTIC, "checkpoint.path=ckpt"]
        self.succeed(2, *self.args, "train.steps=5")

    def test_matter(self):
        for change, was in (("train.batch_size=8", "is 8, but ckpt/step_000000005 was made with 16"), ("train.seed=2", "is 2.*with 1"),
                            ("optimizer.dense.learning_rate=0.01", r"is 0\.01.*with 0\.05"),
                            ("train.deterministic=false", "is false.*with true")):
            key = change.split("=")[0]
            with self.subTest(key=key):
                self.refuse(2, 1, r"^command line: %s: %s; to go on all the same: checkpoint\.allow_changed: \[%s\]$" % (re.escape(key), was, re.escape(key)),
                            *self.args, change)
        self.assertEqual(checkpoints(self.path("ckpt")), ["step_000000005"])

    def test_fixed(self):
        for change, key, was in (("model.bottom_mlp=[6, 4]", "model.bottom_mlp", r"is \[6, 4\].*\[8, 4\], and this cannot change"),
                                 ("optimizer.dense.name=adam", "optimizer.dense.name", "is adam.*with adagrad, and this cannot change"),
                                 ("model.tables.1.rows=31", "model.tables", r"rows of table number 1 \(tags\) is 31, but .*with 30, and this cannot change$"),
                                 ("model.features.1={table: tags, combiner: sum}", "model.features",
                                  r"combiner of feature number 1 \(tags\) is sum, but .*with mean, and this cannot change$")):
            with self.subTest(key=key):
                self.refuse(2, 1, r"%s: %s" % (re.escape(key), was), *self.args, change)
        self.refuse(2, 1, r"checkpoint\.allow_changed: model\.bottom_mlp cannot change", *self.args, "checkpoint.allow_changed=[model.bottom_mlp]")
        self.refuse(2, 1, r'checkpoint\.allow_changed: found "train\.sed", expected a key or a section of keys', *self.args,
                    "checkpoint.allow_changed=[train.sed]")

    def test_allowed(self):
        self.succeed(3, *self.args, "optimizer.dense.learning_rate=0.01", "optimizer.schedule.warmup_steps=2", "train.seed=3", "train.epochs=2",
                     "checkpoint.allow_changed=[optimizer.dense.learning_rate, optimizer.schedule, train.seed]")
        self.assertEqual(checkpoints(self.path("ckpt")), ["step_000000005", "step_000000016"])

    def test_batch_size(self):
        """The data go on at the row where they were left: 80 of 120 rows are read, so an epoch of batches of 20 has two left."""
        self.succeed(3, *self.args, "train.batch_size=20", "checkpoint.allow_changed=[train.batch_size]")
        self.assertEqual([e["step"] for e in events(self.path("run.jsonl"), "step")][-2:], [6, 7])
        self.assertEqual(events(self.path("run.jsonl"), "end")[-1]["samples"], 40)

    def test_rows(self):
        self.make_data(train=130)
        self.refuse(2, 1, r"data\.path: has 130 training rows, but ckpt/step_000000005 was made with 120", *self.args)
        self.succeed(2, *self.args, "checkpoint.allow_changed=[data.path]")

    def test_synthetic(self):
        """Settings of made-up rows matter, each by its own key; a path, which there is none of, has no say."""
        self.write("config.yaml", fixture.SYNTHETIC)
        args = ["config.yaml", DETERMINISTIC, "checkpoint.path=made_up"]
        self.succeed(2, *args, "train.steps=3")
        changes = {"data.synthetic.alpha": ("0.5", "1.05"), "data.synthetic.batches": ("4", "5"), "data.synthetic.dense": ("uniform", "lognormal"),
                   "data.synthetic.labels": ("random", "planted"), "train.batch_size": ("24", "48"), "train.seed": ("2", "1")}
        for key, (value, before) in changes.items():
            with self.subTest(key=key):
                change = "%s=%s" % (key, value)
                self.refuse(1, 1, r"^command line: %s: is %s, but made_up/step_000000003 was made with %s; to go on all the same: "
                            r"checkpoint\.allow_changed: \[%s\]$" % (key, value, before, key), *args, change)
                self.refuse(1, 1, r": %s: is %s, but " % (key, value), *args, change, "checkpoint.allow_changed=[data.path]")
                self.assertIn("resumes    made_up/step_000000003", self.succeed(1, *args, "--check", change, "checkpoint.allow_changed=[%s]" % key).stdout)
        changed = ["%s=%s" % (key, value) for key, (value, _) in changes.items()]
        self.succeed(2, *args, *changed, "checkpoint.allow_changed=[data.synthetic, train]", "train.epochs=2")
        # 144 of what are 4 * 24 rows now have been read: that epoch is over, the next begins.
        self.assertEqual([events(self.path("run.jsonl"), "end")[-1][k] for k in ("first_step", "steps")], [3, 4])

    def test_format(self):
        """From made-up rows to those of files: as many, unless that is allowed, too."""
        args = ["config.yaml", "checkpoint.path=made_up",
                "model.features=[user, {table: tags, hotness: 3}, {table: history, hotness: {max: 5}}, {table: user, hotness: 2}]"]
        self.succeed(2, *args, "data={format: synthetic}", "train.steps=2")
        self.refuse(1, 1, r"data\.format: is split_binary, but made_up/step_000000002 was made with synthetic; ", *args)
        self.refuse(1, 1, r"data\.path: has 120 training rows, but made_up/step_000000002 was made with 160; ", *args, "checkpoint.allow_changed=[data.format]")
        self.succeed(2, *args, "checkpoint.allow_changed=[data.format, data.path]")
        self.assertEqual([e["step"] for e in events(self.path("run.jsonl"), "step")], list(range(1, 9)))

    def test_free(self):
        os.rename(self.path("data"), self.path("elsewhere"))
        self.succeed(4, *self.args, "data.path=elsewhere", "parallel.strategy=basic", "eval.every_steps=3", "log.every_steps=2", "train.epochs=2",
                     "checkpoint.every_steps=3", "log.jsonl=other.jsonl")


class Damaged(CheckpointTest):
    def setUp(self):
        super().setUp()
        self.make_data()
        self.args = ["config.yaml", DETERMINISTIC, "checkpoint.path=ckpt"]
        self.succeed(3, *self.args, "train.steps=5")
        self.folder_of = os.path.join("ckpt", "step_000000005")

    def flip(self, name, at):
        path = self.path(self.folder_of, name)
        with open(path, "r+b") as f:
            f.seek(at)
            byte = f.read(1)[0]
            f.seek(at)
            f.write(bytes([byte ^ (1 << (at % 8))]))

    def test_flipped(self):
        """A bit of the header, of the checksums, of a tensor, of the manifest. (unit/test_checkpoint.c flips each of all bytes.)"""
        name = "rank_00002.safetensors"
        with open(self.path(self.folder_of, name), "rb") as f:
            start = 8 + int.from_bytes(f.read(8), "little")
            tensors = {t["data_offsets"][0]: name for name, t in json.loads(f.read(start - 8)).items() if name != "__metadata__"}
        last = max(tensors)
        for name, at, what in ((name, 100, "the header's checksum"), (name, start + 1, "tensor 'checksums'"),
                               (name, start + last + 5, "tensor '%s': bytes %d to " % (tensors[last], start + last)),
                               ("manifest.json", 300, "does not have its checksum")):
            self.flip(name, at)
            self.refuse(2, 1, r"^%s/%s: .*%s" % (re.escape(self.folder_of), re.escape(name), re.escape(what)), *self.args)
            self.flip(name, at)
        self.succeed(2, *self.args, "--eval")

    def test_cut_off_and_missing(self):
        path = self.path(self.folder_of, "rank_00001.safetensors")
        os.truncate(path, os.path.getsize(path) - 1)
        self.refuse(2, 1, r"rank_00001\.safetensors: has \d+ bytes, expected \d+ by the manifest: cut off\?", *self.args)
        os.remove(path)
        self.refuse(2, 1, r"rank_00001\.safetensors: cannot open: No such file", *self.args)

    def test_older_one(self):
        """Where the newest is damaged another can be named; the damaged one stays, and is told of."""
        self.succeed(2, *self.args, "train.steps=6")
        self.flip(os.path.join("..", "step_000000006", "manifest.json"), 300)
        self.refuse(2, 1, r"^ckpt/step_000000006/manifest\.json: does not have its checksum", *self.args)
        done = self.succeed(2, *self.args, "checkpoint.resume=ckpt/step_000000005", "train.steps=7", "checkpoint.keep=1")
        self.one_message(done.stderr, r"warning: ckpt: damaged, so neither to be resumed nor removed when its turn comes: step_000000006$")
        self.assertEqual(checkpoints(self.path("ckpt")), ["step_000000006", "step_000000007"])

    def test_forged(self):
        """Numbers that no training comes to, under a checksum that fits: refused by member and value."""
        good = self.file_bytes(self.folder_of, "manifest.json")
        for section, member, value, expected in (("", "serial", 2 ** 63 - 1, r"a whole number from 0 to \d+"),
                                                 ("progress", "step", 2 ** 63 - 1, r"a whole number from 0 to \d+"),
                                                 ("progress", "updates", 6, "a whole number from 0 to 5"),
                                                 ("progress", "row", 120, "a whole number from 0 to 119"),
                                                 ("progress", "epoch", 2 ** 60, r"at most \d+ of 8 batches each"),
                                                 ("progress", "loss_scale", 1e300, "0 or a power of two")):
            self.forge(self.folder_of, lambda manifest: (manifest[section] if section else manifest).update({member: value}))
            self.refuse(2, 1, r"^%s/manifest\.json: '%s' is [0-9.e+]+, expected %s$" % (re.escape(self.folder_of), member, expected), *self.args)
            with open(self.path(self.folder_of, "manifest.json"), "wb") as f:
                f.write(good)
        self.forge(self.folder_of, lambda manifest: manifest.update(serial=2 ** 60))
        self.refuse(2, 1, r"^%s/manifest\.json: 'serial' is %d, which no later checkpoint could follow$" % (re.escape(self.folder_of), 2 ** 60), *self.args)
        self.assertEqual(checkpoints(self.path("ckpt")), ["step_000000005"])
        with open(self.path(self.folder_of, "manifest.json"), "wb") as f:
            f.write(good)
        self.succeed(2, *self.args)

    def test_of_another_checkpoint(self):
        """A whole, sound file, but not this checkpoint's."""
        self.succeed(3, *self.args, "train.steps=6")
        os.replace(self.path("ckpt", "step_000000005", "rank_00001.safetensors"), self.path("ckpt", "step_000000006", "rank_00001.safetensors"))
        self.refuse(2, 1, r"step_000000006/rank_00001\.safetensors: tensor 'checksums': .*not the manifest's", *self.args)


class Leftovers(CheckpointTest):
    def test_removed(self):
        """What killed runs leave is announced, removed and never resumed; what is not ours stays."""
        self.make_data()
        args = ["config.yaml", DETERMINISTIC, "checkpoint.path=ckpt"]
        self.succeed(2, *args, "train.steps=5")
        os.rename(self.path("ckpt", "step_000000005"), self.path("ckpt", ".step_000000005.part"))
        for name in (".step_000000003.gone", "step_9", ".step_x.part", "notes"):
            os.mkdir(self.path("ckpt", name))
        done = self.succeed(2, *args, "train.steps=3")
        self.assertNotIn("resumed", done.stdout)
        line = next(line for line in done.stdout.splitlines() if "removed what a killed run left" in line)
        self.assertEqual(sorted(line.split(": ")[2].split(", ")), [".step_000000003.gone", ".step_000000005.part"])
        self.assertEqual(sorted(os.listdir(self.path("ckpt"))), [".lock", ".step_x.part", "notes", "step_000000003", "step_9"])

    def test_what_cannot_be_removed(self):
        """Folders that are not ours within ours, as a network's file system has them for files in use: told of, and training goes on, saves and
        removes what can be removed. A file under such a name gives way."""
        self.make_data()
        args = ["config.yaml", DETERMINISTIC, "checkpoint.path=ckpt", "checkpoint.keep=1"]
        self.succeed(2, *args, "train.steps=3")
        for name in (".step_000000002.part", ".step_000000002.gone", "step_000000003"):
            os.makedirs(self.path("ckpt", name, "in_use"))
        for name in (".step_000000001.part", ".step_000000001.gone", "step_000000005"):
            with open(self.path("ckpt", name), "w") as f:
                f.write("a file")
        self.refuse(2, 1, r"^ckpt/step_000000005/manifest\.json: cannot open: Not a directory$", *args)
        done = self.succeed(2, *args, "train.steps=5", "checkpoint.resume=ckpt/step_000000003", "checkpoint.every_steps=1")
        self.assertIn("resumed from ckpt/step_000000003: step 3", done.stdout)
        for name in (".step_000000002.part", ".step_000000002.gone"):
            self.one_message(done.stderr, r"warning: what a killed run left stays: ckpt/%s/in_use: cannot remove: Is a directory$" % re.escape(name))
        self.assertRegex(done.stdout, r"ckpt: removed what a killed run left: \.step_000000001\.(part|gone), \.step_000000001\.(part|gone)\n")
        self.assertRegex(done.stderr, r"warning: an old checkpoint stays: ckpt/\.step_00000000[23]\.gone/in_use: cannot remove: Is a directory\n")
        self.assertEqual(sorted(os.listdir(self.path("ckpt"))), [".lock", ".step_000000002.gone", ".step_000000002.part", ".step_000000003.gone",
                                                                "step_000000005"])
        self.assertIn("resumed from ckpt/step_000000005: step 5", self.succeed(2, *args).stdout)

    def test_links(self):
        """A checkpoint that is a symbolic link is gone on from like others; what goes is the link, and not what it leads to."""
        self.make_data()
        self.succeed(1, "config.yaml", "checkpoint.path=kept", "train.steps=2")
        before = [self.file_bytes("kept", "step_000000002", name) for name in ("manifest.json", "rank_00000.safetensors")]
        os.mkdir(self.path("ckpt"))
        for name in ("step_000000002", ".step_000000001.gone", ".step_000000009.part"):
            os.symlink("../kept/step_000000002", self.path("ckpt", name))
        self.succeed(1, "config.yaml", "checkpoint.path=ckpt", "checkpoint.keep=1", "train.steps=3")
        self.assertEqual(sorted(os.listdir(self.path("ckpt"))), [".lock", "step_000000003"])
        os.symlink("../kept/step_000000002", self.path("ckpt", "step_000000002"))
        self.succeed(1, "config.yaml", "checkpoint.path=ckpt", "checkpoint.resume=never", "train.steps=2")  # in its place
        self.assertFalse(os.path.islink(self.path("ckpt", "step_000000002")))
        self.assertEqual([self.file_bytes("kept", "step_000000002", name) for name in ("manifest.json", "rank_00000.safetensors")], before)

    def test_two_runs(self):
        """A folder belongs to one run at a time; one that is about to end is waited for."""
        self.make_data()
        os.mkdir(self.path("ckpt"))
        with open(self.path("ckpt", ".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.refuse(2, 1, r"^ckpt: another run writes its checkpoints there; ", "config.yaml", "checkpoint.path=ckpt", "parallel.timeout_s=3")
            timer = threading.Timer(1.5, fcntl.flock, (lock, fcntl.LOCK_UN))
            timer.start()
            self.succeed(2, "config.yaml", "checkpoint.path=ckpt")
            timer.join()

    def test_not_shared(self):
        """Ranks that see different folders under the same name are found out at the start."""
        self.make_data()
        os.mkdir(self.path("ckpt"))
        apart = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs tmpfs ckpt && exec "$0" "$@"']
        if subprocess.run(apart + ["true"], cwd=self.folder, stderr=subprocess.DEVNULL).returncode != 0:
            self.skipTest("a file system cannot be mounted here")
        run = [self.trainer, "config.yaml", "checkpoint.path=ckpt"]
        done = subprocess.run(["mpirun", "-n", "2"] + run + [":", "-n", "1"] + apart + run, cwd=self.folder, timeout=launch.PATIENCE, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(os.environ, OMP_NUM_THREADS="1", **launch.AT_ONCE))
        self.assertEqual(done.returncode, 1, done.stderr)
        self.one_message(done.stderr, r"^checkpoint\.path: rank 2 cannot see what rank 0 writes to ckpt, or not write there itself .*; all ranks need the same "
                         r"file system$")
        self.assertNotIn("step 1/", done.stdout)
        self.assertEqual(os.listdir(self.path("ckpt")), [".lock"])

    def test_unusable(self):
        self.make_data()
        self.refuse(2, 1, r"config\.yaml/ckpt: cannot make the folder: Not a directory", "config.yaml", "checkpoint.path=config.yaml/ckpt")
        self.refuse(2, 1, r"config\.yaml/ckpt: cannot make the folder: Not a directory", "config.yaml", "checkpoint.path=config.yaml/ckpt",
                    "checkpoint.resume=never")


    def test_written_among_checkpoints(self):
        """A checkpoint in checkpoint.path has no room for an export or a log, under whatever name; nothing is made there."""
        self.make_data()
        self.succeed(2, "config.yaml", "checkpoint.path=ckpt", "train.steps=2")
        before = self.file_bytes("ckpt", "step_000000002", "manifest.json")
        os.symlink("ckpt/step_000000002", self.path("out"))
        os.symlink("ckpt", self.path("link"))
        for path, export in (("ckpt", "out"), ("ckpt", "link/step_000000002"), ("link", "ckpt/step_000000009"), ("ckpt", self.path("link", "step_9", "x")),
                             ("link", "data/../link/.step_000000003.part")):
            self.refuse(1, 1, r'checkpoint\.export: found "%s", expected a folder that is no checkpoint of checkpoint\.path$' % re.escape(export),
                        "config.yaml", "checkpoint.path=" + path, "checkpoint.export=" + export)
            for key, expected in (("log.jsonl", "file"), ("log.mlperf", "file"), ("log.tensorboard", "folder")):
                self.refuse(1, 1, r'%s: found "%s", expected a %s outside of the checkpoints of checkpoint\.path$' % (re.escape(key), re.escape(export), expected),
                            "config.yaml", "checkpoint.path=" + path, "%s=%s" % (key, export))
        self.assertEqual(sorted(os.listdir(self.path("ckpt"))), [".lock", "step_000000002"])
        self.assertEqual(self.file_bytes("ckpt", "step_000000002", "manifest.json"), before)
        self.succeed(2, "config.yaml", "checkpoint.path=ckpt", "checkpoint.export=link/export", "log.jsonl=ckpt/run.jsonl", "log.tensorboard=ckpt/tb")


class Files(CheckpointTest):
    """What is in the files, with another reader."""

    def test_pieces(self):
        self.make_data()
        self.succeed(3, "config.yaml", DETERMINISTIC, "checkpoint.path=ckpt", "checkpoint.export=out", OPTIMIZERS["adam"])
        exported = fixture.read_safetensors(self.path("out"))
        with open(self.path("ckpt", "step_000000008", "manifest.json")) as f:
            manifest = json.load(f)
        self.assertEqual((manifest["format"], manifest["version"], manifest["progress"]["step"], manifest["progress"]["epoch"]),
                         ("dlrm-train checkpoint", 1, 8, 1))
        self.assertEqual([f["name"] for f in manifest["files"]], ["rank_%05d.safetensors" % r for r in range(3)])
        self.assertEqual(manifest["run"]["config"]["train.batch_size"], "16")
        found = {}
        for entry in manifest["files"]:
            path = self.path("ckpt", "step_000000008", entry["name"])
            self.assertEqual(os.path.getsize(path), entry["bytes"])
            found.update(self.read_file(path, entry))
        self.assertEqual(sorted(found), sorted(name + end for name in exported for end in ("", ".m", ".v")))
        for name, value in exported.items():
            np.testing.assert_array_equal(found[name], value)
            self.assertEqual(found[name + ".v"].shape, value.shape)
            self.assertGreater(np.abs(found[name + ".v"]).max(), 0)

    def read_file(self, path, entry):
        with open(path, "rb") as f:
            data = f.read()
        start = 8 + int.from_bytes(data[:8], "little")
        header = json.loads(data[8:start])
        place = header.pop("__metadata__")
        self.assertEqual((place["format"], place["checkpoint"], place["sum_block"]), ("pt", "1", "1048576"))
        dtypes = {"F32": "<f4", "U64": "<u8"}
        at = {name: (start + t["data_offsets"][0], start + t["data_offsets"][1]) for name, t in header.items()}
        tensors = {name: np.frombuffer(data[at[name][0]:at[name][1]], dtypes[t["dtype"]]).reshape(t["shape"]) for name, t in header.items()}
        sums = tensors.pop("checksums")
        for name, value in tensors.items():
            self.assertRegex(place[name], r"^whole=%dx%d row=0 step=1 column=0$" % ((1,) * (value.ndim == 1) + value.shape))
        if (xxh := load_xxhash()) is not None:
            self.assertEqual("%016x" % xxh(data[:start]), entry["header_checksum"])
            self.assertEqual("%016x" % xxh(sums.tobytes()), entry["checksums_checksum"])
            order = sorted(tensors, key=lambda name: at[name])
            self.assertEqual([xxh(data[at[name][0]:at[name][1]]) for name in order], sums.tolist())
        return tensors


def load_xxhash():
    """XXH3_64bits of the library, where it is installed."""
    name = ctypes.util.find_library("xxhash")
    if not name:
        return None
    f = ctypes.CDLL(name).XXH3_64bits
    f.restype, f.argtypes = ctypes.c_uint64, [ctypes.c_char_p, ctypes.c_size_t]
    return lambda data: f(data, len(data))


if __name__ == "__main__":
    fixture.main()
