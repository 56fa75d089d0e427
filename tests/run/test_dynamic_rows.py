#!/usr/bin/env python3
"""Tables with `rows: dynamic`: which key gets which row, step by step, as a model of the rules in plain Python has it; the training
itself, bit by bit, as that of tables whose ids are rows, made from that model; any number of ranks, checkpoints, exports, formats."""
import collections
import os

import numpy as np

import fixture
from fixture import events, write_safetensors
from test_checkpoints import read_checkpoint

CAPACITY, ADMISSION, BATCH = 12, (1, 3), 16
NAMES = ["%s%d" % (evict, admission) for evict in ("none", "lru", "lfu") for admission in ADMISSION]
# Of each table: its features' hotness (negative: up to so many), combiner and dtype.
FEATURES = [(2, "sum", "int64"), (-4, "mean", "int64"), (1, "sum", "int8")]
DETERMINISTIC = "train.deterministic=true"
ADAGRAD = "optimizer.embedding={name: adagrad, learning_rate: 0.1, initial_accumulator: 0.1}"
ADAM = "optimizer.embedding={name: adam, learning_rate: 0.01}"


class Vocabulary:
    """The rules: docs/embeddings.md. entry of a key: [row, count, last use]."""

    def __init__(self, evict, admission, capacity=CAPACITY):
        self.evict, self.admission, self.capacity = evict, admission, capacity
        self.known, self.candidates, self.order = {}, {}, collections.deque()  # order: of the ring's places, None where left
        self.step = self.ids = self.unknown = self.evicted = 0
        self.generations = []  # row that each generation has; ids of the twin count them from 1
        self.now = {}          # row: its generation

    def use(self, key):
        entry = self.known[key]
        entry[1] += 1
        entry[2] = self.step
        return entry[0]

    def take_row(self):
        if len(self.known) < self.capacity:
            return len(self.known) + 1
        idle = [(e[1] if self.evict == "lfu" else 0, e[2], e[0], key) for key, e in self.known.items() if e[2] < self.step]
        if self.evict == "none" or not idle:
            return 0
        _, _, row, key = min(idle)
        del self.known[key]
        self.evicted += 1
        return row

    def meet(self, key):
        if key in self.known:
            return self.use(key)
        if self.evict == "none" and len(self.known) == self.capacity:
            return 0
        count = 1
        if self.admission > 1:
            if key not in self.candidates:
                if len(self.order) == self.capacity:
                    self.candidates.pop(self.order.popleft(), None)
                self.order.append(key)
                self.candidates[key] = 0
            count = self.candidates[key] = self.candidates[key] + 1
            if count < self.admission:
                return 0
        row = self.take_row()
        if row:
            if self.admission > 1:
                del self.candidates[key]
                self.order[self.order.index(key)] = None
            self.known[key] = [row, count, self.step]
            self.generations.append(row)
            self.now[row] = len(self.generations)
        return row

    def learn(self, inputs):
        """Lists of keys, input by input; the twin's ids in their place."""
        self.step += 1
        rows = [[self.use(key) if key in self.known else None for key in keys] for keys in inputs]
        for keys, out in zip(inputs, rows):
            for i, key in enumerate(keys):
                if out[i] is None:
                    out[i] = self.meet(key)
                    self.unknown += out[i] == 0
            self.ids += len(keys)
        return [[self.now.get(row, 0) for row in out] for out in rows]

    def translate(self, keys):
        return [self.now[self.known[key][0]] if key in self.known else 0 for key in keys]

    def arrays(self):
        keys, counts, last = (np.zeros(self.capacity + 1, t) for t in ("<i8", "<u4", "<u4"))
        for key, (row, count, used) in self.known.items():
            keys[row], counts[row], last[row] = key, count, used
        return keys, counts, last


