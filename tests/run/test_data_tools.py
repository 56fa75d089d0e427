"""dlrm_data info, verify and convert between binary formats, on files written by NumPy:
test_data_tools.py DLRM_DATA [--sanitized] [unittest arguments]"""
import gzip
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import unittest

import numpy as np

import criteo_oracle as oracle

DLRM_DATA = ""
SANITIZED = False
MLPERF_HOTNESS = [3, 2, 1, 2, 6, 1, 1, 1, 1, 7, 3, 8, 1, 6, 9, 5, 1, 1, 1, 12, 100, 27, 10, 3, 1, 1]
FIRST_HALF = 89137319


class Rows:
    """label [n], dense [n, 13] (counts as int64, or floats), ids: for each feature [n, hotness]; lengths [n] or None."""

    def __init__(self, label, dense, ids, cards, lengths=None):
        self.label, self.dense, self.ids, self.cards = label, dense, ids, cards
        self.lengths = lengths or [None] * len(ids)


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


class Case(unittest.TestCase):
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

    def tool(self, *args, code=0):
        r = subprocess.run([DLRM_DATA] + [str(a) for a in args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.dir)
        self.assertEqual(r.returncode, code, r.stdout + r.stderr)
        return r

    def measured(self, *args):
        """A tool run's peak resident bytes, by the kernel. (A child's ru_maxrss would count this interpreter before exec.)"""
        peak = 0
        with subprocess.Popen([DLRM_DATA] + [str(a) for a in args], cwd=self.dir, stdout=subprocess.DEVNULL) as p:
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

    def bytes_of(self, name):
        with open(self.path(name), "rb") as f:
            return f.read()

    def assertSameFiles(self, a, b, but=()):
        def names(folder):
            return sorted(os.path.relpath(os.path.join(d, f), self.path(folder)) for d, _, files in os.walk(self.path(folder)) for f in files
                          if f not in but)

        self.assertEqual(names(a), names(b))
        for name in names(a):
            self.assertTrue(self.bytes_of(os.path.join(a, name)) == self.bytes_of(os.path.join(b, name)), name)


class Records(Case):
    def test_facebook_folder(self):
        train, test, val = make_rows(5000, 1), make_rows(301, 2), make_rows(300, 3)
        for rows in (test, val):
            rows.ids = [i % c for i, c in zip(rows.ids, train.cards)]
        for name, rows in (("day_train.bin", train), ("day_test.bin", test), ("day_val.bin", val)):
            self.write("fb/" + name, records(rows))
        out = self.tool("info", "fb").stdout
        self.assertRegex(out, r"fb: mlperf_bin.*\ntrain +5000 rows, .*\ntest +301 rows.*\nvalidation +300 rows")
        self.assertIn("int32 counts", out)
        for k in range(26):
            self.assertRegex(out, r"\ncat_%d +not said +1 +\d+ +%d " % (k, train.cards[k] - 1))
        self.assertIn("every row verified: no problems", self.tool("verify", "fb").stdout)
        self.tool("convert", "fb", "--out", "split")
        for split, rows in (("train", train), ("test", test)):
            got, spec = read_split_binary(self.path("split"), split)
            self.assertRows(got, rows, np.log(rows.dense + 1.0).astype(np.float32))
            self.assertEqual(got.cards, train.cards)
        self.assertEqual(spec["metadata"], {"dense": "log1", "rows": {"train": 5000, "test": 301, "validation": 300}})
        np.testing.assert_array_equal(np.fromfile(self.path("split/validation/label.bin"), np.uint8), val.label)
        # and back, bit by bit: counts up to 100,000 have different logarithms in float32
        self.tool("convert", "split/", "--to", "mlperf_bin", "--out", "back")
        for ours, theirs in (("train_data.bin", "day_train.bin"), ("test_data.bin", "day_test.bin"), ("val_data.bin", "day_val.bin")):
            self.assertTrue(self.bytes_of("back/" + ours) == self.bytes_of("fb/" + theirs), ours)
        self.tool("convert", "back", "--to", "split_binary", "--out", "again")  # as records.yaml has it
        self.assertSameFiles("split", "again")
        # the cardinalities said, and the other logarithm in 16 bits
        self.tool("convert", "fb", "--out", "log3", "--dense", "log3", "--dense-type", "float16", "--cardinalities",
                  ",".join(str(c + 1) for c in train.cards))
        got, spec = read_split_binary(self.path("log3"), "train")
        self.assertEqual(got.cards, [c + 1 for c in train.cards])
        self.assertRows(got, train, np.log(train.dense + 3.0).astype(np.float32).astype(np.float16))
        self.tool("convert", "log3", "--to", "hugectr_raw", "--dense", "counts", "--out", "counts")
        got = np.fromfile(self.path("counts/train_data.bin"), "<i4").reshape(-1, 40)
        self.assertTrue(np.array_equal(np.log(got[:, 1:14] + 3.0).astype(np.float32).astype(np.float16), log3_of(self.path("log3"))))

    def test_hugectr(self):
        rows = make_rows(2000, 4, MLPERF_HOTNESS, counts=False)
        self.write("raw/train_data.bin", records(rows))
        self.assertEqual(os.path.getsize(self.path("raw/train_data.bin")), 912 * 2000)
        out = self.tool("info", "raw").stdout
        self.assertIn("raw: hugectr_raw", out)
        self.assertIn("26 of 214 ids a row", out)
        self.tool("convert", "raw", "--out", "split")
        got, _ = read_split_binary(self.path("split"), "train")
        self.assertRows(got, rows)
        self.assertEqual(got.cards, rows.cards)
        self.tool("convert", "split", "--to", "hugectr_raw", "--out", "back")
        self.assertTrue(self.bytes_of("back/train_data.bin") == self.bytes_of("raw/train_data.bin"))
        # another make-up, said
        odd = make_rows(700, 5, (2, 1, 4), counts=False, n_dense=3)
        self.write("odd.bin", records(odd))
        how = ["--dense-features", 3, "--hotness", "2,1,4"]
        self.tool("convert", "odd.bin", "--from", "hugectr_raw", *how, "--out", "odd")
        got, _ = read_split_binary(self.path("odd"), "train")
        self.assertRows(got, odd)
        self.fails("odd.bin: found 30800 bytes, which are 592 records and 16 bytes; expected a multiple of 52 bytes", "info", "odd.bin",
                   "--from", "hugectr_raw", "--dense-features", 4, "--hotness", "2,1,5")
        self.tool("convert", "raw", "--from-dense", "log1", "--out", "split1")
        self.fails("feature cat_0: 3 ids a row, but mlperf_bin has one; use hugectr_raw", "convert", "split1", "--to", "mlperf_bin", "--out", "no")
        self.fails("13 dense values, 26 features and 214 ids a row; Criteo's text has 13, 26 and 26", "convert", "split1", "--to", "text", "--out", "no")

    def test_kinds_of_160_bytes(self):
        # T1, T2: three records of the same size, told apart by their bits, or refused
        counts, floats = make_rows(3000, 6), make_rows(3000, 7, counts=False)
        self.write("counts.bin", records(counts))
        self.write("floats.bin", records(floats))
        self.assertIn("counts.bin: mlperf_bin", self.tool("info", "counts.bin").stdout)
        self.assertIn("floats.bin: hugectr_raw", self.tool("info", "floats.bin").stdout)
        out = self.tool("info", "floats.bin", "--from", "mlperf_bin").stdout
        self.assertIn("note: float32 dense values in facebook's record", out)
        self.fails("floats.bin: the dense values are float32 values (of", "convert", "floats.bin", "--from", "mlperf_bin", "--from-dense", "counts",
                   "--out", "no")
        mixed = np.concatenate([records(counts), records(floats), records(counts)])
        self.write("mixed.bin", mixed)
        self.fails("mixed.bin: cannot tell whether the dense values are int32 counts or float32: of", "convert", "mixed.bin", "--from",
                   "mlperf_bin", "--out", "no")
        self.fails("nothing says how the dense values were made, and mlperf_bin wants counts: say it with --from-dense", "convert", "floats.bin",
                   "--to", "mlperf_bin", "--out", "no", code=2)
        self.tool("convert", "floats.bin", "--to", "mlperf_bin", "--from-dense", "log1", "--out", "yes")
        got = np.fromfile(self.path("yes/train_data.bin"), "<i4").reshape(-1, 40)
        np.testing.assert_array_equal(np.log(got[:, 1:14] + 1.0).astype(np.float32), floats.dense)
        floats.dense[2000, 5] = 1.25  # ln(x+1) of no count
        self.write("floats.bin", records(floats))
        self.fails("floats.bin: row 2000: value 1.25 in column 5 is not ln(x+1) of a count", "convert", "floats.bin", "--to", "mlperf_bin",
                   "--from-dense", "log1", "--out", "no")

    def test_bad_values(self):
        rows = make_rows(2500, 8)
        good = records(rows)

        def bad(row, column, value):
            data = good.copy()
            data[row, column] = value
            self.write("bad/train_data.bin", data)

        said = ["--cardinalities", ",".join(map(str, rows.cards))]
        for row, column, value, message in [
            (2000, 0, 0x3F800000, "train_data.bin: row 2000: label 1065353216, the bits of float 1; expected an int32 0 or 1"),  # T3
            (1300, 0, -1, "train_data.bin: row 1300: label -1 is neither 0 nor 1"),
            (1300, 3, -5, "train_data.bin: row 1300: count -5 in column 2 is negative"),
            (1234, 14, rows.cards[0], "train_data.bin: row 1234: id %d is outside [0, %d) of table cat_0: one too many; is the number of rows the"
                                      " largest id?" % (rows.cards[0], rows.cards[0])),  # T4, T5
            (1234, 39, -1, "train_data.bin: row 1234: id 4294967295 is outside [0, %d) of table cat_25, or negative as an int32" % rows.cards[25]),  # T6
        ]:
            bad(row, column, value)
            self.fails(message, "convert", "bad", "--from", "mlperf_bin", "--from-dense", "counts", *said, "--out", "no")
            r = self.tool("verify", "bad", "--from", "mlperf_bin", "--from-dense", "counts", *said, code=1)
            self.assertIn("problem: bad/" + message, r.stdout)
            self.assertEqual(r.stderr, "dlrm_data: bad: 1 problem found\n")
        data = good.copy()
        data[[5, 700, 701], 0] = 7
        data[[9, 10], 20] = -1
        self.write("bad/train_data.bin", data)
        r = self.tool("verify", "bad", "--from", "mlperf_bin", "--from-dense", "counts", *said, code=1)
        self.assertIn("row 5: label 7 is neither 0 nor 1 (and 2 more: rows with a bad label or dense value)", r.stdout)
        self.assertIn("row 9: id 4294967295", r.stdout)
        self.assertIn("dlrm_data: bad: 5 problems found", r.stderr)
        # float labels throughout, T3
        data = good.copy()
        data[:, 0] *= 0x3F800000
        self.write("float_labels.bin", data)
        self.fails("have a label of 1065353216, the bits of float 1", "convert", "float_labels.bin", "--from", "hugectr_raw", "--out", "no")
        # a file that is cut off, T10
        self.write("cut.bin", good.tobytes()[:-40])
        self.fails("cut.bin: found 399960 bytes, which are 2499 records and 120 bytes; expected a multiple of 160 bytes", "convert", "cut.bin", "--from",
                   "mlperf_bin", "--out", "no")
        self.write("empty.bin", b"")
        self.fails("empty.bin: the file is empty", "info", "empty.bin")

    def test_offsets_of_one_table(self):
        rows = make_rows(1500, 9)
        base = 0
        for k, c in enumerate(rows.cards):
            rows.ids[k] = rows.ids[k] + base
            base += c
        self.write("flat.bin", records(rows))
        r = self.tool("info", "flat.bin", code=1)
        self.assertIn("problem: flat.bin: each feature's ids lie above those of the one before it", r.stdout)

    def test_large_ids_and_known_tables(self):  # T7: ids above 2^24; T17: two lists of 40 M, told apart by their sums
        v1 = [39884406, 39043, 17289, 7420, 20263, 3, 7120, 1543, 63, 38532951, 2953546, 403346, 10, 2208, 11938, 155, 4, 976, 14, 39979771, 25641295,
              39664984, 585935, 12972, 108, 36]
        rows = make_rows(1000, 12, cards=v1)
        self.assertGreater((rows.ids[0] > 2**24).sum(), 100)
        self.write("v1/train_data.bin", records(rows))
        self.tool("convert", "v1", "--cardinalities", ",".join(map(str, v1)), "--out", "split")
        got, _ = read_split_binary(self.path("split"), "train")
        for k in range(26):
            np.testing.assert_array_equal(got.ids[k], rows.ids[k])
        self.assertIn("187767399 table rows (MLPerf DLRM v1: modulo 40 M before the vocabulary)", self.tool("info", "split").stdout)
        self.tool("convert", "split", "--to", "mlperf_bin", "--out", "back")
        self.assertTrue(self.bytes_of("back/train_data.bin") == self.bytes_of("v1/train_data.bin"))

    def sparse(self, name, rows, at, data):
        """A file of so many records, most of them holes."""
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), "wb") as f:
            f.truncate(160 * rows)
            for row in at:
                f.seek(160 * row)
                f.write(data.tobytes())

    def test_more_rows_than_fit_31_bits(self):  # T8: 4,195,197,692 rows, 671 GB of holes
        data = records(make_rows(1200, 10))
        self.sparse("huge/day_train.bin", 4195197692, (0, 2**31, 4195197692 - 1200), data)
        out = self.tool("info", "huge", "--from", "mlperf_bin").stdout
        self.assertRegex(out, r"huge: mlperf_bin, 671.232 GB\ntrain +4195197692 rows")
        self.assertIn("no problems", out)
        data[:, 14] = 70001
        self.sparse("huge/day_train.bin", 4195197692, (0, 2**31, 4195197692 - 1200), data)
        r = self.tool("info", "huge", "--cardinalities", ",".join(["70000"] * 26), code=1)
        self.assertRegex(r.stdout, r"day_train.bin: row \d+: id 70001 is outside")

    def test_halves_of_the_last_day(self):  # T14: by rows and not by name
        data = records(make_rows(1200, 11))
        for name, rows in (("train_data.bin", 5000), ("val_data.bin", FIRST_HALF), ("test_data.bin", FIRST_HALF - 1)):
            self.sparse("halves/" + name, rows, (0, (rows - 1024) // 2, rows - 1200), data)
        out = self.tool("info", "halves").stdout
        self.assertRegex(out, r"test +%d rows" % FIRST_HALF)
        self.assertIn("note: val holds the 89137319 rows that MLPerf scores", out)


def log3_of(folder):
    return np.fromfile(os.path.join(folder, "train/numerical.bin"), np.float16).reshape(-1, 13)


class Norm(Case):
    def test_layouts(self):
        for key in ("<u4", "<i8"):
            for checksum in (0, 1):
                for varying in ((), (0, 2)):
                    rows = make_rows(400, 20, (2, 1, 3, 1), counts=False, n_dense=5, varying=varying)
                    name = "%s_%d_%d" % (key[1:], checksum, len(varying))
                    self.write(name + ".bin", norm(rows, checksum, key))
                    out = self.tool("verify", name + ".bin").stdout
                    self.assertIn("hugectr_norm", out)
                    self.assertIn("every row verified: no problems", out)
                    self.tool("convert", name + ".bin", "--out", name)
                    got, _ = read_split_binary(self.path(name), "train")
                    self.assertRows(got, rows)
                    self.assertEqual(got.cards, rows.cards)
                    if not varying:
                        self.tool("convert", name, "--to", "hugectr_raw", "--out", name + "_raw")
                        self.assertTrue(self.bytes_of(name + "_raw/train_data.bin") == records(rows).tobytes())
                    else:
                        self.fails("feature cat_0: a varying number of ids, which hugectr_raw cannot hold", "convert", name, "--to", "hugectr_raw",
                                   "--out", "no")
                        # what varies survives a copy
                        self.tool("convert", name, "--out", name + "_copy")
                        self.assertSameFiles(name, name + "_copy")

    def test_file_lists(self):
        rows = [make_rows(n, 30 + n, (1, 1), counts=False, n_dense=2) for n in (10, 25, 7)]
        for i, r in enumerate(rows):
            self.write("norm/part_%d.bin" % i, norm(r, 1))
        self.write("norm/file_list.txt", b"2\n/elsewhere/part_0.bin\n/elsewhere/part_1.bin\n")  # T8 of HugeCTR: absolute, and moved
        self.write("norm/file_list_test.txt", b"1\nnorm/part_2.bin\n")
        self.assertRegex(self.tool("info", "norm").stdout, r"hugectr_norm.*\ntrain +35 rows.*\ntest +7 rows")
        self.tool("convert", "norm", "--out", "split")
        got, _ = read_split_binary(self.path("split"), "train")
        np.testing.assert_array_equal(got.ids[0], np.concatenate([rows[0].ids[0], rows[1].ids[0]]))
        np.testing.assert_array_equal(got.dense, np.concatenate([rows[0].dense, rows[1].dense]))
        self.write("norm/file_list.txt", b"3\nnorm/part_0.bin\n")
        self.fails("norm/file_list.txt: line 3: expected one of 3 files, found the end", "info", "norm")

    def test_damage(self):
        rows = make_rows(50, 40, (1, 2), counts=False, n_dense=2)
        good = norm(rows, 1)
        unit = 4 + 4 * (1 + 2 + 1 + 1 + 1 + 2) + 1  # bytes of a record's unit
        damaged = bytearray(good)
        damaged[69 + 3 * unit + 10] ^= 1  # a float of record 3
        self.write("sum.bin", bytes(damaged))
        self.fails("sum.bin: row 3 of its split: the checksum is ", "verify", "sum.bin")
        self.write("cut.bin", good[:-20])
        self.fails("cut.bin: row 49 of its split: the file ends here; is it cut off", "verify", "cut.bin")
        self.write("more.bin", good + b"xxxx")
        self.fails("bytes after the last record", "verify", "more.bin")
        self.write("keys.bin", norm(rows, 0, "<i8"))
        self.fails("are its keys of the other width?", "verify", "keys.bin", "--key-bits", 32)
        self.fails("--key-bits: 33, expected tried or 32 or 64", "verify", "keys.bin", "--key-bits", 33, code=2)
        label = bytearray(norm(rows, 0))
        label[64:68] = np.float32(2).tobytes()
        self.write("label.bin", bytes(label))
        self.fails("label.bin: row 0 of its split: label 2 is neither 0 nor 1", "verify", "label.bin")


class Npy(Case):
    def save(self, name, rows, ids_dtype, multi_hot=False):
        os.makedirs(self.path("npy"), exist_ok=True)
        np.save(self.path("npy/%s_labels.npy" % name), rows.label.astype(np.int32)[:, None])
        np.save(self.path("npy/%s_dense.npy" % name), rows.dense)
        if multi_hot:
            np.savez(self.path("npy/%s_sparse_multi_hot.npz" % name), **{str(k): i.astype(ids_dtype) for k, i in enumerate(rows.ids)})
        else:
            np.save(self.path("npy/%s_sparse.npy" % name), np.concatenate(rows.ids, 1).astype(ids_dtype))

    def days(self, hotness, multi_hot=False):
        """Three days of 300, 250 and 201 rows, the last with ids of int64 (T15); all of them as one."""
        rows = make_rows(751, 90, hotness, counts=False)
        cut = [0, 300, 550, 751]
        for d in range(3):
            some = Rows(rows.label[cut[d]:cut[d + 1]], rows.dense[cut[d]:cut[d + 1]], [i[cut[d]:cut[d + 1]] for i in rows.ids], rows.cards)
            self.save("day_%d" % d, some, np.int64 if d == 2 and not multi_hot else np.int32, multi_hot)
        return rows

    def check(self, folder, rows):
        for split, begin, end in (("train", 0, 550), ("test", 550, 651)):  # the first half of 201, rounded up (T14)
            got, _ = read_split_binary(self.path(folder), split)
            self.assertRows(got, Rows(rows.label[begin:end], rows.dense[begin:end], [i[begin:end] for i in rows.ids], rows.cards))
        np.testing.assert_array_equal(np.fromfile(self.path(folder + "/validation/label.bin"), np.uint8), rows.label[651:])

    def test_one_hot_days(self):
        rows = self.days((1,) * 5)
        out = self.tool("verify", "npy").stdout
        self.assertRegex(out, r"npy: npy.*\nnote: test is the first half of the last day.*\ntrain +550 rows.*\ntest +101 rows.*\nvalidation +100 rows")
        self.assertIn("no problems", out)
        said = ["--cardinalities", ",".join(map(str, rows.cards))]
        self.tool("convert", "npy", *said, "--out", "split")
        self.check("split", rows)
        self.tool("convert", "npy", "--to", "hugectr_raw", "--out", "raw")
        self.assertTrue(self.bytes_of("raw/train_data.bin") == records(rows)[:550].tobytes())
        self.tool("shuffle", "npy", *said, "--seed", 4, "--out", "shuffled")
        got, _ = read_split_binary(self.path("shuffled"), "train")
        np.testing.assert_array_equal(got.dense, rows.dense[oracle.shuffle_order(np.arange(550), 4)])
        self.fails("--cardinalities has 2 values, expected one for each of the 5 features", "convert", "npy", "--cardinalities", "7,7", "--out", "no", code=2)

    def test_multi_hot_days(self):
        rows = self.days(MLPERF_HOTNESS, multi_hot=True)
        self.tool("convert", "npy", "--out", "split", "--cardinalities", ",".join(map(str, rows.cards)))
        self.check("split", rows)

    def test_bad_days(self):
        rows = self.days((1,) * 5)
        good = make_rows(100, 91, (1,) * 5, counts=False, cards=rows.cards)
        for change, message in [
            (lambda r: r.label.__setitem__(7, -1), "npy/day_1_labels.npy: row 7: label -1 is neither 0 nor 1"),  # Kaggle's test: a filler
            (lambda r: r.dense.__setitem__((8, 2), np.nan), "npy/day_1_dense.npy: row 8: value nan in column 2 is not finite"),
            (lambda r: r.ids[3].__setitem__((9, 0), -5), "npy/day_1_sparse.npy: row 9: feature cat_3: id -5 is outside [0, "),
        ]:
            bad = Rows(good.label.copy(), good.dense.copy(), [i.copy() for i in good.ids], good.cards)
            change(bad)
            self.save("day_1", bad, np.int32)
            self.fails(message, "convert", "npy", "--out", "no")
            self.assertIn("problem: " + message, self.tool("verify", "npy", code=1).stdout)
        keys = np.stack([np.ravel(i) for i in good.ids], axis=1).astype(np.int64)
        keys[9, 3] = 2 ** 40
        self.save("day_1", good, np.int32)
        np.save(self.path("npy/day_1_sparse.npy"), keys)
        self.fails("row 9: feature cat_3: id 1099511627776 is outside [0, 4294967296); keys of 64 bits, for a table with rows: dynamic, are not checked",
                   "convert", "npy", "--out", "no")
        self.save("day_1", good, np.int32)
        np.save(self.path("npy/day_1_dense.npy"), good.dense[:99])  # T10
        self.fails("npy/day_1_dense.npy: found 99 x 13 of float32, expected 100 rows of float16 or float32", "verify", "npy")
        np.save(self.path("npy/day_1_dense.npy"), good.dense[:, :12])
        self.fails("npy/day_1_labels.npy: its arrays have other columns than those of npy/day_0_labels.npy", "verify", "npy")
        os.remove(self.path("npy/day_1_dense.npy"))
        self.fails("npy/day_1_dense.npy: ", "verify", "npy")
        self.days(MLPERF_HOTNESS, multi_hot=True)
        for d in range(3):
            os.remove(self.path("npy/day_%d_sparse.npy" % d))
        np.savez_compressed(self.path("npy/day_0_sparse_multi_hot.npz"), **{str(k): np.zeros((300, h), np.int32) for k, h in enumerate(MLPERF_HOTNESS)})
        self.fails("npy/day_0_sparse_multi_hot.npz", "verify", "npy")  # T20: deflated


class SplitBinary(Case):
    def folder(self, rows, extra=b""):
        """As PyYAML writes it: sorted keys, anchors and aliases, names that end in .bin (T21)."""
        features = b"".join(b"  cat_%d.bin:\n    cardinality: %d\n    dtype: int32\n" % (k, c) for k, c in sorted(enumerate(rows.cards), key=lambda x: str(x)))
        spec = b"channel_spec:\n  categorical:\n" + b"".join(b"  - cat_%d.bin\n" % k for k in range(len(rows.ids)))
        spec += b"  label:\n  - label\n  numerical: &id001\n" + b"".join(b"  - num_%d\n" % j for j in range(rows.dense.shape[1]))
        spec += b"feature_spec:\n" + features + b"  label:\n    dtype: bool\n"
        spec += b"".join(b"  num_%d:\n    dtype: float16\n" % j for j in range(rows.dense.shape[1])) + b"metadata: {}\nsource_spec:\n  train:\n"
        spec += b"  - features: *id001\n    files:\n    - train/numerical.bin\n    type: split_binary\n"
        spec += b"  - features:\n    - label\n    files:\n    - train/label.bin\n    type: split_binary\n"
        for k in range(len(rows.ids)):
            spec += b"  - features:\n    - cat_%d.bin\n    files:\n    - train/cat_%d.bin\n    type: split_binary\n" % (k, k)
            self.write("dle/train/cat_%d.bin" % k, rows.ids[k].astype("<i4"))
        self.write("dle/feature_spec.yaml", spec)
        self.write("dle/train/label.bin", rows.label.astype(np.uint8))
        self.write("dle/train/numerical.bin", rows.dense.astype(np.float16))

    def test_nvidia_folder(self):
        rows = make_rows(1500, 50, counts=False)
        self.folder(rows)
        out = self.tool("info", "dle").stdout
        self.assertIn("dle: split_binary", out)
        self.assertIn("float16, floats, made in a way that nothing here tells", out)
        self.tool("convert", "dle", "--to", "hugectr_raw", "--out", "raw")
        rows.dense = rows.dense.astype(np.float16).astype(np.float32)
        self.assertTrue(self.bytes_of("raw/train_data.bin") == records(rows).tobytes())
        self.assertIn("dense: floats", self.bytes_of("raw/records.yaml").decode())
        # T5: model_size.json has the largest id
        os.remove(self.path("dle/feature_spec.yaml"))
        sizes = ", ".join('"_c%d": %d' % (14 + k, c - 1) for k, c in enumerate(rows.cards))
        for k, c in enumerate(rows.cards):
            rows.ids[k].astype(oracle.id_dtype(c)).tofile(self.path("dle/train/cat_%d.bin" % k))
        self.write("dle/model_size.json", ("{%s}" % sizes).encode())
        self.tool("convert", "dle", "--to", "hugectr_raw", "--out", "raw2")
        self.assertTrue(self.bytes_of("raw2/train_data.bin") == self.bytes_of("raw/train_data.bin"))

    def test_bad_values(self):
        rows = make_rows(500, 51, counts=False)
        self.folder(rows)
        for name, at, value, message in [
            ("cat_7.bin", 123, np.int32(rows.cards[7]), "dle/train/cat_7.bin: row 123: id %d is outside [0, %d): one too many; is the cardinality the"
                                                        " largest id?" % (rows.cards[7], rows.cards[7])),
            ("cat_7.bin", 124, np.int32(-1), "dle/train/cat_7.bin: row 124: id -1 is outside"),
            ("label.bin", 3, np.uint8(2), "dle/train/label.bin: row 3: label 2 is neither 0 nor 1"),
            ("numerical.bin", 13 * 9 + 4, np.float16(np.inf), "dle/train/numerical.bin: row 9: value inf in column 4 is not finite"),
        ]:
            path = self.path("dle/train/" + name)
            good = self.bytes_of("dle/train/" + name)
            data = np.frombuffer(good, value.dtype).copy()
            data[at] = value
            data.tofile(path)
            r = self.tool("verify", "dle", code=1)
            self.assertIn("problem: " + message, r.stdout)
            self.fails(message, "convert", "dle", "--to", "hugectr_raw", "--out", "no")
            self.write("dle/train/" + name, good)
        self.assertIn("no problems", self.tool("verify", "dle").stdout)
        self.write("dle/train/cat_3.bin", self.bytes_of("dle/train/cat_3.bin")[:-4])  # T10: rows, not batches
        self.fails("dle/train/cat_3.bin: found 1996 bytes, which are 499 rows of 4 bytes; expected 500 rows", "verify", "dle")

    def test_files_cut_alike(self):
        """Files that all end at the same row agree with each other; the description of dlrm_data knows better (T10)."""
        self.tool("synth", "--rows", 700, "--out", "t.txt")
        for split, rows in (("train", 600), ("test", 60), ("validation", 40)):
            self.tool("convert", "t.txt", "--out", split + "_cut", "--test-rows", 60)
            for name in os.listdir(self.path("%s_cut/%s" % (split, split))):
                path = self.path("%s_cut/%s/%s" % (split, split, name))
                os.truncate(path, os.path.getsize(path) // rows * (rows - 1))
            self.fails("%s_cut/%s/label.bin: found %d bytes, which are %d rows of 1 bytes; expected %d rows as metadata.rows says in "
                       "%s_cut/feature_spec.yaml" % (split, split, rows - 1, rows - 1, rows, split), "verify", split + "_cut")


class Keys(Case):
    """Columns of keys of 64 bits: one, three and a varying number a row, beside one of ids."""

    def make(self, n=3000):
        rng = np.random.default_rng(60)
        rows = make_rows(n, 61, (1, 1, 3, 4), counts=False, n_dense=2, varying=(3,), cards=[100, 2 ** 31, 2 ** 31, 2 ** 31])
        pool = rng.integers(-2 ** 63, 2 ** 63, 500)
        pool[:4] = -2 ** 63, 2 ** 63 - 1, 0, -1
        for k in (1, 2, 3):
            rows.ids[k] = pool[rng.integers(0, len(pool), rows.ids[k].shape)]
        rows.ids[3][np.arange(4) >= rows.lengths[3][:, None]] = 0
        rows.ids[1][:4, 0] = pool[:4]
        return rows

    def folder(self, rows, keys=b"keys: true, "):
        spec = b"channel_spec: {label: [y], numerical: [a, b], categorical: [item, user, tags, history]}\nfeature_spec:\n  y: {dtype: int8}\n" + \
            b"  a: {dtype: float32}\n  b: {dtype: float32}\n  item: {dtype: int32, cardinality: 100}\n  user: {%sdtype: int64}\n" % keys + \
            b"  tags: {%sdtype: int64, hotness: 3}\n  history: {%sdtype: int64, max_hotness: 4}\nsource_spec:\n  train:\n" % (keys, keys)
        files = [("y", rows.label.astype(np.int8)), ("a, b", rows.dense.astype("<f4")), ("item", rows.ids[0].astype("<i4"))]
        files += [(name, rows.ids[k].astype("<i8")) for k, name in ((1, "user"), (2, "tags"))]
        for name, data in files:
            file = name.replace(", ", "") + ".bin"
            spec += b"  - {type: split_binary, features: [%s], files: [train/%s]}\n" % (name.encode(), file.encode())
            self.write("d/train/" + file, data)
        values = rows.ids[3][np.arange(4) < rows.lengths[3][:, None]]
        self.write("d/train/history.bin", values.astype("<i8"))
        self.write("d/train/history.offsets.bin", np.concatenate([[0], np.cumsum(rows.lengths[3])]).astype("<i8"))
        spec += b"  - {type: split_binary, features: [history], files: [train/history.bin, train/history.offsets.bin]}\n"
        self.write("d/feature_spec.yaml", spec)

    def test_verified_converted_shuffled(self):
        rows = self.make()
        self.folder(rows)
        said = self.tool("verify", "d").stdout
        self.assertIn("no problems", said)
        self.assertIn("4 of up to 9 ids a row; 100 table rows", said)
        self.assertRegex(said, r"user +keys +1 +-9223372036854775808 +9223372036854775807 ")
        self.assertRegex(said, r"history +keys +0-4 ")
        self.tool("convert", "d", "--to", "split_binary", "--out", "again")
        got, spec = read_split_binary(self.path("again"), "train")
        self.assertRows(got, rows, rows.dense.astype("<f4"))
        self.assertEqual([spec["feature_spec"]["cat_%d.bin" % k] for k in (1, 2, 3)],
                         [{"keys": "true", "dtype": "int64"}, {"keys": "true", "dtype": "int64", "hotness": 3}, {"keys": "true", "dtype": "int64", "max_hotness": 4}])
        self.assertIn("no problems", self.tool("verify", "again").stdout)
        self.tool("shuffle", "d", "--seed", 7, "--out", "mixed")
        order = oracle.shuffle_order(np.arange(len(rows.label)), 7)
        got, _ = read_split_binary(self.path("mixed"), "train")
        self.assertRows(got, Shuffle.pick(self, rows, order), rows.dense.astype("<f4")[order])

    def test_refused(self):
        rows = self.make(50)
        self.folder(rows)
        for to in ("hugectr_raw", "mlperf_bin", "text"):
            self.fails("feature user: keys of 64 bits, which %s cannot hold; split_binary has them" % to, "convert", "d", "--to", to, "--from-dense", "log1",
                       "--out", "no")
        self.fails("feature user: keys of 64 bits, which no bags of random ids are made of", "multihot", "d", "--hotness", "1,1,1,1", "--out", "no")
        self.folder(rows, b"keys: maybe, ")
        self.fails('d/feature_spec.yaml:9:19: feature_spec.history.keys: found "maybe", expected true or false', "verify", "d")
        self.folder(rows, b"keys: false, ")
        self.fails("feature_spec.history.cardinality is missing", "verify", "d")
        self.folder(rows, b"cardinality: 100, ")  # not said to be keys
        self.assertRegex(self.tool("verify", "d", code=1).stdout, r"id -?\d+ is outside \[0, 100\); keys of 64 bits, for a table with rows: dynamic, are "
                                                                  r"told by keys: true in feature_spec.yaml")


class Text(Case):
    def make(self, rows, seed=1):
        self.tool("synth", "--rows", rows, "--seed", seed, "--out", "t%d.txt" % seed)
        with open(self.path("t%d.txt" % seed), "rb") as f:  # counts whose logarithm in float32 is their own
            parsed, _ = oracle.parse([f.read()])
        keep = (np.nan_to_num(parsed.dense) < 200000).all(1)
        lines = [l for l, k in zip(self.bytes_of("t%d.txt" % seed).splitlines(True), keep) if k]
        return self.write("text.txt", b"".join(lines)), parsed.pick(keep)

    def test_there_and_back(self):
        text, _ = self.make(6000)
        self.tool("convert", text, "--out", "split", "--dense-type", "float32", "--test-rows", 300)
        self.tool("convert", "split", "--to", "text", "--vocab", "split", "--out", "back")
        self.assertTrue(b"".join(self.bytes_of("back/%s.txt" % s) for s in ("train", "test", "validation")) == self.bytes_of("text.txt"))
        self.fails("--memory: 0 MiB, expected at least 4 bytes for each id", "convert", "split", "--to", "text", "--vocab", "split", "--memory",
                   "1000", "--out", "no", code=2)

    def test_to_records(self):
        text, rows = self.make(5000)
        vocabs = oracle.vocabularies(rows.ids)
        ids = oracle.apply_vocabularies(rows.ids, vocabs)
        counts = np.maximum(np.nan_to_num(rows.dense), 0).astype(np.int64)
        want = np.concatenate([rows.label[:, None], counts, ids], 1).astype("<i4")
        cut = len(rows) - int(len(rows) * 0.25 + 1e-6)
        self.tool("convert", text, "--to", "mlperf_bin", "--out", "m", "--test-fraction", 0.25, "--test-rows", 100)
        for name, begin, end in (("train", 0, cut), ("test", cut, cut + 100), ("val", cut + 100, len(rows))):
            np.testing.assert_array_equal(np.fromfile(self.path("m/%s_data.bin" % name), "<i4").reshape(-1, 40), want[begin:end])
        self.assertFalse(os.path.exists(self.path("m/columns")))
        out = self.tool("verify", "m").stdout
        self.assertIn("no problems", out)
        for k in range(26):
            self.assertRegex(out, r"\ncat_%d +%d +1 " % (k, len(vocabs[k]) + 1))
        order = oracle.shuffle_order(np.arange(len(rows)), 5)
        self.tool("convert", text, "--to", "hugectr_raw", "--dense", "log3", "--out", "h", "--test-fraction", 0, "--shuffle", 5)
        got = np.fromfile(self.path("h/train_data.bin"), "<i4").reshape(-1, 40)
        np.testing.assert_array_equal(got[:, 14:], ids[order])
        np.testing.assert_array_equal(np.ascontiguousarray(got[:, 1:14]).view("<f4"), oracle.dense_values(rows.dense, "log3", "float32")[order])
        # through split_binary it is the same
        self.tool("convert", text, "--out", "s", "--dense-type", "float32", "--dense", "log3", "--test-fraction", 0, "--shuffle", 5)
        self.tool("convert", "s", "--to", "hugectr_raw", "--out", "h2")
        self.assertSameFiles("h", "h2", but=["convert.json"])
        self.fails("--dense: log1, expected counts", "convert", text, "--to", "mlperf_bin", "--dense", "log1", "--out", "no", code=2)
        self.fails("--dense-type: float16, but mlperf_bin has 4 bytes", "convert", text, "--to", "mlperf_bin", "--dense-type", "float16", "--out", "no", code=2)
        self.fails("--shuffle is for text; the input is mlperf_bin, which 'dlrm_data shuffle' shuffles", "convert", "m", "--shuffle", 1, "--out", "no", code=2)
        self.assertIn("m: exists already", self.tool("convert", "s", "--to", "hugectr_raw", "--out", "m", code=1).stderr)

    def test_info(self):
        text, rows = self.make(3000)
        out = self.tool("verify", text).stdout
        self.assertRegex(out, r"text.txt: text, .*\nrows +%d\n" % len(rows))
        self.assertIn("%.3f %% with label 1" % (100 * rows.label.mean()), out)
        self.assertIn("every row verified: no problems", out)
        data = self.bytes_of("text.txt")
        self.write("t.gz", gzip.compress(data))
        self.assertRegex(self.tool("verify", "t.gz").stdout, r"\nrows +%d\n" % len(rows))
        self.assertRegex(self.tool("info", "text.txt", "--sample", 500).stdout, r"rows +about \d+, by the 500 lines looked at")
        self.write("cut.txt", data[:-30])
        r = self.tool("verify", "cut.txt", code=1)
        self.assertIn("problem: cut.txt: the last line does not end in a line break; was the file cut off?", r.stdout)
        self.assertRegex(r.stdout, r"problem: cut.txt: line %d: .*\(malformed lines: 1 of %d\)" % (len(rows), len(rows)))

    def test_what_is_not_read(self):
        line = b"\t".join([b"1"] * 14 + [b"00c5ffb7"] * 26) + b"\n"
        for name, data, message in [
            ("test.txt", line[2:], "test.txt: Criteo's text without labels (39 fields, as Kaggle's test.txt)"),
            ("deepctr.txt", b"label,I1,I2,C1\n1,5.0,,05db9164\n", "deepctr.txt: comma-separated text; expected Criteo's 40 fields"),
            ("few.txt", b"1\t2\t3\n", "few.txt: text whose first line has 3 fields, expected Criteo's 40"),
            ("a.npz", b"PK\x03\x04" + bytes(100), "a.npz: a zip archive (facebook's or torchrec's .npz)"),
            ("a.npy", b"\x93NUMPY\x01\x00" + bytes(100), "a.npy: a NumPy array"),
            ("part_0.parquet", b"PAR1" + bytes(100), "part_0.parquet: a Parquet file (NVTabular's): not read by dlrm_data"),
            ("noise.bin", bytes(range(1, 240)) * 7, "noise.bin: 1673 bytes that are none of the known formats"),
            ("zeros.bin", bytes(1600), "zeros.bin: 1600 bytes that are none of the known formats"),
        ]:
            self.write(name, data)
            self.fails(message, "info", name)
        for files, message in [
            (["sok/category.bin", "sok/metadata.json"], "sok: whole matrices"),
            (["nvt/_metadata.json", "nvt/_file_list.txt", "nvt/_metadata"], "nvt: a Parquet folder (NVTabular's)"),
            (["one/label.bin", "one/cat_0.bin"], "one: one split of a split_binary folder"),
            (["days/day_0"], "days: a folder of Criteo's text; name its files"),
            (["none/x"], "none: a folder of none of the known formats"),
        ]:
            for f in files:
                self.write(f, b"x")
            self.fails(message, "info", files[0].split("/")[0])
            self.fails(message, "convert", files[0].split("/")[0], "--out", "no")
        self.fails("nowhere: No such file or directory", "info", "nowhere")
        self.fails("expected one PATH", "verify", code=2)

    def test_records_yaml(self):
        rows = make_rows(100, 60, (1, 2))
        self.write("r/train_data.bin", records(rows))
        good = b"format: hugectr_raw\ndense_features: 13\ndense: counts\nfiles:\n  train: {name: train_data.bin, rows: 100}\ntables:\n" + \
            b"- {name: a, rows: %d, hotness: 1}\n- {name: b, rows: %d, hotness: 2}\n" % tuple(rows.cards)
        self.write("r/records.yaml", good)
        self.assertIn("no problems", self.tool("verify", "r").stdout)
        for old, new, message in [
            (b"hugectr_raw", b"hugectr_cooked", "r/records.yaml:1:9: format: found hugectr_cooked, expected one of mlperf_bin, hugectr_raw"),
            (b"dense: counts", b"dense: log4", "r/records.yaml:3:8: dense: found log4, expected one of counts, log1, log3, floats"),
            (b"dense: counts", b"dense: log1", "r/train_data.bin: the dense values are int32 counts"),
            (b"13", b"many", "r/records.yaml:2:17: dense_features: found many, expected an integer from 0"),
            (b"hotness: 2", b"hotness: 0", "r/records.yaml:8:"),
            (b"rows: %d, hotness: 2" % rows.cards[1], b"rows: 4294967296, hotness: 2",
             "r/records.yaml:8:19: rows: found 4294967296, expected an integer from 1 to 4294967295"),
            (b"name: train_data.bin", b"name: ../x", "expected the name of a file of this folder"),
            (b"  train:", b"  brain:", "files: neither train nor test"),
            (b"rows: 100}", b"rows: -1}", "r/records.yaml:5:39: rows: found -1, expected an integer from 1"),
            (b"rows: 100}", b"rows: 101}", "r/train_data.bin: found 100 rows, expected the 101 of records.yaml: the file is cut off"),
            (b"hotness: 2", b"hotness: 3", "r/train_data.bin: found 6800 bytes, which are 94 records and 32 bytes; expected a multiple of 72"),
        ]:
            self.assertIn(old, good)
            self.write("r/records.yaml", good.replace(old, new))
            self.fails(message, "convert", "r", "--out", "no")
        for option, value in ("--cardinalities", "9,9"), ("--hotness", "1,2"), ("--dense-features", "13"), ("--from-dense", "counts"):
            self.write("r/records.yaml", good)
            self.fails(option + ": r/records.yaml says that already", "verify", "r", option, value, code=2)
        self.tool("convert", "r", "--out", "columns")
        self.fails("--cardinalities is not for split_binary, which columns is", "verify", "columns", "--cardinalities", "9,9", code=2)
        self.write("r/records.yaml", good.replace(b"rows: 100}", b"rows: 101}"))
        self.assertIn("r/train_data.bin: found 100 rows, expected the 101 of records.yaml", self.tool("verify", "r", code=1).stdout)
        self.write("r/records.yaml", good.replace(b", rows: 100}", b"}"))
        self.assertIn("no problems", self.tool("verify", "r").stdout)
        os.remove(self.path("r/records.yaml"))
        os.mkfifo(self.path("r/records.yaml"))
        self.fails("r/records.yaml: found a pipe, expected a file", "convert", "r", "--out", "no")

    def test_pipes(self):
        """In the place of files are refused, not waited for."""
        rows = make_rows(100, 61)
        self.write("r/train_data.bin", records(rows))
        self.write("norm/part.bin", norm(rows, 1))
        self.write("list/part.bin", norm(rows, 1))
        self.write("list/list.txt", b"1\nelsewhere/part.bin\n")
        self.tool("convert", "r", "--out", "split")
        for what, name in (("r", "r/train_data.bin"), ("r/train_data.bin", "r/train_data.bin"), ("norm/part.bin", "norm/part.bin"), ("list/list.txt", "list/list.txt"),
                           ("list/list.txt", "list/part.bin"), ("split", "split/feature_spec.yaml"), ("split", "split/train/label.bin"),
                           ("split", "split/train/cat_3.bin"), ("split", "split/train/numerical.bin")):
            with self.subTest(what=what, name=name):
                os.rename(self.path(name), self.path("kept"))
                os.mkfifo(self.path(name))
                self.fails(": neither a file nor a folder" if what == name else ": found a pipe, expected a file", "verify", what)
                os.rename(self.path("kept"), self.path(name))

    def test_names(self):
        """Of tables: any that YAML can write, as long as the trainer takes them."""
        rows = make_rows(100, 61, (1, 2, 1))
        self.write("r/train_data.bin", records(rows))
        self.write("r/records.yaml", b"format: hugectr_raw\ndense_features: 13\ndense: counts\nfiles:\n  train: {name: train_data.bin, rows: 100}\n"
                   b"tables:\n- {name: 'a\"b', rows: %d, hotness: 1}\n- {name: 'c\\d', rows: %d, hotness: 2}\n" % tuple(rows.cards[:2]) +
                   b"- {name: %s, rows: %d, hotness: 1}\n" % (b"x" * 200, rows.cards[2]))
        self.tool("convert", "r", "--to", "hugectr_raw", "--out", "again")
        self.assertIn("no problems", self.tool("verify", "again").stdout)
        text = self.bytes_of("again/records.yaml").decode()
        for name in ('"a\\"b"', '"c\\\\d"', '"%s"' % ("x" * 200)):
            self.assertIn("- {name: %s, " % name, text)


class MultiHot(Case):
    def bags(self, tables, hotness, seed):
        """facebook's multi_hot.py: the tables of bags, from NumPy's legacy generator."""
        np.random.seed(seed)
        out = []
        for n, h in zip(tables, hotness):
            tail = np.random.randint(0, n, (n, h - 1)) if h > 1 else np.zeros((n, 0), np.int64)
            out.append(np.concatenate([np.arange(n)[:, None], tail], 1))
        return out

    def test_like_numpy(self):
        rows = make_rows(3000, 70, (1,) * 5, counts=False, cards=[70000, 126, 32767, 1000, 50000])
        self.write("one/train_data.bin", records(rows))
        self.write("one/test_data.bin", records(rows)[:200])
        hotness = (3, 1, 40, 2, 7)
        said = ["one", "--from", "hugectr_raw", "--cardinalities", ",".join(map(str, rows.cards)), "--hotness", ",".join(map(str, hotness))]
        caps = [min(c, 20000) for c in rows.cards]
        for seed in (0, 7):
            bags = self.bags(caps, hotness, seed)
            self.tool("multihot", *said, "--cap", 20000, "--seed", seed, "--out", "many%d" % seed)
            for split, n in (("train", 3000), ("test", 200)):
                got, _ = read_split_binary(self.path("many%d" % seed), split)
                np.testing.assert_array_equal(got.label, rows.label[:n])
                np.testing.assert_array_equal(got.dense, rows.dense[:n])
                self.assertEqual(got.cards, caps)
                for k in range(5):
                    np.testing.assert_array_equal(got.ids[k], bags[k][rows.ids[k][:n, 0] % caps[k]], "feature %d" % k)
        # a part of a table at a time
        r = self.tool("multihot", *said, "--cap", 20000, "--memory", "1M", "--out", "parts")
        self.assertRegex(r.stdout, r"[3-9] passes over the input")
        self.assertEqual(r.stderr, "")
        self.assertSameFiles("many0", "parts")
        # many passes are said before they are made
        r = self.tool("multihot", *said[:-1], "40,1,40,2,7", "--memory", "1M", "--out", "slow")
        tails = 4 * (39 * (70000 + 32767) + 1000 + 6 * 50000)
        passes = int(re.search(r", (\d+) passes over the input", r.stdout).group(1))
        self.assertGreaterEqual(passes, tails >> 20)
        self.assertEqual(r.stderr, "dlrm_data: the random ids take %.0f MiB and --memory is 1: one is read %d times; more memory makes that fewer\n"
                         % (tails / 2 ** 20, passes))
        # tables of other sizes
        sizes = [50, 60, 70, 80, 1]
        self.tool("multihot", *said, "--rows", ",".join(map(str, sizes)), "--out", "small")
        got, _ = read_split_binary(self.path("small"), "train")
        for k, table in enumerate(self.bags(sizes, hotness, 0)):
            np.testing.assert_array_equal(got.ids[k], table[rows.ids[k][:, 0] % sizes[k]])
        self.assertIn("no problems", self.tool("verify", "small").stdout)
        # to HugeCTR's records, where the bags stand side by side
        self.tool("convert", "many0", "--to", "hugectr_raw", "--out", "raw")
        want = Rows(rows.label, rows.dense, [b[i[:, 0] % c] for b, i, c in zip(self.bags(caps, hotness, 0), rows.ids, caps)], caps)
        self.assertTrue(self.bytes_of("raw/train_data.bin") == records(want).tobytes())
        self.fails("feature cat_0 has 3 ids a row already, expected one", "multihot", "small", "--hotness", "1,1,1,1,1", "--out", "no")
        self.fails("--hotness: not given, and MLPerf's are 26 values, expected one for each of 5 features", "multihot", *said[:-2], "--out", "no", code=2)
        self.fails("--rows: 2 values, expected one for each of 5 features", "multihot", *said, "--rows", "1,2", "--out", "no", code=2)
        self.fails("--hotness: \"x\" at place 1, expected integers from 1", "multihot", *said[:-1], "1,x", "--out", "no", code=2)
        self.fails("--memory: 100, expected at least 1M", "multihot", *said, "--memory", "100", "--out", "no", code=2)

    def test_mlperf(self):
        self.tool("synth", "--rows", 3000, "--out", "t.txt")
        self.tool("convert", "t.txt", "--out", "one", "--dense-type", "float32")
        self.tool("multihot", "one", "--out", "many")
        one, _ = read_split_binary(self.path("one"), "train")
        many, spec = read_split_binary(self.path("many"), "train")
        self.assertEqual([i.shape[1] for i in many.ids], MLPERF_HOTNESS)
        self.assertEqual(spec["metadata"], {"dense": "log3", "rows": {"train": len(one.label), "test": 3000 - len(one.label)}})
        for k, table in enumerate(self.bags(one.cards, MLPERF_HOTNESS, 0)):
            np.testing.assert_array_equal(many.ids[k], table[one.ids[k][:, 0]])
        self.tool("multihot", "one", "--rows", "mlperf", "--hotness", ",".join(["1"] * 26), "--out", "v2")
        got, _ = read_split_binary(self.path("v2"), "train")
        self.assertEqual((sum(got.cards), got.cards[:3], got.cards[9], got.cards[25]), (204184588, [40000000, 39060, 17295], 40000000, 36))
        self.assertIn("204184588 table rows (MLPerf DLRM-DCNv2: all ids, modulo 40 M)", self.tool("info", "v2").stdout)
        for k in range(26):
            np.testing.assert_array_equal(got.ids[k], one.ids[k] % got.cards[k])
        self.tool("convert", "many", "--to", "hugectr_raw", "--out", "raw")
        self.assertEqual(os.path.getsize(self.path("raw/train_data.bin")), 912 * len(one.label))


class Shuffle(Case):
    def pick(self, rows, order):
        return Rows(rows.label[order], rows.dense[order], [i[order] for i in rows.ids], rows.cards,
                    [l if l is None else l[order] for l in rows.lengths])

    def test_each_format(self):
        rows, test = make_rows(4000, 80), make_rows(100, 81)
        test.ids = [i % c for i, c in zip(test.ids, rows.cards)]
        order = oracle.shuffle_order(np.arange(4000), 3)
        self.assertEqual(sorted(order), list(range(4000)))
        self.write("m/train_data.bin", records(rows))
        self.write("m/test_data.bin", records(test))
        self.tool("shuffle", "m", "--seed", 3, "--out", "m3")
        self.assertTrue(self.bytes_of("m3/train_data.bin") == records(self.pick(rows, order)).tobytes())
        self.assertTrue(self.bytes_of("m3/test_data.bin") == records(test).tobytes())
        self.assertIn("no problems", self.tool("verify", "m3").stdout)
        self.tool("convert", "m", "--out", "s", "--dense-type", "float16")
        self.tool("shuffle", "s", "--seed", 3, "--out", "s3")
        self.tool("convert", "m3", "--out", "s3b", "--dense-type", "float16")
        self.assertSameFiles("s3", "s3b")
        h = make_rows(900, 82, (2, 1, 5), counts=False, n_dense=4)
        self.write("h.bin", records(h))
        self.tool("shuffle", "h.bin", "--from", "hugectr_raw", "--dense-features", 4, "--hotness", "2,1,5", "--seed", 2**60, "--out", "h3")
        order = oracle.shuffle_order(np.arange(900), 2**60)
        self.assertTrue(self.bytes_of("h3/train_data.bin") == records(self.pick(h, order)).tobytes())
        v = make_rows(900, 83, (2, 1, 5), counts=False, n_dense=4, varying=(0, 2))
        self.write("v.bin", norm(v, 1))
        self.tool("shuffle", "v.bin", "--seed", 2**60, "--out", "v3")
        got, _ = read_split_binary(self.path("v3"), "train")
        self.assertRows(got, self.pick(v, order))
        self.fails("expected IN, --seed S and --out DIR", "shuffle", "m", "--out", "no", code=2)
        self.fails("--memory: 1 MiB, expected at least 32", "shuffle", "m", "--seed", 1, "--memory", "1M", "--out", "no", code=2)

    def test_as_convert_shuffles(self):
        self.tool("synth", "--rows", 6000, "--out", "t.txt")
        self.tool("convert", "t.txt", "--out", "plain", "--test-rows", 100)
        self.tool("convert", "t.txt", "--out", "shuffled", "--test-rows", 100, "--shuffle", 9)
        self.tool("shuffle", "plain", "--seed", 9, "--out", "later")
        self.assertSameFiles("shuffled", "later", but=["convert.json"])

    def test_memory_bounds_and_does_not_matter(self):
        n = 40000 if SANITIZED else 600000  # 96 MB of records
        rng = np.random.default_rng(84)
        data = np.zeros((n, 40), "<i4")
        data[:, 0] = rng.integers(0, 2, n)
        data[:, 1] = np.arange(n)
        data[:, 14:] = rng.integers(0, 1000, (n, 26))
        self.write("big.bin", data)
        order = oracle.shuffle_order(np.arange(n), 5)
        for memory in (32, 48, 400):
            peak = self.measured("shuffle", "big.bin", "--from", "mlperf_bin", "--from-dense", "counts", "--seed", 5, "--memory", "%dM" % memory,
                                 "--out", "out%d" % memory)
            if not SANITIZED:
                self.assertLess(peak, memory << 20)
            got = np.fromfile(self.path("out%d/train_data.bin" % memory), "<i4").reshape(-1, 40)
            self.assertTrue(np.array_equal(got, data[order]), memory)
            shutil.rmtree(self.path("out%d" % memory))

    def test_memory_of_streams(self):
        # 96 MB in, and 514 MB out of multihot, through a few MiB; multihot's own bound is for random ids
        n = 40000 if SANITIZED else 600000
        rng = np.random.default_rng(86)
        data = np.zeros((n, 40), "<i4")
        data[:, 0] = rng.integers(0, 2, n)
        data[:, 1] = 1
        data[:, 14:] = rng.integers(0, 100000, (n, 26))
        self.write("big/train_data.bin", data)
        said = ["--from", "mlperf_bin", "--from-dense", "counts", "--cardinalities", ",".join(["100000"] * 26)]
        peak = self.measured("convert", "big", *said, "--out", "split")
        again = self.measured("convert", "split", "--to", "hugectr_raw", "--out", "raw")
        many = self.measured("multihot", "split", "--memory", "16M", "--out", "many")
        if not SANITIZED:
            self.assertLess(peak, 48 << 20)
            self.assertLess(again, 48 << 20)
            self.assertLess(many, (16 + 48) << 20)
        got = np.fromfile(self.path("split/train/cat_25.bin"), "<i4")
        self.assertTrue(np.array_equal(got, data[:, 39]))

    def test_an_interrupted_run(self):
        self.write("m.bin", records(make_rows(100000, 85)))
        for _ in range(200):  # until one is killed before its end
            with subprocess.Popen([DLRM_DATA, "shuffle", "m.bin", "--seed", "1", "--out", "out"], cwd=self.dir, stdout=subprocess.DEVNULL) as p:
                while not os.path.exists(self.path("out.partial/rows.tmp")) and p.poll() is None:
                    time.sleep(0.001)
                p.kill()
            if p.returncode != 0:
                break
            shutil.rmtree(self.path("out"))
        self.assertEqual(p.returncode, -9)
        self.assertFalse(os.path.exists(self.path("out")))
        self.assertTrue(os.path.exists(self.path("out.partial")))
        self.tool("shuffle", "m.bin", "--seed", 1, "--out", "out")  # over what it left
        self.assertFalse(os.path.exists(self.path("out.partial")))


if __name__ == "__main__":
    DLRM_DATA = os.path.abspath(sys.argv.pop(1))
    if "--sanitized" in sys.argv:
        sys.argv.remove("--sanitized")
        SANITIZED = True
    unittest.main(verbosity=2)
