"""dlrm_data synth: the rows have Criteo's shape, the labels follow the planted probabilities, and what is printed is true."""
import os
import re

import numpy as np

import criteo_oracle as oracle
import tool_fixture
from tool_fixture import ToolTest


def auc(score, label):
    """Exact, ties counted half."""
    values, at = np.unique(score, return_inverse=True)
    positive = np.bincount(at, weights=label, minlength=len(values))
    negative = np.bincount(at, weights=1 - label.astype(float), minlength=len(values))
    below = np.concatenate([[0], np.cumsum(negative)[:-1]])
    return (positive * (below + negative / 2)).sum() / (positive.sum() * negative.sum())


class Synth(ToolTest):
    def synth(self, out, rows, *args):
        return self.tool("synth", "--out", out, "--rows", rows, *args).stdout

    def printed(self, stdout, what):
        m = re.search(r"^planted AUC, %s: ([0-9.]+) \((\d+) rows, ([0-9.]+) %% positive\)$" % what, stdout, re.M)
        self.assertTrue(m, stdout)
        return float(m[1]), int(m[2])

    def test_text(self):
        n = 30000
        out = self.synth("rows.txt", n, "--test-fraction", 0.2)
        rows, lines = oracle.parse([self.bytes_of("rows.txt")])
        self.assertEqual((len(rows), lines), (n, [n]))
        truth = np.fromfile(self.path("rows.txt.truth"), np.float32)
        self.assertEqual(len(truth), n)
        self.assertTrue((truth > 0).all() and (truth < 1).all())
        # what is printed
        got, count = self.printed(out, "all rows")
        self.assertEqual(count, n)
        self.assertAlmostEqual(got, auc(truth, rows.label), delta=1e-6)
        self.assertAlmostEqual(got, 0.80, delta=0.02)
        got, count = self.printed(out, "test rows")
        self.assertEqual(count, n // 5)
        self.assertAlmostEqual(got, auc(truth[-count:], rows.label[-count:]), delta=1e-6)
        # labels follow the probabilities, everywhere along their range
        self.assertAlmostEqual(rows.label.mean(), 0.2, delta=0.02)
        order = np.argsort(truth)
        for part in np.array_split(order, 20):
            p = truth[part].astype(float)
            self.assertLess(abs(rows.label[part].mean() - p.mean()), 5 * np.sqrt((p * (1 - p)).sum()) / len(part))
        # shape: empty fields, negative counts, hashes of 8 digits, few and many distinct ids, the most frequent id's share
        missing = [0.02, 0, 0, 0, 0, 0, 0, 0, 0, 0.02, 0.02, 0, 0, 0.45, 0, 0.45, 0.45, 0, 0, 0.02, 0.02, 0.02, 0.45, 0, 0, 0]
        np.testing.assert_allclose((rows.ids < 0).mean(0), missing, atol=0.01)
        self.assertTrue(0.15 < np.isnan(rows.dense).mean() < 0.25)
        self.assertTrue(0 < (rows.dense < 0).mean() < 0.05)
        fields = self.bytes_of("rows.txt").split(b"\n")[0].split(b"\t")
        self.assertTrue(all(len(f) in (0, 8) for f in fields[14:]))
        self.assertEqual(len(np.unique(rows.ids[:, 5])), 3)
        self.assertEqual(len(np.unique(rows.ids[:, 8])), 63)
        self.assertGreater(len(np.unique(rows.ids[:, 19])), 5000)
        for k, ids in ((8, 63), (19, n), (23, 12973)):
            column = rows.ids[:, k][rows.ids[:, k] >= 0]
            top = np.unique(column, return_counts=True)[1].max() / len(column)
            g = 1 - 1.05
            self.assertAlmostEqual(top, (2**g - 1) / ((ids + 1) ** g - 1), delta=0.01)

    def test_same_bytes(self):
        self.synth("a", 40000, "--seed", 5, "--threads", 1)
        self.synth("b", 40000, "--seed", 5, "--threads", 4)
        self.synth("c", 40000, "--seed", 6)
        self.assertTrue(self.bytes_of("a") == self.bytes_of("b"))
        self.assertTrue(self.bytes_of("a.truth") == self.bytes_of("b.truth"))
        self.assertFalse(self.bytes_of("a") == self.bytes_of("c"))
        # days are the same rows in pieces
        out = self.synth("days", 40000, "--seed", 5, "--days", 3)
        self.assertEqual(sorted(os.listdir(self.path("days"))), ["day_0", "day_1", "day_2"])
        self.assertTrue(b"".join(self.bytes_of("days/day_%d" % d) for d in range(3)) == self.bytes_of("a"))
        self.assertTrue(b"".join(self.bytes_of("days.truth/day_%d" % d) for d in range(3)) == self.bytes_of("a.truth"))
        # and convert holds the same rows back
        self.tool("convert", "days/day_0", "days/day_1", "days/day_2", "--out", "converted")
        label = np.fromfile(self.path("converted/test/label.bin"), np.uint8)
        truth = np.fromfile(self.path("days.truth/day_2"), np.float32)
        got, count = self.printed(out, "test rows")
        self.assertEqual((count, len(label)), (len(truth), len(truth)))
        self.assertAlmostEqual(got, auc(truth, label), delta=1e-6)

    def test_split_binary(self):
        args = ["--seed", 9, "--scale", 0.01, "--shape", "kaggle", "--alpha", 1.2, "--positive-rate", 0.05]
        self.synth("text", 30000, *args)
        out = self.synth("columns", 30000, "--format", "split_binary", *args)
        rows, _ = oracle.parse([self.bytes_of("text")])
        got, spec = oracle.read_folder(self.path("columns"))
        test = 30000 // 7
        self.assertEqual(len(got["test"][0]), test)
        self.assertEqual(self.printed(out, "test rows")[1], test)
        label, dense, ids = (np.concatenate([got["train"][i], got["test"][i]]) for i in range(3))
        np.testing.assert_array_equal(label, rows.label)
        np.testing.assert_array_equal(dense, oracle.dense_values(rows.dense, "log3", np.float16))
        self.assertTrue(self.bytes_of("columns.truth/train") + self.bytes_of("columns.truth/test") == self.bytes_of("text.truth"))
        for k in range(26):
            self.assertLess(ids[:, k].max(), spec["feature_spec"]["cat_%d.bin" % k]["cardinality"])
            np.testing.assert_array_equal(ids[:, k] == 0, rows.ids[:, k] < 0)
            pairs = np.unique(np.stack([ids[:, k], rows.ids[:, k]]), axis=1)  # one id, one hash
            self.assertEqual(len(np.unique(pairs[0])), pairs.shape[1])
            self.assertEqual(len(np.unique(pairs[1])), pairs.shape[1])
        # cardinalities: small ones as published, large ones scaled; one more for id 0, less the published missing value
        cards = [spec["feature_spec"]["cat_%d.bin" % k]["cardinality"] for k in range(26)]
        self.assertEqual([cards[k] for k in (1, 4, 5, 8, 17)], [584, 306, 24, 4, 1001])
        self.assertEqual(cards[2], 30001)  # never more than rows
        self.assertEqual(cards[3], 22026 + 1)

    def test_signal_is_learnable(self):
        # per-value log-odds, estimated on the training rows alone and added up, come near the bound
        out = self.synth("columns", 150000, "--format", "split_binary", "--test-fraction", 0.2)
        got, _ = oracle.read_folder(self.path("columns"))
        label, dense, ids = (np.concatenate([got["train"][i], got["test"][i]]) for i in range(3))
        train = np.arange(len(label)) < len(got["train"][0])
        base = label[train].mean()
        score = np.zeros(len(label))
        bins = [np.searchsorted(np.quantile(x, np.linspace(0, 1, 30)), x) for x in dense.T.astype(float)]
        for column in list(ids.T) + bins:
            n = np.bincount(column[train], minlength=column.max() + 1)
            p = (np.bincount(column[train], weights=label[train], minlength=len(n)) + 300 * base) / (n + 300)
            score += np.log(p / (1 - p) / (base / (1 - base)))[column]
        bound, _ = self.printed(out, "test rows")
        self.assertGreater(auc(score[~train], label[~train]), bound - 0.02)

    def test_errors(self):
        self.synth("there", 10)
        os.remove(self.path("there"))
        for args, code, message in [
            (["--rows", "5"], 2, "--out is required"),
            (["--out", "x"], 2, "--rows is required"),
            (["--out", "x", "--rows", "0"], 2, "--rows: 0, expected an integer from 1 to"),
            (["--out", "x", "--rows", "5", "--days", "6"], 2, "--days: 6, expected at most the rows"),
            (["--out", "x", "--rows", "5", "--alpha", "-1"], 2, "--alpha: -1, expected a number from 0 to 4"),
            (["--out", "x", "--rows", "5", "y"], 2, "y: no such argument"),
            (["--out", "there", "--rows", "5"], 1, "there.truth: exists already"),
            (["--out", "no/x", "--rows", "5"], 1, "no/x.partial: cannot make this folder: No such file or directory"),
        ]:
            r = self.tool("synth", *args, code=code)
            self.assertEqual(len(r.stderr.splitlines()), 1)
            self.assertIn("dlrm_data: " + message, r.stderr)
        self.assertEqual(os.listdir(self.dir), ["there.truth"])


class Program(ToolTest):
    def test_help_and_version(self):
        self.assertRegex(self.tool("--version").stdout, r"^dlrm_data \d+\.\d+\.\d+\n$")
        text = self.tool("--help").stdout
        for name in ("convert", "synth"):
            self.assertIn("\n  %s " % name, text)
            self.assertIn("usage: dlrm_data %s " % name, self.tool(name, "--help").stdout)
        self.assertIn("unknown command frobnicate", self.tool("frobnicate", code=2).stderr)
        self.assertIn("usage: dlrm_data COMMAND", self.tool(code=2).stderr)


if __name__ == "__main__":
    tool_fixture.main()
