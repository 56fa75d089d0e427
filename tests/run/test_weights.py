#!/usr/bin/env python3
"""Weights that come and go: init_from other people's names and types, export and back, an export that takes another's place."""
import json
import os
import struct

import numpy as np

import fixture
from fixture import events

TYPES = {"float64": "F64", "float32": "F32", "float16": "F16", "uint16": "BF16"}  # uint16: the bits of a bfloat16


def write(path, tensors):
    """A safetensors file, each tensor in its own type."""
    head, at = {"__metadata__": {"format": "pt"}}, 0
    for name, value in tensors.items():
        head[name] = {"dtype": TYPES[value.dtype.name], "shape": list(value.shape), "data_offsets": [at, at + value.nbytes]}
        at += value.nbytes
    text = json.dumps(head).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for value in tensors.values():
            f.write(np.ascontiguousarray(value).tobytes())


def coarse_weights(seed):
    """Weights of fixture.CONFIG that bfloat16 and float16 hold exactly."""
    r = np.random.default_rng(seed)
    shapes = {"bottom.0.weight": (8, 3), "bottom.0.bias": (8,), "bottom.1.weight": (4, 8), "bottom.1.bias": (4,),
              "top.0.weight": (6, 14), "top.0.bias": (6,), "top.1.weight": (1, 6), "top.1.bias": (1,),
              "table.user.weight": (50, 4), "table.tags.weight": (30, 4), "table.history.weight": (40, 4)}
    return {name: (r.integers(-100, 100, shape) / 128).astype(np.float32) for name, shape in shapes.items()}


def facebook_name(name):
    """facebook's dlrm: layers at every other place of a Sequential, tables by number."""
    part = name.split(".")
    if part[0] == "table":
        return "emb_l.%d.weight" % ["user", "tags", "history"].index(part[1])
    return "%s_l.%d.%s" % (part[0][:3], 2 * int(part[1]), part[2])


FACEBOOK = """\
bot_l.0.*: bottom.0.*
bot_l.2.*: bottom.1.*
top_l.0.*: top.0.*
top_l.2.*: top.1.*
emb_l.0.weight: table.user.weight
emb_l.1.weight: table.tags.weight
emb_l.2.weight: table.history.weight
"""


