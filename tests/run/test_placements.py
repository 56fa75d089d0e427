#!/usr/bin/env python3
"""The same training whatever the placement: every way to place tables x optimizers x 2, 3 and 4 ranks, on a model with a table for
each of {one id, several, up to several} x {sum, mean}, one that two inputs share and one whose vectors stand side by side, against one
rank: in deterministic mode the same bits of every table, and losses; by default within rounding. The product is packed into one process
for each number of ranks. Ranks write vectors into each other's memory; a thinner product has them sent.

  test_placements.py MANY_RUNS
"""
import os
import itertools
import json

import numpy as np

import fixture

DIM = 6  # not in equal parts over 4 ranks
TABLES = [("one_sum", 40, 1, "sum"), ("one_mean", 30, 1, "mean"), ("several_sum", 50, 3, "sum"), ("several_mean", 9, 3, "mean"),
          ("varying_sum", 60, {"max": 4}, "sum"), ("varying_mean", 25, {"max": 5}, "mean"), ("shared", 20, [1, 3], "sum"), ("apart", 15, 2, "none")]
OPTIMIZERS = {
    "sgd": {"name": "sgd", "learning_rate": 0.5},
    "momentum": {"name": "sgd", "learning_rate": 0.5, "momentum": 0.9},
    "adagrad": {"name": "adagrad", "learning_rate": 0.1, "initial_accumulator": 0.01},
    "rowwise": {"name": "rowwise_adagrad", "learning_rate": 0.1, "initial_accumulator": 0.01},
    "adam": {"name": "adam", "learning_rate": 0.05, "epsilon": 0.001},
}
# settings, and where the log must say that the tables lie: a rank (0 …), everywhere (-1), in slices (None)
PLACEMENTS = {
    "basic": (["parallel.strategy=basic"], lambda owner, rows: owner is not None and owner >= 0),
    "replicated": (["parallel.data_parallel_threshold=100000"], lambda owner, rows: owner == -1),
    "rows": (["parallel.row_slice_threshold=0"], lambda owner, rows: owner is None),
    "columns": (["parallel.column_slice_threshold=1", "parallel.strategy=memory_balanced"], lambda owner, rows: owner is None),
    "mixed": (["parallel.data_parallel_threshold=%d" % (9 * DIM), "parallel.row_slice_threshold=%d" % (50 * DIM),
               "parallel.column_slice_threshold=%d" % (20 * DIM), "parallel.strategy=memory_optimized"],
              lambda owner, rows: owner == -1 if rows <= 9 else owner is None or rows < 50),  # halves may meet on a rank
    "auto": (["parallel.strategy=auto"], lambda owner, rows: True),
}