class Keys:
    """Rows of one split: dense [n, 3], labels [n]; keys[table][feature] and offsets. A few keys often, many seldom."""

    def __init__(self, n, seed, span=60):
        r = np.random.default_rng(seed)
        self.n = n
        self.dense = r.normal(size=(n, 3)).astype("<f4")
        self.labels = r.integers(0, 2, n).astype(np.uint8)
        some = np.concatenate([np.random.default_rng(9).integers(-2**63, 2**63, span - 10, dtype=np.int64), [-2**63, 2**63 - 1, 0, -1, 2**32, 1, 2, 3, 4, 5]])
        self.keys, self.offsets = {}, {}
        for name in NAMES:
            self.keys[name], self.offsets[name] = [], []
            for hotness, _, dtype in FEATURES:
                lengths = r.integers(0, 1 - hotness, n) if hotness < 0 else np.full(n, hotness)
                offsets = np.concatenate([[0], np.cumsum(lengths)]).astype("<i8")
                picked = (span * r.random(offsets[-1]) ** 3).astype(int)
                keys = some[picked] if dtype == "int64" else picked - 30
                self.keys[name].append(keys.astype(dtype))
                self.offsets[name].append(offsets)

    def bags(self, name, k, first, end):
        o = self.offsets[name][k]
        return self.keys[name][k][o[first]:o[end]].astype(int).tolist()


def write_data(folder, splits, cardinality, dtype_of=lambda dtype: dtype):
    """split_binary; `splits`: {name: (Keys, {table: [ids]})}."""
    features = ["%s_%d" % (name, k) for name in NAMES for k in range(len(FEATURES))]
    y = ["channel_spec:", "  categorical: [%s]" % ", ".join(features), "  label: [label]", "  numerical: [d0, d1, d2]",
         "feature_spec:", "  label: {dtype: bool}"] + ["  d%d: {dtype: float32}" % k for k in range(3)]
    for name in NAMES:
        for k, (hotness, _, dtype) in enumerate(FEATURES):
            y.append("  %s_%d: {cardinality: %d, dtype: %s, %s: %d}" % (name, k, cardinality, dtype_of(dtype), "max_hotness" if hotness < 0 else "hotness",
                                                                       abs(hotness)))
    y += ["metadata: {}", "source_spec:"]
    for split, (rows, ids) in splits.items():
        os.makedirs(os.path.join(folder, split), exist_ok=True)
        rows.dense.tofile(os.path.join(folder, split, "dense.bin"))
        rows.labels.tofile(os.path.join(folder, split, "label.bin"))
        y += ["  %s:" % split, "    - {type: split_binary, features: [d0, d1, d2], files: [%s/dense.bin]}" % split,
              "    - {type: split_binary, features: [label], files: [%s/label.bin]}" % split]
        for name in NAMES:
            for k, (hotness, _, dtype) in enumerate(FEATURES):
                path = "%s/%s_%d" % (split, name, k)
                np.asarray(ids[name][k]).astype(dtype_of(dtype)).tofile(os.path.join(folder, path))
                if hotness < 0:
                    rows.offsets[name][k].tofile(os.path.join(folder, path + ".offsets"))
                y.append("    - {type: split_binary, features: [%s_%d], files: [%s%s]}" % (name, k, path, ", %s.offsets" % path if hotness < 0 else ""))
    with open(os.path.join(folder, "feature_spec.yaml"), "w") as f:
        f.write("\n".join(y) + "\n")


def config(rows):
    """rows: a table's name to what stands for its rows."""
    features = ["{table: %s, combiner: %s}" % (name, combiner) for name in NAMES for _, combiner, _ in FEATURES]
    return """\
model:
  dense_features: 3
  embedding_dim: 4
  bottom_mlp: [8, 4]
  interaction: cat
  top_mlp: [6, 1]
  tables:
%s
  features: [%s]
optimizer:
  dense: {name: adagrad, learning_rate: 0.05}
  embedding: {name: adagrad, learning_rate: 0.1, initial_accumulator: 0.1}
train: {batch_size: %d, deterministic: true}
data: {format: split_binary, path: data}
log: {every_steps: 1, jsonl: run.jsonl}
""" % ("\n".join("    - {name: %s, %s}" % (name, rows(name)) for name in NAMES), ", ".join(features), BATCH)


