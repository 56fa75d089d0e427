#!/usr/bin/env python3
"""parallel.device_embedding_elements. On CPU it changes nothing; on a GPU tables lie in the host's memory, with and without a cache, and
losses, AUC, weights and state keep every bit.

  test_host_memory.py TRAINER [unittest's arguments, as OnCpu.test_changes_nothing]

OnGpu is skipped (77) where there is no GPU.
"""
import sys

import fixture
from fixture import events
from test_graphs import gpus

# 24 features of 300 to 9500 rows in batches of 64: more rows than two batches list
CONFIG = """
model:
  dense_features: 4
  embedding_dim: 8
  bottom_mlp: [16, 8]
  interaction: dot
  top_mlp: [32, 1]
  tables:
    - {count: 20, rows: 5000}
    - {name: multi, rows: 9500, hotness: 5}
    - {name: varying, rows: 4000, hotness: {max: 7}, combiner: mean}
    - {name: small, rows: 100}
    - {name: middle, rows: 300}
optimizer:
  dense: {name: adagrad, learning_rate: 0.05}
  embedding: {name: adagrad, learning_rate: 0.05}
train: {batch_size: 64, steps: 80}
data: {format: synthetic, synthetic: {alpha: 1.05, batches: 25}}
eval: {every_steps: 30}
log: {every_steps: 20}
"""
BUDGET = 60000
VARIANTS = [
    [],
    ["train.deterministic=true"],
    ["train.embedding_dtype=bf16"],
    ["optimizer.embedding={name: rowwise_adagrad, learning_rate: 0.05}"],
    ["optimizer.embedding={name: adam, learning_rate: 0.01}"],
    ["train.precision=bf16", "checkpoint.path=ck", "checkpoint.every_steps=17"],
]


class Runs(fixture.RunTest):
    def outcome(self, ranks, *args):
        self.write("config.yaml", CONFIG)
        done = self.succeed(ranks, "config.yaml", "log.jsonl=run.jsonl", "checkpoint.export=out", *args)
        steps = [(e["step"], e["loss"], e.get("auc")) for e in events(self.path("run.jsonl")) if e["event"] in ("step", "eval")]
        return steps, self.file_bytes("out", "model.safetensors"), done.stdout


class OnCpu(Runs):
    def test_changes_nothing(self):
        short = ["device=cpu", "train.steps=10", "eval.every_steps=0", "data.synthetic.batches=3"]
        for ranks in (1, 2):  # tables lie where they would without it, too
            want = self.outcome(ranks, *short)
            placed = events(self.path("run.jsonl"), "start")[0]["table_owner"]
            have = self.outcome(ranks, *short, "parallel.device_embedding_elements=0", "parallel.host_cache=false")
            self.assertEqual(have[:2], want[:2])
            self.assertNotIn("cache", have[2])
            self.assertEqual(events(self.path("run.jsonl"), "start")[0]["table_owner"], placed)


class OnGpu(Runs):
    def compare(self, ranks):
        if gpus() < ranks:
            self.skipTest("not %d GPUs" % ranks)
        for args in VARIANTS:
            args = ["device=cuda", "parallel.strategy=memory_balanced", "checkpoint.resume=never"] + args
            want = self.outcome(ranks, *args)
            for cache in ("true", "false"):
                with self.subTest(args=args, cache=cache):
                    have = self.outcome(ranks, "parallel.device_embedding_elements=%d" % (BUDGET // ranks), "parallel.host_cache=" + cache, *args)
                    self.assertEqual(have[0], want[0])
                    self.assertEqual(have[1], want[1])
                    rates = [e.get("cache_hit_rate") for e in events(self.path("run.jsonl"), "step")]
                    if cache == "true":
                        self.assertTrue(all(0.1 < r < 1 for r in rates), rates)
                    else:
                        self.assertEqual(rates, [None] * len(rates))

    def test_one_gpu(self):
        self.compare(1)

    def test_two_gpus(self):
        self.compare(2)

    def test_resume(self):
        """A run that goes on finds the values that were in the cache when it was saved."""
        args = ["device=cuda", "parallel.strategy=memory_balanced", "train.deterministic=true"]
        want = self.outcome(1, *args)
        home = ["parallel.device_embedding_elements=%d" % BUDGET, "checkpoint.path=ck"]
        self.outcome(1, "train.steps=37", *home, *args)
        self.assertEqual(self.outcome(1, *home, *args)[1], want[1])

    def test_budget_too_small(self):
        self.write("config.yaml", CONFIG)
        self.refuse(1, 1, r"parallel\.device_embedding_elements: is 1000 elements a rank; the tables that have to stay on the device, and a cache "
                          r"of the rows that two batches may list, take \d+", "config.yaml", "device=cuda", "parallel.device_embedding_elements=1000")


if __name__ == "__main__":
    if any("OnGpu" in a for a in sys.argv) and gpus() == 0:
        print("not run: no GPU")
        sys.exit(77)
    fixture.main()
