#!/usr/bin/env python3
"""configs/from_dataset.yaml: a model from the data's description alone. It is the model that the same sizes give when they are written
out; with dot the tables are as wide as the bottom output; --check shows what comes of it."""
import os
import re

import fixture
from fixture import events

CONFIG = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "configs", "from_dataset.yaml")
WRITTEN_OUT = ["model.dense_features=3", "model.embedding_dim=8", "model.tables=[{name: user, rows: 50}, {name: tags, rows: 30}, "
               "{name: history, rows: 5000, dim: 24}, {name: friend, rows: 50}]"]


class FromDataset(fixture.RunTest):
    def setUp(self):
        super().setUp()
        self.make_data(train=400, test=100)
        with open(self.path("data", "feature_spec.yaml")) as f:
            spec = f.read()
        self.assertIn("history: {cardinality: 40,", spec)
        self.write(os.path.join("data", "feature_spec.yaml"), spec.replace("history: {cardinality: 40,", "history: {cardinality: 5000,"))

    def outcome(self, ranks, *args):
        self.succeed(ranks, CONFIG, "train.batch_size=64", "log.jsonl=run.jsonl", "log.every_steps=1", "checkpoint.export=out", *args)
        return [(e["event"], e["step"], e["loss"]) for e in events(self.path("run.jsonl")) if e["event"] in ("step", "eval")]

    def shapes(self):
        return {name: value.shape for name, value in self.weights("out").items() if name.endswith("weight")}

    def test_model(self):
        log = self.outcome(2, "train.deterministic=true")
        self.assertEqual([event for event, _, _ in log], ["step"] * 7 + ["eval"])
        shapes, bits = self.shapes(), self.file_bytes("out", "model.safetensors")
        self.assertEqual({k: v for k, v in shapes.items() if k.startswith("table")},
                         {"table.user.weight": (50, 8), "table.tags.weight": (30, 8), "table.history.weight": (5000, 24),
                          "table.friend.weight": (50, 8)})
        self.assertEqual((shapes["bottom.0.weight"], shapes["top.0.weight"]), ((64, 3), (256, 32 + 3 * 8 + 24)))
        self.assertEqual(self.outcome(1, "train.deterministic=true", *WRITTEN_OUT), log)
        self.assertEqual(self.file_bytes("out", "model.safetensors"), bits)

    def test_goes_on(self):
        """From a checkpoint, with the sizes from the data or written out."""
        self.outcome(1, "checkpoint.path=ckpt", "train.steps=3")
        self.assertEqual([step for event, step, _ in self.outcome(1, "checkpoint.path=ckpt", "train.steps=5", *WRITTEN_OUT) if event == "step"],
                         [1, 2, 3, 4, 5])  # a log that goes on
        self.outcome(1, "checkpoint.path=ckpt", "train.steps=6")
        self.assertEqual(events(self.path("run.jsonl"), "end")[-1]["steps"], 1)

    def test_dot(self):
        self.outcome(1, "model.interaction=dot")
        self.assertEqual({v[1] for k, v in self.shapes().items() if k.startswith("table")}, {32})
        self.assertEqual(self.shapes()["top.0.weight"], (256, 32 + 10))

    def test_check(self):
        done = self.succeed(1, CONFIG, "train.batch_size=64", "--check")
        tables = re.findall(r"^table (\S+) +(\d+) rows x (\d+)", done.stdout, re.M)
        self.assertEqual(tables, [("user", "50", "8"), ("tags", "30", "8"), ("history", "5000", "24"), ("friend", "50", "8")])

    def test_nothing_to_go_by(self):
        self.refuse(1, 1, r'model\.tables: found "from_dataset", but data\.format: npy has no data description', CONFIG, "data.format=npy")
        self.refuse(1, 1, r'model\.dense_features: found "from_dataset", but without model\.tables: from_dataset no description', CONFIG,
                    "data.format=npy", WRITTEN_OUT[2])


if __name__ == "__main__":
    fixture.main()