def dynamic(name):
    return "rows: dynamic, capacity: %d, evict: %s, admission: %s" % (CAPACITY, name[:-1], name[-1])


class DynamicTest(fixture.RunTest):
    def make(self, train=300, test=70):
        self.rows = {"train": Keys(train, 1), "test": Keys(test, 2, span=80)}
        os.makedirs(self.path("data"))
        write_data(self.path("data"), {split: (r, r.keys) for split, r in self.rows.items()}, 1000)
        self.write("config.yaml", config(dynamic))

    def learn(self, steps=None):
        """The model of the rules over the training split: the vocabularies, and the twin's ids."""
        rows, ids = self.rows["train"], {}
        vocabularies = {name: Vocabulary(name[:-1], int(name[-1])) for name in NAMES}
        self.counts = []
        for name, v in vocabularies.items():
            ids[name] = [[] for _ in FEATURES]
            for first in list(range(0, rows.n, BATCH))[:steps]:
                end = min(first + BATCH, rows.n)
                before = v.ids, v.unknown, v.evicted
                for k, part in enumerate(v.learn([rows.bags(name, k, first, end) for k in range(len(FEATURES))])):
                    ids[name][k] += part
                self.counts.append((v.step, name, len(v.known), v.ids - before[0], v.unknown - before[1], v.evicted - before[2]))
        return vocabularies, ids

    def check_vocabularies(self, weights, vocabularies):
        for name, v in vocabularies.items():
            keys, counts, _ = v.arrays()
            np.testing.assert_array_equal(weights["table.%s.keys" % name], keys, name)
            np.testing.assert_array_equal(weights["table.%s.counts" % name], counts, name)

    def export(self, name):
        return self.file_bytes(name, "model.safetensors")


class Twin(DynamicTest):
    def check_twin(self, optimizer, *args):
        """A table whose ids are rows has one row for each time that a key got a row, with the weights that this row began with."""
        self.make()
        vocabularies, ids = self.learn()
        still = [optimizer.replace("0.1", "0", 1) if "0.1," in optimizer else optimizer.replace("0.01", "0"), "optimizer.dense.learning_rate=0"]
        self.succeed(1, "config.yaml", "train.steps=1", "checkpoint.export=initial", "eval.every_epoch=false", *still, *args)
        begin = self.weights("initial")
        self.succeed(1, "config.yaml", "checkpoint.export=out", optimizer, *args)
        seen, out = events(self.path("run.jsonl")), self.weights("out")

        twin = {name: value for name, value in begin.items() if not name.endswith((".keys", ".counts"))}
        for name, v in vocabularies.items():
            twin["table.%s.weight" % name] = begin["table.%s.weight" % name][[0] + v.generations]
        os.makedirs(self.path("twin"))
        write_safetensors(self.path("twin", "model.safetensors"), twin)
        tested = {name: [v.translate(keys.astype(int).tolist()) for keys in self.rows["test"].keys[name]] for name, v in vocabularies.items()}
        write_data(self.path("twin"), {"train": (self.rows["train"], ids), "test": (self.rows["test"], tested)}, 1, lambda _: "int32")
        self.write("twin.yaml", config(lambda name: "rows: %d" % (1 + len(vocabularies[name].generations))))
        self.succeed(1, "twin.yaml", "data.path=twin", "checkpoint.init_from=twin", "checkpoint.export=twin_out", "log.jsonl=twin.jsonl", optimizer, *args)

        for kind, keys in (("step", ("loss", "step")), ("eval", ("auc", "loss", "samples"))):
            both = [[[e[k] for k in keys] for e in log if e["event"] == kind] for log in (seen, events(self.path("twin.jsonl")))]
            self.assertEqual(*both)
        weights = self.weights("twin_out")
        for name, v in vocabularies.items():
            got, want = out["table.%s.weight" % name], weights["table.%s.weight" % name]
            np.testing.assert_array_equal(got[0], want[0], name)
            for row, generation in v.now.items():
                np.testing.assert_array_equal(got[row], want[generation], "%s, row %d" % (name, row))
        for name in ("bottom.0.weight", "top.1.bias"):
            np.testing.assert_array_equal(out[name], weights[name])
        evaluated = [e for e in seen if e["event"] == "eval"]
        everything = [i for parts in tested.values() for part in parts for i in part]
        self.assertAlmostEqual(evaluated[-1]["out_of_vocabulary"], everything.count(0) / len(everything), 8)


