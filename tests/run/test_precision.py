#!/usr/bin/env python3
"""Tables, and vectors that travel, narrower than fp32: the same bits on any number of ranks, the same loss as fp32 on data that can
be learnt, PyTorch's losses but for the rounding, files in the tables' type, memory and traffic as predicted."""
import json
import os
import struct
import unittest

import numpy as np

import fixture
import golden
from fixture import events

import as_run  # as golden finds it

NARROW = {"bf16": "BF16", "fp16": "F16"}

# A hidden model to be found, with rows that are seen often enough. The rates make steps of a row much smaller than bfloat16's
# last place, so that rounding to nearest would lose most of them.
LEARNT = """\
model:
  dense_features: 4
  embedding_dim: 8
  bottom_mlp: [16, 8]
  interaction: dot
  top_mlp: [16, 1]
  tables: [{rows: 300}, {rows: 200, hotness: 3, combiner: mean}, {count: 2, rows: 100}]
optimizer:
  dense: {name: adagrad, learning_rate: 0.02}
  embedding: {name: adagrad, learning_rate: 0.02}
train: {batch_size: 256, steps: 1200}
data: {format: synthetic, synthetic: {alpha: 1.05, batches: 100, dense: uniform}}
log: {every_steps: 100, jsonl: run.jsonl}
"""


def header(path):
    with open(path, "rb") as f:
        return json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))


def to_nearest(values, dtype):
    """Ties to even; as float32 again."""
    if dtype == "fp16":
        return values.astype("<f2").astype("<f4")
    bits = np.ascontiguousarray(values, "<f4").view("<u4").astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16).astype("<u4").view("<f4")


class Narrow(fixture.RunTest):
    def outcome(self, ranks, *args):
        """What a run logged, and the bytes of its export."""
        self.succeed(ranks, "config.yaml", "checkpoint.export=out", *args)
        log = [(e["step"], e["loss"], e.get("auc")) for e in events(self.path("run.jsonl")) if e["event"] in ("step", "eval")]
        return log, self.file_bytes("out", "model.safetensors")


