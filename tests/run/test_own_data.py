#!/usr/bin/env python3
"""docs/own-data.md to the letter: its script, description, config and commands, and its model in NumPy, which predicts what the trainer does;
and rows to be scored later in a folder of their own."""
import os
import re

import numpy as np

import fixture

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "own-data.md")


class OwnData(fixture.RunTest):
    def execute(self, code):
        """In the test's folder; returns what it defined."""
        here, scope = os.getcwd(), {}
        os.chdir(self.path())
        try:
            exec(code, scope)
        finally:
            os.chdir(here)
        return scope

    def test_page(self):
        with open(PAGE) as f:
            page = f.read()
        make, model = re.findall(r"^```python\n(.*?)^```", page, re.M | re.S)
        spec, config = re.findall(r"^```yaml\n(.*?)^```", page, re.M | re.S)
        with open(os.path.join(os.path.dirname(PAGE), "weights.md")) as f:
            load = re.search(r"^```python\n(import json, numpy.*?)^```", f.read(), re.M | re.S).group(1)
        log = self.execute(make)
        self.write(os.path.join("data", "feature_spec.yaml"), spec)
        self.write("my.yaml", config)

        commands = re.findall(r"^    (?:mpirun -n (\d) )?dlrm-train (my\.yaml.*)", page, re.M)
        self.assertEqual(len(commands), 5)
        for ranks, args in commands[:4]:
            done = self.succeed(int(ranks or 1), *args.split())
        predicted = np.load(self.path("probabilities.npy"))
        self.assertGreater(fixture.auc(predicted, log["click"][-5000:]), 0.75, done.stdout)

        scope = self.execute(load + model)
        rows = slice(25000, 30000)
        history = [log["history"][a:b] for a, b in zip(log["begins"][rows], log["begins"][25001:])]
        again = scope["probabilities"](*(log[name][rows] for name in ("numbers", "item", "user", "tags")), history)
        np.testing.assert_allclose(predicted, again, atol=1e-5)

        self.assertRegex(self.succeed(int(commands[4][0]), *commands[4][1].split()).stdout, "resumed from .* written by 2 ranks")

        # New rows: a folder whose test split they are, beside a training row of any kind.
        os.rename(self.path("data"), self.path("new"))
        for name, size in ("click", 1), ("numbers", 8), ("item", 4), ("user", 8), ("tags", 3), ("history", 0), ("history.offsets", 16):
            os.truncate(self.path("new", "train", name + ".bin"), size)
        np.zeros(2, "<i8").tofile(self.path("new", "train", "history.offsets.bin"))
        np.zeros(5000, "i1").tofile(self.path("new", "test", "click.bin"))
        self.write(os.path.join("new", "feature_spec.yaml"), spec.replace("train: 25000", "train: 1"))
        self.succeed(2, "my.yaml", "data.path=new", "checkpoint.resume=never", "checkpoint.init_from=final", "--predict", "new.npy")
        self.succeed(2, "my.yaml", "data.path=new", "--predict", "newer.npy")
        np.testing.assert_allclose(np.load(self.path("new.npy")), np.load(self.path("newer.npy")), atol=1e-5)


if __name__ == "__main__":
    fixture.main()