class Rules(Twin):
    def test_log_and_export(self):
        """Keys, counts and what the log says of each step; the same bits whatever is logged and evaluated when, on any number of ranks."""
        self.make()
        vocabularies, _ = self.learn()
        for v in vocabularies.values():  # the data reach every rule
            self.assertGreater(v.unknown, 30 if v.admission > 1 or v.evict == "none" else -1)
            self.assertEqual(v.evicted > 5, v.evict != "none")
        self.succeed(1, "config.yaml", "checkpoint.export=out", "eval.every_epoch=false")
        self.check_vocabularies(self.weights("out"), vocabularies)
        log = events(self.path("run.jsonl"))
        self.assertEqual([(t["table"], t["capacity"], t["evict"], t["admission"], t["keys"]) for t in log[0]["vocabularies"]],
                         [(name, CAPACITY, name[:-1], int(name[-1]), 0) for name in NAMES])
        told = {(e["step"], t["table"]): t for e in log if e["event"] == "step" for t in e["vocabularies"]}
        for step, name, keys, ids, unknown, evicted in self.counts:
            t = told.pop((step, name))
            self.assertEqual((t["keys"], t["ids"], t["evicted"]), (keys, ids, evicted), (step, name))
            self.assertAlmostEqual(t["out_of_vocabulary"], unknown / ids, 8)
        self.assertEqual(told, {})
        for t in log[-1]["vocabularies"]:
            v = vocabularies[t["table"]]
            self.assertEqual((t["keys"], t["ids"], t["evicted"]), (len(v.known), v.ids, v.evicted))
            self.assertAlmostEqual(t["out_of_vocabulary"], v.unknown / v.ids, 8)
        for ranks, more in ((1, ["log.every_steps=0", "eval.every_steps=5"]), (2, ["log.every_steps=7"]), (3, ["eval.every_steps=3", "log.every_steps=2"]),
                            (4, ["parallel.column_slice_threshold=20", "log.every_steps=0"])):
            done = self.succeed(ranks, "config.yaml", "checkpoint.export=more", *more)
            self.assertEqual(self.export("more"), self.export("out"), (ranks, more))
        self.assertRegex(done.stdout, r"evaluation after step 19 .* \| \d+\.\d+ % of ids out of vocabulary")
        self.assertRegex(done.stdout, r"vocabularies: 72 keys, \d+\.\d+ % of ids out of vocabulary, \d+ evicted")

    def test_twin_adagrad(self):
        self.check_twin(ADAGRAD)

    def test_twin_adam(self):
        self.check_twin(ADAM)

    def test_rowwise_and_narrow(self):
        """One value of state a row, rows of 16 bits: the same on several ranks."""
        self.make(train=150)
        args = ["optimizer.embedding={name: rowwise_adagrad, learning_rate: 0.1, initial_accumulator: 0.1}", "train.embedding_dtype=bf16",
                "log.every_steps=0"]
        for ranks in (1, 3):
            self.succeed(ranks, "config.yaml", "checkpoint.export=out%d" % ranks, *args)
        self.assertEqual(self.export("out1"), self.export("out3"))


