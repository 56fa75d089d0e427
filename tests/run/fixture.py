"""What the tests of whole runs share: a small model, its rows as split-binary files, its forward pass in NumPy, and a test case
that starts the trainer in a folder of its own.

A test file ends with fixture.main(), and is started as  test_X.py TRAINER [unittest's arguments].
"""
import json
import os
import re
import sys
import tempfile
import unittest

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden"))
from as_run import read_safetensors, write_safetensors  # noqa: E402,F401
import launch  # noqa: E402

# A build with sanitizers runs the same code, slower: there a test leaves out combinations that differ only in numbers.
SANITIZED = os.environ.get("DLRM_SANITIZED") == "1"

DENSE, DIM = 3, 4
TABLES = {"user": 50, "tags": 30, "history": 40}
# name of the feature, its table, ids per sample (negative: up to so many), the combiner, its dtype on disk
FEATURES = [("user", "user", 1, "sum", "int8"), ("tags", "tags", 3, "mean", "int16"),
            ("history", "history", -5, "sum", "int32"), ("friend", "user", 2, "sum", "int64")]

CONFIG = """\
model:
  dense_features: 3
  embedding_dim: 4
  bottom_mlp: [8, 4]
  interaction: dot
  top_mlp: [6, 1]
  tables:
    - {name: user, rows: 50}
    - {name: tags, rows: 30, combiner: mean}
    - {name: history, rows: 40}
  features: [user, tags, history, user]
optimizer:
  dense: {name: adagrad, learning_rate: 0.05}
  embedding: {name: adagrad, learning_rate: 0.1}
train: {batch_size: 16}
data: {format: split_binary, path: data}
log: {every_steps: 1, jsonl: run.jsonl}
"""

# Made up as it trains, and long enough to be disturbed.
SYNTHETIC = """\
model:
  dense_features: 3
  embedding_dim: 8
  bottom_mlp: [8]
  interaction: dot
  top_mlp: [8, 1]
  tables:
    - {count: 4, rows: 500}
optimizer:
  dense: {name: sgd, learning_rate: 0.01}
  embedding: {name: sgd, learning_rate: 0.01}
train: {batch_size: 48}
data: {format: synthetic, synthetic: {batches: 5}}
eval: {every_epoch: false}
log: {every_steps: 1, jsonl: run.jsonl}
"""


class Rows:
    """Rows of one split: dense [n, 3], labels [n], and for each feature its ids with offsets [n+1]."""

    def __init__(self, n, seed):
        r = np.random.default_rng(seed)
        self.n = n
        self.dense = r.normal(size=(n, DENSE)).astype("<f4")
        self.labels = r.integers(0, 2, n).astype(np.uint8)
        self.ids, self.offsets = [], []
        for _, table, hotness, _, dtype in FEATURES:
            lengths = r.integers(0, 1 - hotness, n) if hotness < 0 else np.full(n, hotness)
            self.offsets.append(np.concatenate([[0], np.cumsum(lengths)]).astype("<i8"))
            self.ids.append(r.integers(0, TABLES[table], self.offsets[-1][-1]).astype(dtype))

    def write(self, folder):
        os.makedirs(folder, exist_ok=True)
        self.dense.tofile(os.path.join(folder, "dense.bin"))
        self.labels.tofile(os.path.join(folder, "label.bin"))
        for (name, _, hotness, _, _), ids, offsets in zip(FEATURES, self.ids, self.offsets):
            ids.tofile(os.path.join(folder, name + ".bin"))
            if hotness < 0:
                offsets.tofile(os.path.join(folder, name + ".offsets.bin"))

    def first(self, n):
        """The first n rows."""
        part = Rows(0, 0)
        part.n, part.dense, part.labels, part.offsets = n, self.dense[:n], self.labels[:n], [o[:n + 1] for o in self.offsets]
        part.ids = [ids[:o[n]] for ids, o in zip(self.ids, self.offsets)]
        return part


def write_spec(folder, splits=("train", "test")):
    names = ["d%d" % k for k in range(DENSE)]
    y = ["channel_spec:", "  categorical: [%s]" % ", ".join(f[0] for f in FEATURES), "  label: [label]",
         "  numerical: [%s]" % ", ".join(names), "feature_spec:", "  label: {dtype: bool}"]
    y += ["  %s: {dtype: float32}" % name for name in names]
    for name, table, hotness, _, dtype in FEATURES:
        y.append("  %s: {cardinality: %d, dtype: %s, %s: %d}" %
                 (name, TABLES[table], dtype, "max_hotness" if hotness < 0 else "hotness", abs(hotness)))
    y += ["metadata: {}", "source_spec:"]
    for split in splits:
        chunks = [(names, ["dense.bin"]), (["label"], ["label.bin"])]
        chunks += [([f[0]], [f[0] + ".bin"] + ([f[0] + ".offsets.bin"] if f[2] < 0 else [])) for f in FEATURES]
        y.append("  %s:" % split)
        y += ["    - {type: split_binary, features: [%s], files: [%s]}" %
              (", ".join(features), ", ".join("%s/%s" % (split, name) for name in files)) for features, files in chunks]
    with open(os.path.join(folder, "feature_spec.yaml"), "w") as f:
        f.write("\n".join(y) + "\n")