class Tables(Narrow):
    def test_bits(self):
        """Random roundings depend on seed, step, table and element alone: not on ranks or placement, and not on threads."""
        self.make_data()
        for k, (dtype, optimizer) in enumerate((d, o) for d in NARROW for o in ("sgd", "adagrad", "rowwise_adagrad", "adam")):
            args = ["train.deterministic=true", "train.epochs=2", "train.embedding_dtype=" + dtype,
                    "optimizer.embedding={name: %s, learning_rate: 0.05}" % optimizer]
            with self.subTest(dtype=dtype, optimizer=optimizer):
                one = self.outcome(1, *args)
                for ranks in (2, 3, 4) if k % 4 == 1 and not fixture.SANITIZED else (2 + k % 3,):
                    strategy = ("basic", "memory_optimized", "memory_balanced")[k % 3]
                    self.assertEqual(self.outcome(ranks, "parallel.strategy=" + strategy, *args), one, "%d ranks" % ranks)
        again = [self.outcome(2, "train.embedding_dtype=bf16") for _ in range(2)]
        self.assertEqual(*again)
        self.succeed(1, "config.yaml", "checkpoint.export=start")
        seeds = [self.outcome(1, "train.embedding_dtype=bf16", "checkpoint.init_from=start", "train.seed=%d" % k) for k in (2, 3, 3)]
        self.assertEqual(seeds[1], seeds[2])
        self.assertNotEqual(seeds[0][1], seeds[1][1])

    def test_files(self):
        """An export has the tables' type, holds what was trained, and comes back exactly."""
        rows = self.make_data()
        for dtype, name in NARROW.items():
            with self.subTest(dtype=dtype):
                log, _ = self.outcome(2, "train.epochs=3", "train.embedding_dtype=" + dtype)
                entries = header(self.path("out", "model.safetensors"))
                for key, entry in entries.items():
                    if key != "__metadata__":
                        self.assertEqual(entry["dtype"], name if key.startswith("table.") else "F32", key)
                back = ("config.yaml", "checkpoint.init_from=out/model.safetensors", "train.embedding_dtype=" + dtype)
                self.succeed(3, *back, "--eval")
                scored = events(self.path("run.jsonl"), "eval")[-1]
                self.assertAlmostEqual(scored["loss"], log[-1][1], delta=1e-6)
                self.assertEqual(scored["auc"], log[-1][2])
                self.succeed(1, *back, "--predict", "p.npy")
                want = fixture.probabilities(self.weights("out"), rows["test"])
                self.assertLess(np.abs(np.load(self.path("p.npy")) - want).max(), 1e-6)

    def test_loading_rounds_to_nearest(self):
        """And a step that changes nothing changes nothing."""
        self.make_data()
        self.succeed(1, "config.yaml", "checkpoint.export=wide")
        wide = self.weights("wide")
        for dtype in NARROW:
            self.succeed(2, "config.yaml", "checkpoint.init_from=wide", "checkpoint.export=narrow", "train.embedding_dtype=" + dtype,
                         "optimizer.embedding={name: sgd, learning_rate: 0}")
            for name, value in self.weights("narrow").items():
                if name.startswith("table."):
                    self.assertTrue((value == to_nearest(wide[name], dtype)).all(), name)
                    self.assertFalse((value == wide[name]).all(), name)

    @unittest.skipIf(fixture.SANITIZED, "a model trained to the end: the release build does it")
    def test_learns_as_well(self):
        self.write("config.yaml", LEARNT)
        found = {}
        for dtype in ("fp32", "bf16", "fp16"):
            self.succeed(2, "config.yaml", "train.embedding_dtype=" + dtype, "train.exchange_dtype=" + dtype)
            found[dtype] = (events(self.path("run.jsonl"), "step")[-1]["loss_mean"], events(self.path("run.jsonl"), "eval")[-1])
        loss, scored = found["fp32"]
        first = events(self.path("run.jsonl"), "step")[0]["loss_mean"]
        self.assertLess(loss, first - 0.05, "there is nothing to learn")
        for dtype in NARROW:
            narrow_loss, narrow_scored = found[dtype]
            self.assertNotEqual(narrow_loss, loss)
            self.assertLess(abs(narrow_loss - loss), 0.003, found)
            self.assertLess(abs(narrow_scored["loss"] - scored["loss"]), 0.003, found)
            self.assertLess(abs(narrow_scored["auc"] - scored["auc"]), 0.003, found)

    def test_memory(self):
        """Half the bytes of the tables, in --check, the start event and the end; the state stays fp32."""
        self.make_data(train=1100)
        totals = {}
        for dtype in ("fp32", "bf16"):
            args = ("config.yaml", "log.every_steps=0", "train.embedding_dtype=" + dtype)
            shown = [line.split() for line in self.succeed(2, *args, "--check").stdout.splitlines()]
            shown = [float(v[3]) for v in shown if len(v) == 9 and v[0].isdigit()]
            self.succeed(2, *args)
            start, end = (events(self.path("run.jsonl"), kind)[0] for kind in ("start", "end"))
            for s, e, mib in zip(start["per_rank"], end["per_rank"], shown):
                self.assertEqual(s["table_bytes"], e["table_bytes"])
                self.assertAlmostEqual(mib, e["table_bytes"] / 2 ** 20, delta=0.006)
            totals[dtype] = (sum(e["table_bytes"] for e in end["per_rank"]), sum(s["state_bytes"] for s in start["per_rank"]))
        self.assertEqual(totals["fp32"], (4 * 120 * 4, totals["bf16"][1]))
        self.assertEqual(totals["bf16"][0], 2 * 120 * 4)