class Goes(DynamicTest):
    """Saved, gone on with, exported, taken up again."""

    def test_resume(self):
        """Cut at steps within and at the end of windows, on other ranks each time; all that a checkpoint has is as without the cuts."""
        self.make()
        self.succeed(1, "config.yaml", "train.epochs=2", "checkpoint.path=straight", "checkpoint.export=out", "log.every_steps=5")
        args = ["config.yaml", "train.epochs=2", "checkpoint.path=ckpt", "log.every_steps=5", "eval.every_steps=4"]
        for ranks, steps in ((2, 6), (3, 10), (1, 11), (4, 30)):
            self.succeed(ranks, *args, "train.steps=%d" % steps, "parallel.column_slice_threshold=%d" % (30 if steps == 10 else 1000))
        self.succeed(2, *args, "checkpoint.export=cut")
        self.assertEqual(self.export("cut"), self.export("out"))
        got, want = (read_checkpoint(self.path(folder, "step_000000038")) for folder in ("ckpt", "straight"))
        self.assertEqual(sorted(got), sorted(want))
        for name in want:
            np.testing.assert_array_equal(got[name], want[name], name)
        self.assertIn("table.lru3.candidates", want)
        self.assertNotIn("table.lru1.candidates", want)

    def test_checkpoint(self):
        """What it holds after some steps, by the model of the rules; on the way, while training goes on."""
        self.make()
        vocabularies, _ = self.learn(8)
        self.succeed(2, "config.yaml", "checkpoint.path=ckpt", "checkpoint.every_steps=4", "checkpoint.keep=9", "log.every_steps=0", "eval.every_epoch=false")
        saved = read_checkpoint(self.path("ckpt", "step_000000008"))
        for name, v in vocabularies.items():
            for suffix, want in zip(("keys", "counts", "last_use"), v.arrays()):
                np.testing.assert_array_equal(saved["table.%s.%s" % (name, suffix)][:, 0], want, name)
            self.assertEqual(saved["table.%s.totals" % name][0, :3].tolist(), [v.ids, v.unknown, v.evicted])
            if v.admission > 1:
                counts = saved["table.%s.candidate_counts" % name][:, 0]
                ring = dict(zip(saved["table.%s.candidates" % name][counts > 0, 0].tolist(), counts[counts > 0].tolist()))
                self.assertEqual(ring, v.candidates)

    def test_init_from(self):
        """An export brings its vocabulary; a training that begins with it knows these keys, and has used none of them yet."""
        self.make()
        vocabularies, _ = self.learn(10)
        self.succeed(1, "config.yaml", "train.steps=10", "checkpoint.export=out")
        trained = events(self.path("run.jsonl"), "eval")[-1]
        self.succeed(3, "config.yaml", "--eval", "checkpoint.init_from=out")
        again = events(self.path("run.jsonl"), "eval")[-1]
        for key in ("auc", "samples", "out_of_vocabulary"):
            self.assertEqual(again[key], trained[key])
        self.assertIn(" of ids were out of vocabulary", self.succeed(2, "config.yaml", "--predict", "p.npy", "checkpoint.init_from=out").stdout)
        self.assertAlmostEqual(fixture.auc(np.load(self.path("p.npy")).astype(float), self.rows["test"].labels), trained["auc"], 8)

        for v in vocabularies.values():  # as the run that follows begins
            v.step, v.candidates = 0, {}
            v.order.clear()
            for entry in v.known.values():
                entry[2] = 0
        self.succeed(2, "config.yaml", "train.steps=7", "checkpoint.init_from=out", "checkpoint.export=on")
        self.assertEqual([t["keys"] for t in events(self.path("run.jsonl"), "start")[-1]["vocabularies"]], [len(v.known) for v in vocabularies.values()])
        for name, v in vocabularies.items():
            for first in range(0, 7 * BATCH, BATCH):
                v.learn([self.rows["train"].bags(name, k, first, first + BATCH) for k in range(len(FEATURES))])
        self.check_vocabularies(self.weights("on"), vocabularies)

    def test_damaged_exports(self):
        self.make(train=60)
        self.succeed(1, "config.yaml", "checkpoint.export=out")
        whole = self.weights("out")

        def refuse(pattern, **changes):
            os.makedirs(self.path("bad"), exist_ok=True)
            write_safetensors(self.path("bad", "model.safetensors"), {name: changes.get(name.split(".")[-1], lambda v: v)(value) if name.startswith("table.lru1.") else value
                                                                      for name, value in whole.items() if "drop" not in changes or name != changes["drop"]})
            self.refuse(2, 1, pattern, "config.yaml", "checkpoint.init_from=bad")

        refuse(r"bad: no tensor 'table\.lru1\.keys' \[13\]", drop="table.lru1.keys")
        refuse(r"'table\.lru1\.keys': has shape \[12\], expected \[13\]", keys=lambda v: v[1:])
        refuse(r"'table\.lru1\.counts': has dtype F32, expected U32", counts=lambda v: v.astype("<f4"))
        refuse(r"bad: tensor 'table\.lru1\.keys': rows 2 and 5 have the same key, -?\d+", keys=lambda v: np.where(np.arange(13) == 5, v[2], v))
        refuse(r"bad: tensor 'table\.lru1\.counts': row 3 has no key \(a count of 0\), but row 4 has", counts=lambda v: np.where(np.arange(13) == 3, 0, v).astype("<u4"))
        refuse(r"bad: tensor 'table\.lru1\.counts': found 4 for row 0, expected 0: it is for keys", counts=lambda v: np.where(np.arange(13) == 0, 4, v).astype("<u4"))

    def test_too_large(self):
        self.make(train=60)
        for strategy, pattern in (("auto", r"^dlrm-train: no placement of the tables fits 2 ranks .*, the largest none1 \(3000000001 rows x 4, and keys: \d+"),
                                  ("basic", r"^dlrm-train: the model needs [\d.]+ GiB on this host .*; the largest tables, with optimizer state: none1 "
                                            r"\(3000000001 rows x 4, and keys: \d+.*; use more hosts, fewer rows, a smaller capacity or smaller tables$")):
            self.refuse(2, 3, pattern, "config.yaml", "model.tables.0.capacity=3000000000", "parallel.strategy=" + strategy)

    def test_changed(self):
        """A vocabulary's rules are part of the model."""
        self.make(train=60)
        self.succeed(1, "config.yaml", "checkpoint.path=ckpt", "train.steps=2")
        for key, value, was in (("evict", "lfu", "lru"), ("admission", "2", "1"), ("capacity", "13", "12")):
            self.refuse(2, 1, r"model\.tables: %s of table number 2 \(lru1\) is %s, but ckpt/step_000000002 was made with %s, and this cannot change$" %
                        (key, value, was), "config.yaml", "checkpoint.path=ckpt", "model.tables.2.%s=%s" % (key, value))


