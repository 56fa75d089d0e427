"""What the tests of dlrm_data share: rows and binary files made by NumPy alone, and a test case that runs the program in a folder of its own.

A test file ends with tool_fixture.main(), and is started as  test_X.py DLRM_DATA [--sanitized] [unittest's arguments].
"""
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import unittest

import numpy as np

import criteo_oracle as oracle

MLPERF_HOTNESS = [3, 2, 1, 2, 6, 1, 1, 1, 1, 7, 3, 8, 1, 6, 9, 5, 1, 1, 1, 12, 100, 27, 10, 3, 1, 1]


class Rows:
    """label [n], dense [n, 13] (counts as int64, or floats), ids: for each feature [n, hotness]; lengths [n] or None."""

    def __init__(self, label, dense, ids, cards, lengths=None):
        self.label, self.dense, self.ids, self.cards = label, dense, ids, cards
        self.lengths = lengths or [None] * len(ids)

    def pick(self, which):
        return Rows(self.label[which], self.dense[which], [i[which] for i in self.ids], self.cards,
                    [l if l is None else l[which] for l in self.lengths])


def make_rows(n, seed, hotness=(1,) * 26, counts=True, n_dense=13, varying=(), cards=None):
    rng = np.random.default_rng(seed)
    cards = cards or [int(c) for c in rng.choice([2, 100, 126, 127, 1000, 32766, 32767, 70000], len(hotness))]
    dense = np.minimum(rng.zipf(1.4, (n, n_dense)), 100000).astype(np.int64) - 1
    if not counts:
        dense = np.log(dense + 1.0).astype(np.float32)
    ids = [rng.integers(0, c, (n, h)) for c, h in zip(cards, hotness)]
    for k, c in enumerate(cards):
        ids[k][rng.integers(0, n), 0] = c - 1
    lengths = [rng.integers(0, h + 1, n) if k in varying else None for k, h in enumerate(hotness)]
    for k in varying:
        lengths[k][:2] = 0, hotness[k]
        ids[k][np.arange(hotness[k]) >= lengths[k][:, None]] = 0
        ids[k][1, 0] = cards[k] - 1
    return Rows(rng.integers(0, 2, n), dense, ids, cards, lengths)


def records(rows):
    dense = rows.dense.astype("<i4") if rows.dense.dtype.kind == "i" else rows.dense.astype("<f4").view("<i4")
    return np.concatenate([rows.label.astype("<i4")[:, None], dense] + [i.astype("<u4").view("<i4") for i in rows.ids], 1)


def norm(rows, checksum, key="<u4"):
    def unit(payload):
        return struct.pack("<i", len(payload)) + payload + bytes([sum(payload) & 255]) if checksum else payload

    out = [unit(struct.pack("<8q", checksum, len(rows.label), 1, rows.dense.shape[1], len(rows.ids), 0, 0, 0))]
    for i in range(len(rows.label)):
        record = np.float32(rows.label[i]).tobytes() + rows.dense[i].astype("<f4").tobytes()
        for ids, lengths in zip(rows.ids, rows.lengths):
            bag = ids[i] if lengths is None else ids[i][:lengths[i]]
            record += struct.pack("<i", len(bag)) + bag.astype(key).tobytes()
        out.append(unit(record))
    return b"".join(out)


def read_split_binary(folder, split):
    """Rows of one split as the description says, hotness and offsets included."""
    spec = oracle.read_spec(os.path.join(folder, "feature_spec.yaml"))
    features, column = spec["feature_spec"], {}
    for chunk in spec["source_spec"][split]:
        column[tuple(chunk["features"])] = [os.path.join(folder, f) for f in chunk["files"]]
    label = np.fromfile(column[("label",)][0], np.uint8)
    numerical = tuple(spec["channel_spec"]["numerical"])
    dense = np.fromfile(column[numerical][0], features[numerical[0]]["dtype"]).reshape(len(label), -1)
    ids, lengths, cards = [], [], []
    for name in spec["channel_spec"]["categorical"]:
        f = features[name]
        values = np.fromfile(column[(name,)][0], f["dtype"]).astype(np.int64)
        cards.append(f.get("cardinality"))
        if "max_hotness" in f:
            offsets = np.fromfile(column[(name,)][1], np.int64)
            assert offsets[0] == 0 and offsets[-1] == len(values) and len(offsets) == len(label) + 1
            padded = np.zeros((len(label), f["max_hotness"]), np.int64)
            for i in range(len(label)):
                padded[i, :offsets[i + 1] - offsets[i]] = values[offsets[i]:offsets[i + 1]]
            ids.append(padded)
            lengths.append(np.diff(offsets))
        else:
            ids.append(values.reshape(len(label), f.get("hotness", 1)))
            lengths.append(None)
    return Rows(label, dense, ids, cards, lengths), spec