class Exchange(Narrow):
    def test_bits(self):
        """Vectors and gradients are rounded on one rank as on many."""
        self.make_data()
        for k, (dtype, interaction) in enumerate((d, i) for d in NARROW for i in ("dot", "cat", "pool")):
            args = ["train.deterministic=true", "train.epochs=2", "train.exchange_dtype=" + dtype, "model.interaction=" + interaction]
            args += ["model.pool_stride=3"] if interaction == "pool" else []
            args += ["train.embedding_dtype=bf16"] if k % 2 else []
            with self.subTest(dtype=dtype, interaction=interaction):
                one = self.outcome(1, *args)
                for ranks in (2, 3, 4) if interaction == "dot" and not fixture.SANITIZED else (3,):
                    self.assertEqual(self.outcome(ranks, *args), one, "%d ranks" % ranks)
                self.assertEqual(self.outcome(2, "parallel.data_parallel_threshold=160", *args), one, "two tables on every rank")
        fp32, auto, bf16 = (self.outcome(1, "train.exchange_dtype=" + dtype) for dtype in ("fp32", "auto", "bf16"))
        self.assertEqual(fp32, auto)
        self.assertNotEqual(fp32[0][0], bf16[0][0])
        self.assertEqual(bf16, self.outcome(1, "train.exchange_dtype=bf16"))

    def test_traffic(self):
        """Half the bytes for vectors and gradients; the MLPs' sums stay as they are."""
        self.make_data(train=1100)
        for ranks in (2, 3):
            sent = {}
            for dtype in ("fp32", "bf16", "fp16"):
                self.succeed(ranks, "config.yaml", "log.every_steps=0", "train.batch_size=100", "parallel.strategy=basic",
                             "train.exchange_dtype=" + dtype)
                start, end = (events(self.path("run.jsonl"), kind)[0]["per_rank"] for kind in ("start", "end"))
                sent[dtype] = np.array([e["sent_bytes_per_step"] for e in end])
                predicted = np.array([s["sent_bytes_per_step"] for s in start])
                self.assertLess(np.abs(sent[dtype] / predicted - 1).max(), 0.01)
            self.assertTrue((sent["bf16"] == sent["fp16"]).all())
            # Every vector element of every sample, but those of the rank's own tables, goes over once and its gradient back.
            elements = sum(fixture.DIM * 100 * (len(fixture.FEATURES) - s["inputs"]) / ranks for s in start)
            self.assertAlmostEqual((sent["fp32"] - sent["bf16"]).sum(), 2 * 2 * elements, delta=0.02 * 4 * elements)


class Golden(Narrow):
    def test_losses(self):
        """PyTorch's float64 losses, but for what roundings to 8 or 11 bits do to them."""
        cases = ("a_dot_sgd", "e_varlen_mean_sgd", "h_rowwise_adagrad", "i_sparse_adam", "k_dcn_adagrad", "m_pool_adagrad")
        for case in cases[::3] if fixture.SANITIZED else cases:
            path = os.path.join(os.path.dirname(os.path.abspath(golden.__file__)), "..", "golden", case)
            runner = golden.Runner(self.trainer, as_run.Case(path), "cpu")
            want = runner.case.arrays["expect_f64/loss.f64"]
            for key in ("exchange_dtype", "embedding_dtype"):
                for dtype, first in (("bf16", 4e-3), ("fp16", 5e-4)):
                    with self.subTest(case=case, key=key, dtype=dtype):
                        run = runner.run(2, True, "train.%s=%s" % (key, dtype))
                        self.assertEqual(runner.failures, [])
                        off = np.abs(np.array([loss for kind, _, loss, _ in run.losses() if kind == "step"]) - want)
                        self.assertGreater(off.max(), 0)
                        self.assertLess(off[0], first)
                        self.assertLess(off.max(), 0.02)
            runner.folder.cleanup()


if __name__ == "__main__":
    fixture.main()