SMALL = """\
model:
  dense_features: 3
  embedding_dim: 4
  bottom_mlp: [4]
  interaction: dot
  top_mlp: [4, 1]
  tables: [{name: a, rows: dynamic, capacity: 20, evict: lfu, admission: 2}, {name: b, rows: 90}, {name: c, rows: dynamic, capacity: 30, evict: lru}]
  features: [{table: a, hotness: %d}, b, {table: c, hotness: %d}, a]
optimizer: {dense: {name: sgd, learning_rate: 0.1}, embedding: {name: adagrad, learning_rate: 0.1}}
train: {batch_size: 16, deterministic: true}
data: {format: npy, path: set}
log: {every_steps: 1, jsonl: run.jsonl}
"""


class Formats(DynamicTest):
    def outcome(self, ranks, *more):
        self.succeed(ranks, "config.yaml", "train.epochs=2", "checkpoint.export=out", *more)
        seen = events(self.path("run.jsonl"))
        return [e["loss"] for e in seen if e["event"] == "step"], [e["auc"] for e in seen if e["event"] == "eval"], self.export("out")

    def write_day(self, name, ids, dtype):
        r = np.random.default_rng(len(name))
        n = len(ids[0])
        counts = r.integers(0, 100, (n, 3)).astype("<i4")
        labels = r.integers(0, 2, n).astype("<i4")
        np.save(self.path("set", name + "_labels.npy"), labels[:, None])
        np.save(self.path("set", name + "_dense.npy"), np.log(counts.astype(float) + 1).astype("<f4"))
        if ids[0].shape[1] == 1:
            np.save(self.path("set", name + "_sparse.npy"), np.concatenate(ids, 1).astype(dtype))
        else:
            np.savez(self.path("set", name + "_sparse_multi_hot.npz"), **{str(j): i.astype(dtype) for j, i in enumerate(ids)})
        words = np.concatenate([labels[:, None], counts, (np.concatenate(ids, 1) & 0xFFFFFFFF).astype("<u4").view("<i4")], 1)
        words.tofile(self.path("set", {"day_0": "x_train.bin", "day_1": "x_test.bin"}[name]))

    def make_ids(self, n, seed, hotness, low):
        r = np.random.default_rng(seed)
        return [r.integers(0, 90, (n, h)) if j == 1 else (low + r.integers(0, 2**31 - 1, 70)[(70 * r.random((n, h))**2).astype(int)]) for j, h in enumerate(hotness)]

    def check(self, hotness, low, dtype, *formats):
        """The formats hold the same rows, and all give the same run on any number of ranks."""
        os.makedirs(self.path("set"))
        self.write("config.yaml", SMALL % (hotness[0], hotness[2]))
        for name, n, seed in (("day_0", 120, 1), ("day_1", 50, 1)):
            self.write_day(name, self.make_ids(n, seed, hotness, low), dtype)
        want = self.outcome(1)
        self.assertEqual(len(want[0]), 16)
        for ranks, format in [(2, "npy"), (3, "npy")] + [(ranks, format) for format in formats for ranks in (1, 3)]:
            self.assertEqual(self.outcome(ranks, "data.format=" + format), want, (ranks, format))
        keys = self.weights("out")["table.c.keys"]
        self.assertTrue((keys[1:] >= low).all() and len(set(keys[1:])) == 30)
        self.succeed(2, "config.yaml", "data.shuffle=true", "checkpoint.export=out")
        one = self.export("out")
        self.succeed(1, "config.yaml", "data.shuffle=true", "checkpoint.export=out")
        self.assertEqual(self.export("out"), one)

    def test_one_hot_negative(self):
        """mlperf_bin's ids are signed."""
        self.check((1, 1, 1, 1), -2**31, "<i4", "mlperf_bin")

    def test_multi_hot_unsigned(self):
        """hugectr_raw's ids are unsigned of 32 bits; arrays have 64."""
        self.check((2, 1, 3, 1), 2**31 - 1000, "<i8", "hugectr_raw")

    def test_wide(self):
        self.check((2, 1, 1, 1), -2**60, "<i8")

    def test_shuffled_bags(self):
        """Variable bags of split_binary in shuffled order."""
        self.make(train=200)
        self.succeed(1, "config.yaml", "data.shuffle=true", "checkpoint.export=one", "log.every_steps=0")
        self.succeed(3, "config.yaml", "data.shuffle=true", "checkpoint.export=three", "log.every_steps=0")
        self.assertEqual(self.export("one"), self.export("three"))

    def test_synthetic(self):
        """Keys over all 64 bits, eight for each row that there may be, and a few of them often; the hidden model sees them."""
        self.write("config.yaml", SMALL % (2, 1))
        args = ["data.format=synthetic", "data.path=null", "data.synthetic.batches=40", "train.batch_size=64", "log.every_steps=0"]
        for ranks in (1, 3):
            self.succeed(ranks, "config.yaml", "checkpoint.export=out%d" % ranks, *args)
        self.assertEqual(self.export("out1"), self.export("out3"))
        keys = self.weights("out1")["table.c.keys"][1:]
        self.assertTrue((keys < 0).any() and (keys > 2**40).any())
        self.assertEqual(len(set(keys.tolist())), 30)
        self.succeed(1, "config.yaml", "checkpoint.export=all", "model.tables.2.capacity=5000", "model.tables.0.admission=1", *args)
        counts = np.sort(self.weights("all")["table.c.counts"])[::-1]
        self.assertGreater(counts[0], 20 * counts[200])
        self.succeed(1, "config.yaml", "checkpoint.export=all", "model.tables.2.capacity=10", "model.tables.2.evict=none", *args)
        self.assertEqual(events(self.path("run.jsonl"), "end")[-1]["vocabularies"][1]["keys"], 10)