class Placements(fixture.RunTest):
    def configure(self):
        self.write("config.json", json.dumps({
            "model": {"dense_features": 3, "embedding_dim": DIM, "bottom_mlp": [8, DIM], "interaction": "cat", "top_mlp": [8, 1],
                      "tables": [{"name": n, "rows": rows, "hotness": hotness, "combiner": combiner}
                                 for n, rows, hotness, combiner in TABLES]},
            "optimizer": {"dense": {"name": "sgd", "learning_rate": 0.1}, "embedding": OPTIMIZERS["sgd"]},
            "train": {"batch_size": 37, "steps": 3},
            "data": {"format": "synthetic", "synthetic": {"batches": 3, "alpha": 1.05}},
            "eval": {"every_epoch": False}, "log": {"every_steps": 1, "progress": False}}))

    def settings(self, optimizer, deterministic, more, to):
        """Every other optimizer with the interaction that needs vectors whole."""
        words = ["optimizer.embedding=" + json.dumps(OPTIMIZERS[optimizer]).replace(" ", ""),
                 "model.interaction=" + ("dot" if list(OPTIMIZERS).index(optimizer) % 2 else "cat"),
                 "train.deterministic=" + str(deterministic).lower(), "log.jsonl=%s.jsonl" % to, "checkpoint.export=" + to]
        return " ".join(words + more)

    def result(self, to):
        return (fixture.read_safetensors(self.path(to)), [e["loss"] for e in fixture.events(self.path(to + ".jsonl"), "step")],
                fixture.events(self.path(to + ".jsonl"), "start")[0])

    def compare(self, what, deterministic, got, want):
        tables = [name for name in want[0] if name.startswith("table.")]
        self.assertEqual(len(tables), len(TABLES))
        self.assertEqual(len(got[1]), 3)
        for name in tables:
            a, b = got[0][name], want[0][name]
            if deterministic:
                self.assertEqual(a.tobytes(), b.tobytes(), "%s: %s" % (what, name))
            else:
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=2e-6, err_msg="%s: %s" % (what, name))
        if deterministic:
            self.assertEqual(got[1], want[1], what)
        else:
            np.testing.assert_allclose(got[1], want[1], rtol=1e-5, err_msg=what)

    def run_all(self, runs, direct="1"):
        os.environ["DLRM_DIRECT_EXCHANGE"] = direct
        self.addCleanup(os.environ.pop, "DLRM_DIRECT_EXCHANGE", None)
        for ranks, lines in runs.items():
            self.write("list.txt", "\n".join(lines) + "\n")
            done = self.run_trainer(ranks, "config.json", "list.txt", timeout=170)
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_rounded(self):
        """In deterministic mode vectors are rounded alike wherever they are made, though rows of a bag come from several ranks; tables of
        16 bits, too. Rows that are not floats of the vectors' type travel as fp32."""
        self.configure()
        types = list(itertools.product(["fp32", "bf16", "fp16"], ["bf16", "fp16"]))

        def settings(to, table, wire, words):
            return self.settings("adagrad", True, words + ["train.embedding_dtype=" + table, "train.exchange_dtype=" + wire], to)

        runs = {1: [settings("1_%s_%s" % t, *t, []) for t in types]}
        for ranks in [2, 3]:
            runs[ranks] = [settings("%d_%s_%s_%s" % (ranks, *t, p), *t, words) for t, (p, (words, _)) in itertools.product(types, PLACEMENTS.items())]
        self.run_all(runs)
        for t, p, ranks in itertools.product(types, PLACEMENTS, [2, 3]):
            what = "%d ranks, %s, tables %s, vectors %s" % (ranks, p, *t)
            self.compare(what, True, self.result("%d_%s_%s_%s" % (ranks, *t, p)), self.result("1_%s_%s" % t))

    def test_product(self):
        self.configure()
        modes = list(itertools.product(OPTIMIZERS, [True, False]))
        runs = {1: [self.settings(o, d, [], "1_%s_%d" % (o, d)) for o, d in modes]}
        for ranks in [2, 3, 4]:
            runs[ranks] = [self.settings(o, d, words, "%d_%s_%d_%s" % (ranks, o, d, p))
                           for (o, d), (p, (words, _)) in itertools.product(modes, PLACEMENTS.items())]
        self.run_all(runs)
        compared = 0
        for o, d in modes:
            want = self.result("1_%s_%d" % (o, d))
            self.assertNotEqual(want[1][0], want[1][-1])
            for ranks, (p, (_, lies)) in itertools.product([2, 3, 4], PLACEMENTS.items()):
                what = "%d ranks, %s, %s, deterministic %s" % (ranks, p, o, d)
                got = self.result("%d_%s_%d_%s" % (ranks, o, d, p))
                self.assertEqual(got[2]["exchange"], "direct")
                for (name, rows, _, _), owner in zip(TABLES, got[2]["table_owner"]):
                    self.assertTrue(lies(owner, rows), "%s: %s lies at %s" % (what, name, owner))
                self.compare(what, d, got, want)
                compared += 1
        self.assertEqual(compared, 5 * 2 * 6 * 3)

    def test_sent(self):
        """Vectors and gradients that travel by MPI, as between hosts: each placement with each optimizer and, in turn, with each number of
        ranks and type of vectors."""
        self.configure()
        types = ["fp32", "bf16", "fp16"]
        modes = [(o, d, wire) for o, d in itertools.product(OPTIMIZERS, [True, False]) for wire in (types if d else types[:1])]
        runs = {1: [self.settings(o, d, ["train.exchange_dtype=" + wire], "1_%s_%d_%s" % (o, d, wire)) for o, d, wire in modes], 2: [], 3: [], 4: []}
        sent = []
        for i, o in enumerate(OPTIMIZERS):
            for k, (p, (words, _)) in enumerate(PLACEMENTS.items()):
                for d in [True, False]:
                    ranks, wire = 2 + (i + k) % 3, types[(i + k // 3) % 3] if d else "fp32"
                    to = "%d_%s_%d_%s" % (ranks, o, d, p)
                    runs[ranks].append(self.settings(o, d, words + ["train.exchange_dtype=" + wire], to))
                    sent.append((to, d, "1_%s_%d_%s" % (o, d, wire)))
        self.run_all(runs, direct="0")
        for to, d, one in sent:
            got = self.result(to)
            self.assertEqual(got[2]["exchange"], "mpi")
            self.compare("sent, " + to, d, got, self.result(one))
        self.assertEqual(len(sent), 5 * 6 * 2)


if __name__ == "__main__":
    fixture.main()
