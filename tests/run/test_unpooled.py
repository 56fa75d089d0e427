#!/usr/bin/env python3
"""combiner: none. An unpooled feature of h ids is h features of one id that share its table: the same bits as those under every
optimizer, interaction and placement, on any number of ranks; the probabilities of a model in NumPy.

test_unpooled.py TRAINER Unpooled|OnGpus[.test]        OnGpus wants that many GPUs
"""
import os

import numpy as np

import fixture
from fixture import events

TABLES = {"user": (50, 4), "tags": (30, 4), "wide": (40, 6)}  # rows, width
# name, table, ids per sample, combiner
FEATURES = [("who", "user", 1, "sum"), ("tags", "tags", 3, "none"), ("friends", "user", 2, "none"), ("seen", "wide", 5, "sum"),
            ("last", "wide", 2, "none")]
OPTIMIZERS = ["{name: sgd, learning_rate: 0.3}", "{name: sgd, learning_rate: 0.2, momentum: 0.9}", "{name: adagrad, learning_rate: 0.1}",
              "{name: adam, learning_rate: 0.05}", "{name: rowwise_adagrad, learning_rate: 0.1}"]
PLACEMENTS = {"replicated": ["parallel.data_parallel_threshold=1000000"], "rows": ["parallel.row_slice_threshold=0"],
              "columns": ["parallel.column_slice_threshold=1"],
              "mixed": ["parallel.data_parallel_threshold=120", "parallel.row_slice_threshold=240", "parallel.column_slice_threshold=100"]}
INTERACTIONS = {"cat": [], "pool": ["model.interaction=pool", "model.pool_stride=3"],
                "dcn": ["model.interaction=dcn", "model.cross={layers: 2, rank: 3}"],
                "dot": ["model.interaction=dot", "model.tables.2.dim=4"]}  # of equal widths


def config(features, data):
    return """\
model:
  dense_features: 2
  embedding_dim: 4
  bottom_mlp: [4]
  interaction: cat
  top_mlp: [6, 1]
  tables: [{name: user, rows: 50}, {name: tags, rows: 30}, {name: wide, rows: 40, dim: 6}]
  features: [%s]
optimizer:
  dense: {name: sgd, learning_rate: 0.1}
  embedding: {name: adagrad, learning_rate: 0.1}
train: {batch_size: 16, epochs: 2}
data: %s
eval: {every_epoch: true}
log: {every_steps: 1, jsonl: run.jsonl}
""" % (", ".join("{table: %s, hotness: %d, combiner: %s}" % f for f in features), data)


def apart(feature):
    """The same as features that are pooled."""
    name, table, hotness, combiner = feature
    return [(table, 1, "sum")] * hotness if combiner == "none" else [(table, hotness, combiner)]


class Runs(fixture.RunTest):
    def setUp(self):
        super().setUp()
        r = np.random.default_rng(5)
        self.dense, self.labels, self.ids = {}, {}, {}
        for split, n in (("train", 60), ("test", 40)):  # the last batch is short
            self.dense[split] = r.normal(size=(n, 2)).astype("<f4")
            self.labels[split] = r.integers(0, 2, n).astype(np.uint8)
            self.ids[split] = [r.integers(0, TABLES[table][0], (n, hotness)) for _, table, hotness, _ in FEATURES]
        columns = {f[0]: (TABLES[f[1]][0], f[2], {s: self.ids[s][k] for s in self.ids}) for k, f in enumerate(FEATURES)}
        self.write_data("data", columns)
        self.write("config.yaml", config([f[1:] for f in FEATURES], "{format: split_binary, path: data}"))
        single = {}
        for k, (name, table, hotness, combiner) in enumerate(FEATURES):
            parts = range(hotness) if combiner == "none" else [slice(None)]
            for i, part in enumerate(parts):
                width = 1 if combiner == "none" else hotness
                ids = {s: self.ids[s][k][:, part].reshape(-1, width) for s in self.ids}
                single["%s_%d" % (name, i)] = (TABLES[table][0], width, ids)
        self.write_data("apart", single)
        self.write("apart.yaml", config([x for f in FEATURES for x in apart(f)], "{format: split_binary, path: apart}"))

    def write_data(self, folder, columns):
        """columns: name: (cardinality, ids per row, split: ids)."""
        y = ["channel_spec: {categorical: [%s], label: [y], numerical: [a, b]}" % ", ".join(columns), "feature_spec:",
             "  y: {dtype: bool}", "  a: {dtype: float32}", "  b: {dtype: float32}"]
        y += ["  %s: {cardinality: %d, dtype: int32, hotness: %d}" % (name, rows, hotness) for name, (rows, hotness, _) in columns.items()]
        y += ["metadata: {}", "source_spec:"]
        for split in self.ids:
            os.makedirs(self.path(folder, split))
            self.dense[split].tofile(self.path(folder, split, "dense.bin"))
            self.labels[split].tofile(self.path(folder, split, "y.bin"))
            y += ["  %s:" % split, "    - {type: split_binary, features: [a, b], files: [%s/dense.bin]}" % split,
                  "    - {type: split_binary, features: [y], files: [%s/y.bin]}" % split]
            for name, (_, _, ids) in columns.items():
                ids[split].astype("<i4").tofile(self.path(folder, split, name + ".bin"))
                y.append("    - {type: split_binary, features: [%s], files: [%s/%s.bin]}" % (name, split, name))
        self.write(os.path.join(folder, "feature_spec.yaml"), "\n".join(y) + "\n")

    def outcome(self, ranks, *args):
        """What a run logged, and the bytes of its export."""
        self.succeed(ranks, *args, "checkpoint.export=out")
        log = [(e["event"], e["step"], e["loss"], e.get("auc")) for e in events(self.path("run.jsonl")) if e["event"] in ("step", "eval")]
        return log, self.file_bytes("out", "model.safetensors")

    def same_bits(self, ranks, *more):
        """As features of one id, under each optimizer; again on these numbers of ranks, each under another placement."""
        kinds, names = ("cat", "pool", "dcn", "dot", "dot"), list(PLACEMENTS)
        for k, optimizer in enumerate(OPTIMIZERS):
            args = ["train.deterministic=true", "optimizer.embedding=" + optimizer, *more] + INTERACTIONS[kinds[k]]
            one = self.outcome(1, "apart.yaml", *args)
            self.assertEqual(self.outcome(1, "config.yaml", *args), one, optimizer)
            for n in ranks:
                name = names[(k + n) % len(names)]
                forced = [x for x in PLACEMENTS[name] if "rowwise" not in optimizer or "column" not in x]
                self.assertEqual(self.outcome(n, "config.yaml", *args, *forced), one, "%s, %s, %d ranks" % (optimizer, name, n))


