#!/usr/bin/env python3
"""Vectors written into other ranks' memory, or sent: the same bits, whatever the placement, in training and evaluation.

  test_exchange.py TRAINER [Exchange.test_2 ...]
"""
import os

import fixture
from fixture import events

CONFIG = """
model:
  dense_features: 3
  embedding_dim: 8
  bottom_mlp: [16, 8]
  interaction: dot
  top_mlp: [16, 1]
  tables:
    - {count: 5, rows: 150}
    - {name: large, rows: 900, hotness: 3}
    - {name: wide, rows: 300, dim: 8, hotness: {max: 4}, combiner: mean}
    - {name: small, rows: 7}
optimizer:
  dense: {name: adagrad, learning_rate: 0.05}
  embedding: {name: rowwise_adagrad, learning_rate: 0.05}
train: {batch_size: 45, steps: 30}
data: {format: synthetic, synthetic: {alpha: 1.05, batches: 9}}
eval: {every_steps: 7, batch_size: 44, max_samples: 89}
log: {every_steps: 1}
"""
PLACEMENTS = {
    "whole": [],
    "everywhere": ["parallel.data_parallel_threshold=1000000"],
    "mixed": ["parallel.data_parallel_threshold=60", "parallel.row_slice_threshold=7000", "parallel.column_slice_threshold=1000"],
}


class Exchange(fixture.RunTest):
    def outcome(self, ranks, direct, *args):
        """Which exchange it was; losses and AUCs; the weights."""
        os.environ["DLRM_DIRECT_EXCHANGE"] = direct
        self.addCleanup(os.environ.pop, "DLRM_DIRECT_EXCHANGE", None)
        self.succeed(ranks, "config.yaml", "log.jsonl=run.jsonl", "checkpoint.export=out", *args)
        log = events(self.path("run.jsonl"))
        results = [(e["event"], e["step"], e["loss"], e.get("auc")) for e in log if e["event"] in ("step", "eval")]
        return log[0]["exchange"], results, self.file_bytes("out", "model.safetensors")

    def both(self, ranks):
        self.write("config.yaml", CONFIG)
        for name, args in PLACEMENTS.items():
            for mode in "false", "true":
                with self.subTest(placement=name, deterministic=mode):
                    written, sent = [self.outcome(ranks, direct, "train.deterministic=" + mode, *args) for direct in ("1", "0")]
                    self.assertEqual((written[0], sent[0]), ("direct", "mpi"))
                    self.assertEqual(written[1], sent[1])
                    self.assertEqual(written[2], sent[2])

    def test_2(self):
        self.both(2)

    def test_3(self):
        self.both(3)

    def test_bad_setting(self):
        self.write("config.yaml", CONFIG)
        os.environ["DLRM_DIRECT_EXCHANGE"] = "off"
        self.addCleanup(os.environ.pop, "DLRM_DIRECT_EXCHANGE", None)
        self.refuse(2, 2, r'DLRM_DIRECT_EXCHANGE: found "off", expected 0 \(vectors are sent\) or 1$', "config.yaml")

    def test_one_rank(self):
        self.write("config.yaml", CONFIG)
        self.assertEqual(self.outcome(1, "1")[0], "none")


if __name__ == "__main__":
    fixture.main()