class Config(DynamicTest):
    def check_refused(self, tables, pattern):
        self.write("config.yaml", fixture.SYNTHETIC.replace("{count: 4, rows: 500}", tables))
        self.refuse(1, 1, pattern, "config.yaml", "--check")

    def test_refused(self):
        for tables, pattern in (
                ("{rows: dynamic}", r"^config\.yaml:8:\d+: model\.tables\.0\.capacity: missing, but rows: dynamic needs it; expected the number of keys"),
                ("{rows: 5, capacity: 7}", r"model\.tables\.0\.capacity: is for a table with rows: dynamic, but rows is 5"),
                ("{rows: 5, evict: lru}", r"model\.tables\.0\.evict: is for a table with rows: dynamic"),
                ("{rows: 5, admission: 2}", r"model\.tables\.0\.admission: is for a table with rows: dynamic"),
                ("{rows: dynamic, capacity: 4294967295}", r'tables\.0\.capacity: found "4294967295", expected an integer from 1 to 4294967294, or null'),
                ("{rows: dynamic, capacity: 0}", r'tables\.0\.capacity: found "0", expected an integer from 1'),
                ("{rows: dynamic, capacity: 5, evict: random}", r'evict: found "random", expected one of none, lru, lfu'),
                ("{rows: dynamic, capacity: 5, admission: 0}", r'admission: found "0", expected an integer from 1 to 4294967295'),
                ("{rows: dynamics, capacity: 5}", r'rows: found "dynamics", expected an integer from 1 to 4294967295, or dynamic')):
            with self.subTest(tables=tables):
                self.check_refused(tables, pattern)

    def test_steps(self):
        self.write("config.yaml", fixture.SYNTHETIC.replace("{count: 4, rows: 500}", "{count: 4, rows: dynamic, capacity: 5}"))
        self.refuse(2, 1, r"train\.steps: comes to 4294967295 steps, but tables with rows: dynamic count them to 4294967294", "config.yaml", "train.steps=4294967295",
                    "train.epochs=null", "--check")

    def test_placement(self):
        """Neither replicated nor cut by rows, whatever the thresholds; cut by columns."""
        self.make(train=60)
        done = self.succeed(3, "config.yaml", "--check", "parallel.data_parallel_threshold=1000000", "parallel.row_slice_threshold=1")
        self.assertRegex(done.stdout, r"table none1 +13 rows x 4 +(rank \d|\d column slices?), dynamic: keys get rows as they appear \(evict none, admission 1\)")
        self.assertNotRegex(done.stdout, "every rank|row slice")
        done = self.succeed(4, "config.yaml", "--check", "parallel.column_slice_threshold=20")
        self.assertRegex(done.stdout, r"table lru3 .* \d column slices, dynamic: .*\(evict lru, admission 3\)")


class OnGpus(Twin):
    """Which key has which row is decided on the host, what is done with rows on the GPU."""

    def test_one_gpu(self):
        self.check_twin(ADAGRAD, "device=cuda")
        vocabularies, _ = self.learn()
        self.check_vocabularies(self.weights("out"), vocabularies)

    def test_resume(self):
        self.make()
        args = ["config.yaml", "device=cuda", "train.epochs=2", ADAM]
        self.succeed(1, *args, "checkpoint.export=out")
        for steps in (6, 10, 30):
            self.succeed(1, *args, "checkpoint.path=ckpt", "train.steps=%d" % steps)
        self.succeed(1, *args, "checkpoint.path=ckpt", "checkpoint.export=cut")
        self.assertEqual(self.export("cut"), self.export("out"))

    def test_two_gpus(self):
        self.make()
        for ranks in (1, 2):
            self.succeed(ranks, "config.yaml", "device=cuda", "parallel.column_slice_threshold=20", "checkpoint.export=out%d" % ranks, ADAGRAD)
        self.assertEqual(self.export("out1"), self.export("out2"))


if __name__ == "__main__":
    fixture.main()
