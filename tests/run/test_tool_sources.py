"""dlrm_data info, verify and convert from records, HugeCTR Norm, arrays and split-binary, on files written by NumPy."""
import os

import numpy as np

import criteo_oracle as oracle
import tool_fixture
from tool_fixture import MLPERF_HOTNESS, Rows, make_rows, norm, read_split_binary, records, ToolTest

FIRST_HALF = 89137319


class Records(ToolTest):
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
        # three records of the same size, told apart by their bits, or refused
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
            (2000, 0, 0x3F800000, "train_data.bin: row 2000: label 1065353216, the bits of float 1; expected an int32 0 or 1"),
            (1300, 0, -1, "train_data.bin: row 1300: label -1 is neither 0 nor 1"),
            (1300, 3, -5, "train_data.bin: row 1300: count -5 in column 2 is negative"),
            (1234, 14, rows.cards[0], "train_data.bin: row 1234: id %d is outside [0, %d) of table cat_0: one too many; is the number of rows the"
                                      " largest id?" % (rows.cards[0], rows.cards[0])),
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
        # float labels throughout
        data = good.copy()
        data[:, 0] *= 0x3F800000
        self.write("float_labels.bin", data)
        self.fails("have a label of 1065353216, the bits of float 1", "convert", "float_labels.bin", "--from", "hugectr_raw", "--out", "no")
        # a file that is cut off
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

    def test_large_ids_and_known_tables(self):  # ids above 2^24; two lists of 40 M, told apart by their sums
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

    def test_more_rows_than_fit_31_bits(self):  # 4,195,197,692 rows, 671 GB of holes
        data = records(make_rows(1200, 10))
        self.sparse("huge/day_train.bin", 4195197692, (0, 2**31, 4195197692 - 1200), data)
        out = self.tool("info", "huge", "--from", "mlperf_bin").stdout
        self.assertRegex(out, r"huge: mlperf_bin, 671.232 GB\ntrain +4195197692 rows")
        self.assertIn("no problems", out)
        data[:, 14] = 70001
        self.sparse("huge/day_train.bin", 4195197692, (0, 2**31, 4195197692 - 1200), data)
        r = self.tool("info", "huge", "--cardinalities", ",".join(["70000"] * 26), code=1)
        self.assertRegex(r.stdout, r"day_train.bin: row \d+: id 70001 is outside")

    def test_halves_of_the_last_day(self):  # by rows and not by name
        data = records(make_rows(1200, 11))
        for name, rows in (("train_data.bin", 5000), ("val_data.bin", FIRST_HALF), ("test_data.bin", FIRST_HALF - 1)):
            self.sparse("halves/" + name, rows, (0, (rows - 1024) // 2, rows - 1200), data)
        out = self.tool("info", "halves").stdout
        self.assertRegex(out, r"test +%d rows" % FIRST_HALF)
        self.assertIn("note: val holds the 89137319 rows that MLPerf scores", out)


def log3_of(folder):
    return np.fromfile(os.path.join(folder, "train/numerical.bin"), np.float16).reshape(-1, 13)


class Norm(ToolTest):
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
        self.write("norm/file_list.txt", b"2\n/elsewhere/part_0.bin\n/elsewhere/part_1.bin\n")  # absolute paths, and the files have been moved
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


class Npy(ToolTest):
    def save(self, name, rows, ids_dtype, multi_hot=False):
        os.makedirs(self.path("npy"), exist_ok=True)
        np.save(self.path("npy/%s_labels.npy" % name), rows.label.astype(np.int32)[:, None])
        np.save(self.path("npy/%s_dense.npy" % name), rows.dense)
        if multi_hot:
            np.savez(self.path("npy/%s_sparse_multi_hot.npz" % name), **{str(k): i.astype(ids_dtype) for k, i in enumerate(rows.ids)})
        else:
            np.save(self.path("npy/%s_sparse.npy" % name), np.concatenate(rows.ids, 1).astype(ids_dtype))

    def days(self, hotness, multi_hot=False):
        """Three days of 300, 250 and 201 rows, the last with ids of int64; all of them as one."""
        rows = make_rows(751, 90, hotness, counts=False)
        cut = [0, 300, 550, 751]
        for d in range(3):
            some = Rows(rows.label[cut[d]:cut[d + 1]], rows.dense[cut[d]:cut[d + 1]], [i[cut[d]:cut[d + 1]] for i in rows.ids], rows.cards)
            self.save("day_%d" % d, some, np.int64 if d == 2 and not multi_hot else np.int32, multi_hot)
        return rows

    def check(self, folder, rows):
        for split, begin, end in (("train", 0, 550), ("test", 550, 651)):  # the first half of 201, rounded up
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
        np.save(self.path("npy/day_1_dense.npy"), good.dense[:99])  # fewer rows than the labels
        self.fails("npy/day_1_dense.npy: found 99 x 13 of float32, expected 100 rows of float16 or float32", "verify", "npy")
        np.save(self.path("npy/day_1_dense.npy"), good.dense[:, :12])
        self.fails("npy/day_1_labels.npy: its arrays have other columns than those of npy/day_0_labels.npy", "verify", "npy")
        os.remove(self.path("npy/day_1_dense.npy"))
        self.fails("npy/day_1_dense.npy: ", "verify", "npy")
        self.days(MLPERF_HOTNESS, multi_hot=True)
        for d in range(3):
            os.remove(self.path("npy/day_%d_sparse.npy" % d))
        np.savez_compressed(self.path("npy/day_0_sparse_multi_hot.npz"), **{str(k): np.zeros((300, h), np.int32) for k, h in enumerate(MLPERF_HOTNESS)})
        self.fails("npy/day_0_sparse_multi_hot.npz", "verify", "npy")  # deflated


class SplitBinary(ToolTest):
    def folder(self, rows, extra=b""):
        """As PyYAML writes it: sorted keys, anchors and aliases, names that end in .bin."""
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
        # model_size.json has the largest id
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
        self.write("dle/train/cat_3.bin", self.bytes_of("dle/train/cat_3.bin")[:-4])  # one row short
        self.fails("dle/train/cat_3.bin: found 1996 bytes, which are 499 rows of 4 bytes; expected 500 rows", "verify", "dle")

    def test_files_cut_alike(self):
        """Files that all end at the same row agree with each other; the description of dlrm_data knows better."""
        self.tool("synth", "--rows", 700, "--out", "t.txt")
        for split, rows in (("train", 600), ("test", 60), ("validation", 40)):
            self.tool("convert", "t.txt", "--out", split + "_cut", "--test-rows", 60)
            for name in os.listdir(self.path("%s_cut/%s" % (split, split))):
                path = self.path("%s_cut/%s/%s" % (split, split, name))
                os.truncate(path, os.path.getsize(path) // rows * (rows - 1))
            self.fails("%s_cut/%s/label.bin: found %d bytes, which are %d rows of 1 bytes; expected %d rows as metadata.rows says in "
                       "%s_cut/feature_spec.yaml" % (split, split, rows - 1, rows - 1, rows, split), "verify", split + "_cut")


if __name__ == "__main__":
    tool_fixture.main()
