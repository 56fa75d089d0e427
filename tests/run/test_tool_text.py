"""dlrm_data convert to and from Criteo's text, and keys of features that have no rows."""
import gzip
import os

import numpy as np

import criteo_oracle as oracle
import tool_fixture
from tool_fixture import make_rows, norm, read_split_binary, records, ToolTest


class Keys(ToolTest):
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
        self.assertRows(got, rows.pick(order), rows.dense.astype("<f4")[order])

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


class Text(ToolTest):
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


if __name__ == "__main__":
    tool_fixture.main()