class Unpooled(Runs):
    def test_bits(self):
        self.same_bits((2, 3))

    def test_probabilities(self):
        """Of every interaction, against vectors put together in NumPy."""
        for kind in ("cat", "dot", "pool"):
            args = ["config.yaml"] + INTERACTIONS[kind]
            self.succeed(2, *args, "checkpoint.export=out", "train.steps=3")
            self.succeed(1, *args, "checkpoint.init_from=out", "--predict", "p.npy")
            w = {name: value.astype(np.float64) for name, value in self.weights("out").items()}
            bottom = np.maximum(self.dense["test"] @ w["bottom.0.weight"].T + w["bottom.0.bias"], 0)
            vectors = []
            for (_, table, _, combiner), ids in zip(FEATURES, self.ids["test"]):
                rows = w["table.%s.weight" % table][ids]  # [n, ids, width]
                vectors += [rows[:, k] for k in range(rows.shape[1])] if combiner == "none" else [rows.sum(1)]
            if kind == "dot":
                all_vectors = [bottom] + vectors
                x = [bottom] + [(all_vectors[i] * all_vectors[j]).sum(1, keepdims=True) for i in range(len(all_vectors)) for j in range(i)]
            elif kind == "cat":
                x = [bottom] + vectors
            else:
                row = np.concatenate(vectors, axis=1)
                n = -(-row.shape[1] // 3)
                first = np.arange(n) * 3 - (n * 3 - row.shape[1]) // 2
                x = [np.stack([row[:, max(k, 0):k + 3].mean(1) for k in first], axis=1), bottom]
            h = np.maximum(np.concatenate(x, axis=1) @ w["top.0.weight"].T + w["top.0.bias"], 0)
            z = (h @ w["top.1.weight"].T + w["top.1.bias"])[:, 0]
            self.assertLess(np.abs(np.load(self.path("p.npy")) - 1 / (1 + np.exp(-z))).max(), 1e-6, kind)

    def test_default_mode(self):
        """Every placement, within rounding of the features of one id; the same bits again."""
        for k, (name, forced) in enumerate(PLACEMENTS.items()):
            args = ["optimizer.embedding=" + OPTIMIZERS[(k + 1) % 4]]
            self.succeed(1, "apart.yaml", *args, "checkpoint.export=want")
            got = self.outcome(2 + k % 2, "config.yaml", *args, *forced)
            weights = self.weights("out")
            for key, value in self.weights("want").items():
                self.assertLess(np.abs(weights[key] - value).max(), 2e-5, "%s, %s" % (name, key))
            self.assertEqual(self.outcome(2 + k % 2, "config.yaml", *args, *forced), got, name)

    def test_narrow(self):
        """Rounded for the exchange and in the tables. Cut by rows an unpooled id's vector is a row and zeros, which bf16 will do for; the
        rows of a sum beside it travel as fp32."""
        args = ["train.deterministic=true", "train.exchange_dtype=bf16", "train.embedding_dtype=fp16"] + INTERACTIONS["dot"]
        one = self.outcome(1, "apart.yaml", *args)
        placement = ["parallel.row_slice_threshold=200", "parallel.column_slice_threshold=150"]  # user; wide
        for ranks in (2, 3):
            self.assertEqual(self.outcome(ranks, "config.yaml", *args, *placement), one)
        self.assertEqual(self.outcome(2, "config.yaml", *args, "parallel.row_slice_threshold=150"), one)  # wide, too

    def test_variable(self):
        self.refuse(1, 1, r"model\.features\.1\.combiner: found none, but feature tags has a variable number of ids, up to 3",
                    "config.yaml", "data={format: synthetic, synthetic: {batches: 1}}", "model.features.1.hotness={max: 3}")


class OnGpus(Runs):
    def test_one_gpu(self):
        self.same_bits((), "device=cuda")

    def test_two_gpus(self):
        self.same_bits((2,), "device=cuda")


if __name__ == "__main__":
    fixture.main()
