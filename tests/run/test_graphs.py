#!/usr/bin/env python3
"""On a GPU: steps that run as CUDA graphs and steps that run op by op give the same losses, AUC and weights, in every bit. With a short
last batch and an evaluation in each epoch. Skipped (77) where there is no GPU; on as many GPUs as there are, up to two.

  test_graphs.py TRAINER [unittest's arguments, as Graphs.test_one_gpu]
"""
import concurrent.futures
import os
import subprocess
import sys

import fixture
from fixture import events

VARIANTS = [
    [],
    ["train.precision=tf32"],
    ["train.precision=bf16"],
    ["train.precision=bf16", "train.embedding_dtype=bf16"],
    ["train.precision=fp16"],
    ["train.precision=bf16", "train.exchange_dtype=fp32"],
    ["train.exchange_dtype=fp16", "train.embedding_dtype=fp16"],
    ["train.deterministic=true"],
    ["train.deterministic=true", "train.precision=bf16"],
    ["optimizer.dense={name: sgd, learning_rate: 0.1, momentum: 0.9}", "optimizer.embedding={name: sgd, learning_rate: 0.1, momentum: 0.9}"],
    ["optimizer.dense={name: adam, learning_rate: 0.01}", "optimizer.embedding={name: adam, learning_rate: 0.01}"],
    ["train.precision=fp16", "optimizer.dense={name: adam, learning_rate: 0.01}", "optimizer.embedding={name: adam, learning_rate: 0.01}"],
    ["optimizer.embedding={name: rowwise_adagrad, learning_rate: 0.05}"],
    ["model.interaction=dcn", "model.cross={layers: 2, rank: 4}"],
    ["optimizer.schedule={warmup_steps: 9, decay_start_step: 14, decay_steps: 30}"],
    ["log.every_steps=7", "eval.every_steps=5"],
]
VARIANTS_OF_TWO = [
    [],
    ["train.precision=bf16"],
    ["train.precision=fp16"],
    ["train.deterministic=true"],
    ["train.deterministic=true", "parallel.data_parallel_threshold=200"],
    ["train.exchange_dtype=bf16"],
    ["parallel.data_parallel_threshold=200"],
    ["parallel.data_parallel_threshold=200", "optimizer.embedding={name: adam, learning_rate: 0.01}"],
]


def gpus():
    try:
        return len(subprocess.run(["nvidia-smi", "--list-gpus"], stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines())
    except (OSError, subprocess.CalledProcessError):
        return 0


class Graphs(fixture.RunTest):
    def outcome(self, number, ranks, args):
        log, out = "run-%d.jsonl" % number, "out-%d" % number
        done = self.succeed(ranks, "config.yaml", "device=cuda", "train.epochs=4", "log.jsonl=" + log, "checkpoint.export=" + out, *args)
        self.assertIn("cuda", done.stdout)
        steps = [(e["step"], e["loss"], e.get("auc")) for e in events(self.path(log)) if e["event"] in ("step", "eval")]
        end = events(self.path(log), "end")[0]
        sent = [rank["sent_bytes_per_step"] for rank in end["per_rank"]]
        return steps, sent, self.file_bytes(out, "model.safetensors"), end

    def outcomes(self, graphs, ranks, variants):
        os.environ["DLRM_CUDA_GRAPHS"] = graphs
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            return list(pool.map(self.outcome, range(len(variants)), [ranks] * len(variants), variants))

    def compare(self, ranks, variants):
        self.make_data()
        if gpus() < ranks:
            self.skipTest("not %d GPUs" % ranks)
        one_by_one, graphs = (self.outcomes(g, ranks, variants) for g in "01")
        for args, want, have in zip(variants, one_by_one, graphs):
            with self.subTest(args=args):
                self.assertEqual(have[0], want[0])
                self.assertEqual(have[1], want[1])
                self.assertEqual(have[2], want[2])

    def test_one_gpu(self):
        self.compare(1, VARIANTS)

    def test_two_gpus(self):
        self.compare(2, VARIANTS_OF_TWO)

    def test_shares(self):
        """The times of phases are of the steps that ran as graphs, too, and do not add up to more than there was. (The events that
        measure them make a step some microseconds longer: this model is large enough for that not to count.)"""
        self.write("config.yaml", fixture.SYNTHETIC)
        (*_, end), = self.outcomes("1", 1, [["train.epochs=null", "train.steps=400", "train.batch_size=32768", "model.top_mlp=[2048, 2048, 1]",
                                           "train.precision=tf32", "log.every_steps=200"]])
        shares = end["per_rank"][0]["time_shares"]
        self.assertGreater(shares["mlp"], 0)
        self.assertGreater(shares["lookup"] + shares["update"], 0)
        self.assertLess(sum(v for k, v in shares.items() if k != "data_wait"), 1.1)


if __name__ == "__main__":
    if gpus() == 0:
        print("not run: no GPU")
        sys.exit(77)
    fixture.main()
