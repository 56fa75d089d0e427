#!/usr/bin/env python3
"""Weights between this program and others, by what docs/weights.md tells to do: its Python blocks are run as they stand. Where
PyTorch is not installed, what needs it is skipped, or run on NumPy where that does the same."""
import importlib.util
import os
import re
import types

import numpy as np

import fixture

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
CONFIG = fixture.CONFIG.replace("name: user", "name: cat_0").replace("name: tags", "name: cat_1").replace("name: history", "name: cat_2").replace(
    "[user, tags, history, user]", "[cat_0, cat_1, cat_2, cat_0]").replace("top_mlp: [6, 1]", "top_mlp: [6, 5, 4, 3, 1]")


def block(after):
    """The first Python block of the page behind this text."""
    with open(os.path.join(ROOT, "docs", "weights.md")) as f:
        text = f.read()
    return re.search(r"```python\n(.*?)```", text[text.index(after):], re.S).group(1)


class Interchange(fixture.RunTest):
    def setUp(self):
        super().setUp()
        self.make_data()
        self.write("config.yaml", CONFIG)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.folder)  # where the page's lines look

    def predict(self, *args):
        self.succeed(1, "config.yaml", "--predict", "p.npy", *args)
        return np.load(self.path("p.npy"))

    def export(self):
        self.succeed(2, "config.yaml", "checkpoint.export=final")
        return self.weights("final")

    def name_map(self, name):
        return "checkpoint.name_map=" + os.path.join(ROOT, "configs", "name_maps", name)

    def test_numpy_lines(self):
        weights = self.export()
        found = {}
        exec(block("Without that package"), found)
        self.assertEqual(sorted(found["weights"]), sorted(weights))
        for name, value in weights.items():
            np.testing.assert_array_equal(found["weights"][name], value)

    def test_torch_lines(self):
        if not all(map(importlib.util.find_spec, ("torch", "safetensors"))):
            self.skipTest("PyTorch and safetensors are not installed")
        weights = self.export()
        found = {}
        exec(block("PyTorch:"), found)
        self.assertEqual(sorted(found["weights"]), sorted(weights))
        for name, value in weights.items():
            np.testing.assert_array_equal(found["weights"][name].numpy(), value)

    def test_facebook(self):
        """A state dict of facebook's dlrm through the map that is shipped."""
        weights = self.export()
        wanted = self.predict("checkpoint.init_from=final")
        theirs = {}
        for name, value in weights.items():
            stack, number, kind = name.split(".")
            theirs["emb_l.%s.weight" % number[4:] if stack == "table" else "%s_l.%d.%s" % (stack[:3], 2 * int(number), kind)] = value
        fixture.write_safetensors(self.path("theirs.safetensors"), theirs)
        got = self.predict("checkpoint.init_from=theirs.safetensors", self.name_map("facebook_dlrm.yaml"))
        np.testing.assert_array_equal(got, wanted)

    def test_torchrec(self):
        """One of TorchRec's DLRMTrain, whose products stand in another order: vector i with all j > i, one i after the other."""
        weights = self.export()
        wanted = self.predict("checkpoint.init_from=final")
        dim, sparse = fixture.DIM, 4
        theirs = {}
        for name, value in weights.items():
            stack, number, kind = name.split(".")
            if stack == "table":
                theirs["model.sparse_arch.embedding_bag_collection.embedding_bags.t_%s.weight" % number] = value
            elif stack == "bottom":
                theirs["model.dense_arch.model._mlp.%s._linear.%s" % (number, kind)] = value
            elif number == "4":
                theirs["model.over_arch.model.1." + kind] = value
            else:
                theirs["model.over_arch.model.0._mlp.%s._linear.%s" % (number, kind)] = value
        first = "model.over_arch.model.0._mlp.0._linear.weight"
        ours, theirs[first] = theirs[first], theirs[first].copy()
        for i in range(sparse + 1):
            for j in range(i + 1, sparse + 1):
                theirs[first][:, dim + i * (sparse + 1) - i * (i + 1) // 2 + j - i - 1] = ours[:, dim + j * (j - 1) // 2 + i]
        self.assertFalse(np.array_equal(theirs[first], ours))
        fixture.write_safetensors(self.path("theirs.safetensors"), theirs)
        as_they_are = self.predict("checkpoint.init_from=theirs.safetensors", self.name_map("torchrec.yaml"))
        self.assertFalse(np.allclose(as_they_are, wanted, rtol=1e-4, atol=0))
        # The page's lines work on prefix-less names, as of DLRM.
        state = {name[len("model."):]: value for name, value in theirs.items()}
        torch = types.SimpleNamespace(cat=lambda parts, dim: np.concatenate(parts, axis=dim))
        exec(block("From TorchRec"), {"state": state, "D": dim, "F": sparse, "torch": torch})
        fixture.write_safetensors(self.path("ordered.safetensors"), state)
        got = self.predict("checkpoint.init_from=ordered.safetensors", self.name_map("torchrec.yaml"))
        np.testing.assert_array_equal(got, wanted)


if __name__ == "__main__":
    fixture.main()
