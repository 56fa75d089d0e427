"""Rows in the formats that hold all features of a row together, written by NumPy alone, and the same rows as split-binary files."""
import os

import numpy as np

import fixture

DENSE = 3
# table, its rows (ids of 1, 2 and 3 bytes), ids per sample in the multi-hot sets
FEATURES = [("user", 50, 2), ("item", 3000, 1), ("page", 70000, 3), ("user", 50, 1)]

CONFIG = """\
model:
  dense_features: 3
  embedding_dim: 4
  bottom_mlp: [8, 4]
  interaction: dot
  top_mlp: [6, 1]
  tables: [{name: user, rows: 50}, {name: item, rows: 3000}, {name: page, rows: 70000}]
  features: [%s]
optimizer:
  dense: {name: adagrad, learning_rate: 0.05}
  embedding: {name: adagrad, learning_rate: 0.1}
train: {batch_size: 16, deterministic: true}
data: {format: split_binary, path: data}
log: {every_steps: 1, jsonl: run.jsonl}
"""


def config(multi_hot=False):
    return CONFIG % ", ".join("{table: %s, hotness: %d}" % (name, hotness if multi_hot else 1) for name, _, hotness in FEATURES)


class Rows:
    """counts [n, 3] int32 from 0; labels [n]; ids: for each feature [n, hotness]. dense: ln(counts + 1), rounded once."""

    def __init__(self, n, seed, multi_hot=False):
        r = np.random.default_rng(seed)
        self.n = n
        self.counts = np.floor(np.exp(r.uniform(0, 12, (n, DENSE)))).astype("<i4") - 1
        self.labels = r.integers(0, 2, n).astype("<i4")
        self.ids = [r.integers(0, rows, (n, hotness if multi_hot else 1)).astype("<i8") for _, rows, hotness in FEATURES]

    @property
    def dense(self):
        return np.log(self.counts.astype(np.float64) + 1).astype("<f4")

    def part(self, begin, end):
        p = Rows(0, 0)
        p.n, p.counts, p.labels, p.ids = end - begin, self.counts[begin:end], self.labels[begin:end], [i[begin:end] for i in self.ids]
        return p


def join(*parts):
    p = Rows(0, 0)
    p.n, p.counts, p.labels = sum(x.n for x in parts), np.concatenate([x.counts for x in parts]), np.concatenate([x.labels for x in parts])
    p.ids = [np.concatenate(i) for i in zip(*[x.ids for x in parts])]
    return p


def write_split_binary(folder, train, test):
    names = ["d%d" % k for k in range(DENSE)]
    y = ["channel_spec:", "  categorical: [%s]" % ", ".join("c%d" % j for j in range(len(FEATURES))), "  label: [label]",
         "  numerical: [%s]" % ", ".join(names), "feature_spec:", "  label: {dtype: bool}"]
    y += ["  %s: {dtype: float32}" % name for name in names]
    y += ["  c%d: {cardinality: %d, dtype: int32, hotness: %d}" % (j, rows, train.ids[j].shape[1]) for j, (_, rows, _) in enumerate(FEATURES)]
    y += ["metadata: {}", "source_spec:"]
    for split, rows in (("train", train), ("test", test)):
        os.makedirs(os.path.join(folder, split), exist_ok=True)
        rows.dense.tofile(os.path.join(folder, split, "dense.bin"))
        rows.labels.astype("i1").tofile(os.path.join(folder, split, "label.bin"))
        y += ["  %s:" % split, "    - {type: split_binary, features: [%s], files: [%s/dense.bin]}" % (", ".join(names), split),
              "    - {type: split_binary, features: [label], files: [%s/label.bin]}" % split]
        for j, ids in enumerate(rows.ids):
            ids.astype("<i4").tofile(os.path.join(folder, split, "c%d.bin" % j))
            y.append("    - {type: split_binary, features: [c%d], files: [%s/c%d.bin]}" % (j, split, j))
    with open(os.path.join(folder, "feature_spec.yaml"), "w") as f:
        f.write("\n".join(y) + "\n")


def records(rows, float_dense=False, float_labels=False):
    """[n, words] of 4 bytes: label, dense, ids of all features."""
    label = rows.labels.astype("<f4").view("<i4") if float_labels else rows.labels.astype("<i4")
    dense = rows.dense.view("<i4") if float_dense else rows.counts
    ids = np.concatenate(rows.ids, axis=1)
    return np.concatenate([label[:, None], dense, (ids & 0xFFFFFFFF).astype("<u4").view("<i4")], axis=1)


def write_records(path, rows, **kind):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    records(rows, **kind).tofile(path)


def write_day(folder, day, rows, ids="<i4"):
    """torchrec's three arrays; with bags, an archive of one array for each feature."""
    os.makedirs(folder, exist_ok=True)
    np.save(os.path.join(folder, "%s_labels.npy" % day), rows.labels.astype("<i4")[:, None])
    np.save(os.path.join(folder, "%s_dense.npy" % day), rows.dense)
    if all(i.shape[1] == 1 for i in rows.ids):
        np.save(os.path.join(folder, "%s_sparse.npy" % day), np.concatenate(rows.ids, axis=1).astype(ids))
    else:
        write_archive(folder, day, rows, ids)


def write_archive(folder, day, rows, ids="<i4", save=np.savez):
    save(os.path.join(folder, "%s_sparse_multi_hot.npz" % day), **{str(j): i.astype(ids) for j, i in enumerate(rows.ids)})


class RowTest(fixture.RunTest):
    def make(self, train=120, test=70, multi_hot=False):
        """The same rows as split-binary files in data/, and a config for them."""
        self.write("config.yaml", config(multi_hot))
        rows = Rows(train, 1, multi_hot), Rows(test, 2, multi_hot)
        write_split_binary(self.path("data"), *rows)
        return rows

    def outcome(self, ranks, *more):
        """What a run leaves: its losses, its evaluations, its weights byte by byte."""
        self.succeed(ranks, "config.yaml", "train.epochs=2", "checkpoint.export=out", *more)
        seen = fixture.events(self.path("run.jsonl"))
        return ([e["loss"] for e in seen if e["event"] == "step"], [(e["auc"], e["loss"]) for e in seen if e["event"] == "eval"],
                self.file_bytes("out", "model.safetensors"))