def probabilities(weights, rows, interaction="dot"):
    """The model of CONFIG forward, in double."""
    w = {name: value.astype(np.float64) for name, value in weights.items()}

    def layers(stack, x, last_relu):
        n = sum(name.startswith(stack) and name.endswith("weight") for name in w)
        for k in range(n):
            x = x @ w["%s.%d.weight" % (stack, k)].T + w["%s.%d.bias" % (stack, k)]
            x = np.maximum(x, 0) if k < n - 1 or last_relu else x
        return x

    vectors = [layers("bottom", rows.dense.astype(np.float64), True)]
    for (_, table, _, combiner, _), ids, offsets in zip(FEATURES, rows.ids, rows.offsets):
        pooled = np.zeros((rows.n, DIM))
        lengths = np.diff(offsets)
        np.add.at(pooled, np.repeat(np.arange(rows.n), lengths), w["table.%s.weight" % table][ids.astype(np.int64)])
        vectors.append(pooled / np.maximum(lengths, 1)[:, None] if combiner == "mean" else pooled)
    if interaction == "dot":
        x = [vectors[0]] + [(vectors[i] * vectors[j]).sum(1, keepdims=True) for i in range(len(vectors)) for j in range(i)]
    else:
        x = vectors
    return 1 / (1 + np.exp(-layers("top", np.concatenate(x, axis=1), False)[:, 0]))


def auc(p, labels):
    """Exact, ties counted half."""
    order = np.argsort(p, kind="stable")
    _, where, counts = np.unique(p[order], return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[where]
    positive = labels[order] == 1
    n1 = int(positive.sum())
    return (ranks[positive].sum() - n1 * (n1 + 1) / 2) / (n1 * (len(p) - n1))


def events(path, kind=None):
    with open(path) as f:
        return [e for e in map(json.loads, f) if kind in (None, e["event"])]


def rank_processes(root):
    """Rank: process id, of all descendants of a process that carry a rank's environment."""
    parents = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/stat" % name) as f:
                parents[int(name)] = int(f.read().rsplit(")", 1)[1].split()[1])
        except OSError:
            pass  # it has ended
    found = {}
    for pid in parents:
        above = pid
        while above in parents and above != root:
            above = parents[above]
        if above == root and pid != root:
            try:
                with open("/proc/%d/environ" % pid, "rb") as f:
                    rank = re.search(rb"(?:^|\0)OMPI_COMM_WORLD_RANK=(\d+)", f.read())
            except OSError:
                continue
            if rank:
                found[int(rank.group(1))] = pid
    return found


class RunTest(unittest.TestCase):
    """Each test has a new folder, self.folder, which its runs start in."""
    trainer = None

    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="dlrm_run_")
        self.addCleanup(temporary.cleanup)
        self.folder = temporary.name

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def write(self, name, text):
        with open(self.path(name), "w") as f:
            f.write(text)

    def make_data(self, train=120, test=70, seed=1):
        """data/ and config.yaml; the rows of both splits."""
        rows = {"train": Rows(train, seed), "test": Rows(test, seed + 1)}
        os.makedirs(self.path("data"), exist_ok=True)
        for split, r in rows.items():
            r.write(self.path("data", split))
        write_spec(self.path("data"))
        self.write("config.yaml", CONFIG)
        return rows

    def run_trainer(self, ranks, *args, timeout=launch.PATIENCE):
        return launch.train(self.trainer, ranks, list(args), self.folder, timeout=timeout)

    def succeed(self, ranks, *args):
        done = self.run_trainer(ranks, *args)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done

    def refuse(self, ranks, code, pattern, *args):
        """Fails with this exit code and exactly one line on stderr that has the pattern."""
        done = self.run_trainer(ranks, *args)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.one_message(done.stderr, pattern)
        return done

    def one_message(self, stderr, pattern):
        lines = [line for line in stderr.splitlines() if re.search(pattern, line)]
        self.assertEqual(len(lines), 1, "expected one line with '%s':\n%s" % (pattern, stderr))

    def weights(self, name):
        return read_safetensors(self.path(name))

    def file_bytes(self, *names):
        with open(self.path(*names), "rb") as f:
            return f.read()


def main():
    if len(sys.argv) < 2:
        sys.exit("usage: %s TRAINER [unittest's arguments]" % sys.argv[0])
    RunTest.trainer = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