class ToolTest(unittest.TestCase):
    """A test in a folder of its own, in which dlrm_data runs."""
    dlrm_data = ""
    sanitized = False  # such a build runs the same code, slower: with fewer rows

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="dlrm_data_", dir=oracle.scratch_root())
        self.addCleanup(shutil.rmtree, self.dir)

    def path(self, name):
        return os.path.join(self.dir, name)

    def write(self, name, data):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), "wb") as f:
            f.write(data if isinstance(data, bytes) else np.ascontiguousarray(data).tobytes())
        return name

    def bytes_of(self, name):
        with open(self.path(name), "rb") as f:
            return f.read()

    def tool(self, *args, code=0):
        r = subprocess.run([self.dlrm_data] + [str(a) for a in args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.dir)
        self.assertEqual(r.returncode, code, r.stdout + r.stderr)
        return r

    def measured(self, *args):
        """A tool run's peak resident bytes, by the kernel. (A child's ru_maxrss would count this interpreter before exec.)"""
        peak = 0
        with subprocess.Popen([self.dlrm_data] + [str(a) for a in args], cwd=self.dir, stdout=subprocess.DEVNULL) as p:
            while p.poll() is None:
                with open("/proc/%d/status" % p.pid) as f:
                    fields = dict(line.split(":", 1) for line in f)
                if fields["Name"].strip() == "dlrm_data" and "VmHWM" in fields:
                    peak = int(fields["VmHWM"].split()[0]) * 1024
                time.sleep(0.005)
        self.assertEqual(p.returncode, 0)
        return peak

    def fails(self, message, *args, code=1):
        r = self.tool(*args, code=code)
        self.assertIn(message, r.stderr)
        self.assertEqual(r.stderr.count("\n"), 1, r.stderr)
        if "--out" in args:
            out = self.path(args[args.index("--out") + 1])
            self.assertFalse(os.path.exists(out) or os.path.exists(out + ".partial"))

    def assertRows(self, got, want, dense=None):
        np.testing.assert_array_equal(got.label, want.label)
        np.testing.assert_array_equal(got.dense, want.dense if dense is None else dense)
        self.assertEqual(len(got.ids), len(want.ids))
        for k in range(len(want.ids)):
            np.testing.assert_array_equal(got.ids[k], want.ids[k], "feature %d" % k)
            self.assertEqual(got.lengths[k] is None, want.lengths[k] is None)
            if want.lengths[k] is not None:
                np.testing.assert_array_equal(got.lengths[k], want.lengths[k])

    def assertSameFiles(self, a, b, but=()):
        def names(folder):
            return sorted(os.path.relpath(os.path.join(d, f), self.path(folder)) for d, _, files in os.walk(self.path(folder)) for f in files
                          if f not in but)

        self.assertEqual(names(a), names(b))
        for name in names(a):
            self.assertTrue(self.bytes_of(os.path.join(a, name)) == self.bytes_of(os.path.join(b, name)), name)


def main():
    if len(sys.argv) < 2:
        sys.exit("usage: %s DLRM_DATA [--sanitized] [unittest's arguments]" % sys.argv[0])
    ToolTest.dlrm_data = os.path.abspath(sys.argv.pop(1))
    if "--sanitized" in sys.argv:
        sys.argv.remove("--sanitized")
        ToolTest.sanitized = True
    result = unittest.main(module="__main__", verbosity=2, exit=False).result
    ran = result.testsRun - len(result.skipped)
    sys.exit(1 if not result.wasSuccessful() else 0 if ran > 0 else 77)  # 77: skipped, not passed