class Weights(fixture.RunTest):
    def outcome(self, ranks, *args):
        """Losses, evaluation and exported bytes of a run; its stderr."""
        done = self.succeed(ranks, "config.yaml", "checkpoint.export=out", *args)
        log = [(e["step"], e["loss"], e.get("auc")) for e in events(self.path("run.jsonl")) if e["event"] in ("step", "eval")]
        return (log, self.file_bytes("out", "model.safetensors")), done.stderr

    def test_other_names(self):
        """A state dict of facebook's dlrm trains as the same weights under our names do."""
        self.make_data()
        weights = coarse_weights(7)
        write(self.path("ours.safetensors"), weights)
        theirs = {facebook_name(name): value for name, value in weights.items()}
        theirs["loss_ws"] = np.ones(2, np.float32)
        write(self.path("theirs.safetensors"), theirs)
        self.write("names.yaml", FACEBOOK)
        for ranks in (1, 3):
            wanted, err = self.outcome(ranks, "checkpoint.init_from=ours.safetensors")
            self.assertEqual(err, "")
            got, err = self.outcome(ranks, "checkpoint.init_from=theirs.safetensors", "checkpoint.name_map=names.yaml")
            self.assertEqual(got, wanted)
            self.one_message(err, r"^dlrm-train: warning: theirs\.safetensors: not in the model, ignored: loss_ws$")
        other, _ = self.outcome(1)
        self.assertNotEqual(other, wanted)

    def test_other_types(self):
        self.make_data()
        weights = coarse_weights(8)
        write(self.path("f32.safetensors"), weights)
        wanted, _ = self.outcome(2, "checkpoint.init_from=f32.safetensors")
        casts = (lambda v: v.astype(np.float64), lambda v: v.astype(np.float16), lambda v: (v.view(np.uint32) >> 16).astype(np.uint16))
        os.makedirs(self.path("parts"))
        for k in range(3):  # a folder of three files, one for each type
            write(self.path("parts", "%d.safetensors" % k), {n: casts[k](v) for n, v in list(weights.items())[k::3]})
        got, _ = self.outcome(2, "checkpoint.init_from=parts")
        self.assertEqual(got, wanted)

    def test_start(self):
        """The first step's loss is that of the weights given."""
        rows = self.make_data()["train"].first(16)
        weights = coarse_weights(9)
        write(self.path("w.safetensors"), weights)
        self.succeed(2, "config.yaml", "checkpoint.init_from=w.safetensors", "train.steps=1")
        p, y = fixture.probabilities(weights, rows), rows.labels.astype(np.float64)
        loss = -np.mean(y * np.log(p) + (1 - y) * np.log(1 - p))
        self.assertAlmostEqual(events(self.path("run.jsonl"), "step")[0]["loss"], loss, delta=1e-6)

    def test_initial(self):
        """What a run starts from, in mean and spread: MLPs and tables as facebook's dlrm, cross layers Xavier normal without bias;
        the same on any number of ranks."""
        self.make_data()
        big = ["model.interaction=dcn", "model.cross={layers: 2, rank: 40}", "model.bottom_mlp=[64, 200]", "model.top_mlp=[300, 1]",
               "model.tables=[{name: user, rows: 5000}, {name: tags, rows: 30, combiner: mean}, {name: history, rows: 400}]",
               "optimizer={dense: {name: sgd, learning_rate: 0}, embedding: {name: sgd, learning_rate: 0}}", "train.steps=1"]
        self.succeed(1, "config.yaml", "checkpoint.export=out", *big)
        width = 200 + 4 * 4
        shapes = {"bottom.0.weight": (64, 3), "bottom.1.weight": (200, 64), "bottom.0.bias": (64,), "bottom.1.bias": (200,),
                  "cross.0.v": (40, width), "cross.0.w": (width, 40), "cross.1.v": (40, width), "cross.1.w": (width, 40),
                  "cross.0.bias": (width,), "cross.1.bias": (width,), "top.0.weight": (300, width), "top.0.bias": (300,),
                  "top.1.weight": (1, 300), "top.1.bias": (1,),
                  "table.user.weight": (5000, 4), "table.tags.weight": (30, 4), "table.history.weight": (400, 4)}
        got = self.weights("out")
        self.assertEqual({name: w.shape for name, w in got.items()}, shapes)
        for name, w in got.items():
            if name.startswith("cross") and name.endswith("bias"):
                self.assertFalse(w.any(), name)
                continue
            if name.startswith("table"):
                bound, kurtosis = 1 / np.sqrt(w.shape[0]), 1.8
                self.assertLessEqual(np.abs(w).max(), bound, name)
                std = bound / np.sqrt(3)
            else:
                std, kurtosis = np.sqrt(2 / sum(w.shape) if w.ndim == 2 else 1 / w.shape[0]), 3
            n = w.size  # five standard errors each
            self.assertLess(abs(w.mean()), 5 * std / np.sqrt(n), name)
            self.assertLess(abs((w ** 2).mean() / std ** 2 - 1), 5 * np.sqrt((kurtosis - 1) / n), name)
        distinct = [w.ravel()[:3].tobytes() for w in got.values() if w.size > 2 and w.any()]
        self.assertEqual(len(set(distinct)), len(distinct), "tensors that begin alike")
        exported = self.file_bytes("out", "model.safetensors")
        self.succeed(3, "config.yaml", "checkpoint.export=out", *big)
        self.assertEqual(self.file_bytes("out", "model.safetensors"), exported)

    def test_refused(self):
        self.make_data()
        weights = coarse_weights(1)
        for name, change, message in (
                ("missing", lambda w: w.pop("table.tags.weight"), r"table\.tags\.weight"),
                ("shape", lambda w: w.update({"top.0.weight": np.zeros((6, 13), np.float32)}), r"top\.0\.weight.*6.*13.*14")):
            changed = dict(weights)
            change(changed)
            write(self.path(name), changed)
            self.refuse(2, 1, name + r".*" + message, "config.yaml", "checkpoint.init_from=" + name)
        self.assertFalse(os.path.exists(self.path("run.jsonl")))

    def test_there_and_back(self):
        """Exported weights score to the bit what the training said last, and are exported again as they are."""
        self.make_data()
        for ranks, deterministic in ((1, False), (2, False), (3, True)):
            mode = "train.deterministic=%s" % str(deterministic).lower()
            (log, exported), _ = self.outcome(ranks, mode)
            for again in (1, 2, 3) if deterministic else (ranks,):
                os.remove(self.path("run.jsonl"))
                self.succeed(again, "config.yaml", mode, "checkpoint.init_from=out", "--eval")
                result = events(self.path("run.jsonl"), "eval")[0]
                self.assertEqual((result["loss"], result["auc"]), log[-1][1:])
                zero = "optimizer={dense: {name: sgd, learning_rate: 0}, embedding: {name: sgd, learning_rate: 0}}"
                self.succeed(again, "config.yaml", mode, "checkpoint.init_from=out", "checkpoint.export=again", zero)
                self.assertEqual(self.file_bytes("again", "model.safetensors"), exported)

    def test_replaced(self):
        """A second export takes the first one's place as a whole; who is reading the first keeps it."""
        self.make_data()
        self.succeed(2, "config.yaml", "checkpoint.export=out")
        first = self.file_bytes("out", "model.safetensors")
        self.write("out/model-00001-of-00002.safetensors", "of an older export")
        self.write("out/model.safetensors.index.json", "{}")
        self.write("out/README", "not ours")
        with open(self.path("out", "model.safetensors"), "rb") as reading:
            self.succeed(3, "config.yaml", "checkpoint.export=out", "model.top_mlp=[1]")
            self.assertEqual(reading.read(), first)
        self.assertEqual(sorted(os.listdir(self.path("out"))), ["README", "model.safetensors"])
        weights = self.weights("out")
        self.assertNotIn("top.1.weight", weights)
        self.assertEqual(weights["top.0.weight"].shape, (1, 14))
        self.assertEqual(weights["table.history.weight"].shape, (40, 4))


if __name__ == "__main__":
    fixture.main()
