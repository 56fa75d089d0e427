"""dlrm_data convert against an independent conversion in NumPy."""
import fcntl
import gzip
import json
import os
import resource
import shutil
import signal
import subprocess
import tempfile
import unittest

import numpy as np

import criteo_oracle as oracle
import tool_fixture
from tool_fixture import ToolTest

SAMPLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../data/criteo_sample/terabyte.tsv")


def make_text(n, seed, sizes=(3, 40, 300, 2000, 100000)):
    """n rows of Criteo text: empty and negative fields, hashes of 1 to 8 digits, columns of very different sizes."""
    rng = np.random.default_rng(seed)
    lines = []
    pools = [rng.integers(0, 2**32, sizes[k % len(sizes)]) for k in range(26)]
    for _ in range(n):
        dense = ["" if rng.random() < 0.2 else str(int(rng.choice([0, 1, -1, -2, -3, -7, rng.integers(0, 50), rng.integers(0, 2**31)])))
                 for _ in range(13)]
        ids = []
        for pool in pools:
            value = int(pool[int(len(pool) * rng.random() ** 3)])
            ids.append("" if rng.random() < 0.05 else "%08x" % value if rng.random() < 0.9 else "%x" % value)
        lines.append("\t".join([str(int(rng.random() < 0.2))] + dense + ids) + "\n")
    return "".join(lines).encode()


class Case(ToolTest):
    def convert(self, inputs, out, *args, code=0):
        return self.tool("convert", *inputs, "--out", self.path(out), *args, code=code)

    def summary(self, out):
        with open(os.path.join(self.path(out), "convert.json")) as f:
            return json.load(f)

    def check(self, out, rows, test, validation, vocabs, kind="log3", dtype="float16", cap=0, shuffle=None):
        """The folder against the oracle: rows in order, which are test and validation rows (masks), and how. The logarithms, what is missing,
        and id 0 are the oracle's."""
        got, spec = oracle.read_folder(self.path(out))
        ids = oracle.apply_vocabularies(rows.ids, vocabs, cap)
        dense = oracle.dense_values(rows.dense, kind, dtype)
        train = np.flatnonzero(~test & ~validation)
        if shuffle is not None:
            train = train[oracle.shuffle_order(rows.number[train], shuffle)]
        wanted = {"train": train, "test": np.flatnonzero(test)}
        for split, which in wanted.items():
            if len(which) == 0:
                self.assertNotIn(split, got)
                continue
            label, d, c = got[split]
            np.testing.assert_array_equal(label, rows.label[which], split)
            np.testing.assert_array_equal(d.view(np.uint16 if dtype == "float16" else np.uint32),
                                          dense[which].view(np.uint16 if dtype == "float16" else np.uint32), split)
            np.testing.assert_array_equal(c, ids[which], split)
        folder = os.path.join(self.path(out), "validation")
        self.assertEqual(os.path.exists(folder), bool(validation.any()))
        for k, vocab in enumerate(vocabs):
            feature = spec["feature_spec"]["cat_%d.bin" % k]
            self.assertEqual(feature["cardinality"], len(vocab) + 1)
            self.assertEqual(feature["dtype"], oracle.id_dtype(len(vocab) + 1).name)
            if validation.any():
                data = np.fromfile(os.path.join(folder, "cat_%d.bin" % k), dtype=feature["dtype"])
                np.testing.assert_array_equal(data, ids[validation, k])
        summary = self.summary(out)
        self.assertEqual(summary["rows"], {"train": len(train), "test": int(test.sum()), "validation": int(validation.sum())})
        self.assertEqual(summary["positives"]["train"], int(rows.label[train].sum()))
        self.assertEqual([c["cardinality"] for c in summary["columns"]], [len(v) + 1 for v in vocabs])
        self.assertEqual([c["missing"] for c in summary["columns"]], list((rows.ids < 0).sum(0)))
        self.assertEqual([c["unknown"] for c in summary["columns"]], list(((rows.ids >= 0) & (ids == 0)).sum(0)))

    def tail(self, n, fraction=1 / 7, test_rows=None):
        begin = n - int(fraction * n + 1e-6)
        end = n if test_rows is None else min(n, begin + test_rows)
        i = np.arange(n)
        return (i >= begin) & (i < end), i >= end

    def folder_bytes(self, out):
        """Every file of a folder but the summary, whose times differ."""
        found = {}
        for base, _, names in os.walk(self.path(out)):
            for name in names:
                if name != "convert.json":
                    with open(os.path.join(base, name), "rb") as f:
                        found[os.path.relpath(os.path.join(base, name), self.path(out))] = f.read()
        return found

    def assertSameFolder(self, a, b):
        x, y = self.folder_bytes(a), self.folder_bytes(b)
        self.assertEqual(sorted(x), sorted(y))
        for name in x:
            self.assertTrue(x[name] == y[name], name)


class Convert(Case):
    def test_tail_split(self):
        text = make_text(2500, 1)
        rows, _ = oracle.parse([text])
        self.convert([self.write("train.txt", text)], "out")
        self.check("out", rows, *self.tail(2500), oracle.vocabularies(rows.ids))
        # MLPerf's and facebook's kind of split: the first part of what is held back is scored
        self.convert(["train.txt"], "out2", "--test-fraction", 0.25, "--test-rows", 300, "--dense", "log1", "--dense-type", "float32")
        self.check("out2", rows, *self.tail(2500, 0.25, 300), oracle.vocabularies(rows.ids), "log1", "float32")
        self.convert(["train.txt"], "out3", "--test-fraction", 0, "--dense-type=float32")
        self.check("out3", rows, *self.tail(2500, 0), oracle.vocabularies(rows.ids), dtype="float32")
        r = self.convert(["train.txt"], "out4", "--test-fraction", 1, code=1)
        self.assertIn("all of the 2500 rows are held back, and without training rows nothing can be read of what is made; expected a smaller "
                      "--test-fraction, or more day files than that of --test-day", r.stderr)

    def test_tail_over_several_files(self):
        texts = [make_text(n, 10 + n) for n in (700, 50, 40, 300)]
        rows, lines = oracle.parse(texts)
        names = [self.write(name, t) for name, t in zip(("b", "a", "d", "c"), texts)]  # the order given, not by name
        self.convert(names, "out", "--test-fraction", 0.34, "--test-rows", 60)
        self.check("out", rows, *self.tail(sum(lines), 0.34, 60), oracle.vocabularies(rows.ids))

    def test_days(self):
        texts = {n: make_text(200 + 10 * n, 100 + n) for n in (0, 1, 2, 10)}
        for n, text in texts.items():
            self.write("day_%d" % n, text)
        rows, _ = oracle.parse([texts[n] for n in (0, 1, 2, 10)])
        day = rows.number >> 40
        self.convert(["day_0", "day_1", "day_10", "day_2"], "out")  # as a shell lists them
        self.check("out", rows, day == 3, day == 4, oracle.vocabularies(rows.ids))
        self.convert(["day_0", "day_1", "day_10", "day_2"], "out2", "--test-day", 1, "--test-rows", 33)
        self.check("out2", rows, (day == 1) & (rows.number & 2**40 - 1 < 33), (day == 1) & (rows.number & 2**40 - 1 >= 33),
                   oracle.vocabularies(rows.ids))
        self.convert(["day_10", "day_2", "day_0", "day_1"], "out3", "--test-fraction", 0.1)
        self.check("out3", rows, *self.tail(len(rows), 0.1), oracle.vocabularies(rows.ids))
        one, _ = oracle.parse([texts[2]])
        self.convert(["day_2"], "out4")
        self.check("out4", one, *self.tail(len(one)), oracle.vocabularies(one.ids))

    def test_cap_and_frequency_limit(self):
        text = make_text(2000, 3)
        rows, _ = oracle.parse([text])
        self.write("train.txt", text)
        for i, (cap, limit) in enumerate([(1, 0), (127, 2), (5000, 0), (0, 3), (0, 100000), (4294967295, 1)]):
            args = (["--cap", cap] if cap else []) + (["--frequency-limit", limit] if limit else [])
            self.convert(["train.txt"], "out%d" % i, *args)
            vocabs = oracle.vocabularies(rows.ids, limit, cap)
            self.check("out%d" % i, rows, *self.tail(2000), vocabs, cap=cap)
            for k in range(26):
                got, info = oracle.read_vocabulary(self.path("out%d/vocab/cat_%d.vocab" % (i, k)))
                self.assertEqual(got, vocabs[k])
                self.assertEqual(info, (len(vocabs[k]), cap, limit, 2000))

    def test_id_types_at_their_borders(self):
        # cardinality = distinct + 1: 126 is int8's last, 32766 int16's
        n = 32766
        lines = []
        for i in range(n):
            ids = ["%x" % (i % m) for m in (125, 126, 32765, 32766)] + [""] * 22
            lines.append("\t".join(["0"] + [""] * 13 + ids) + "\n")
        self.write("train.txt", "".join(lines).encode())
        self.convert(["train.txt"], "out")
        rows, _ = oracle.parse(["".join(lines).encode()])
        self.check("out", rows, *self.tail(n), oracle.vocabularies(rows.ids))
        _, spec = oracle.read_folder(self.path("out"))
        self.assertEqual([spec["feature_spec"]["cat_%d.bin" % k]["dtype"] for k in range(5)], ["int8", "int16", "int16", "int32", "int8"])
        self.assertEqual(spec["feature_spec"]["cat_4.bin"]["cardinality"], 1)  # a column that is always empty

    def test_vocabulary_of_another_folder(self):
        old, new = make_text(1500, 5), make_text(1000, 6)
        old_rows, _ = oracle.parse([old])
        # half of the new rows have known values
        new = new + old[: len(old) // 2].rsplit(b"\n", 1)[0] + b"\n"
        new_rows, lines = oracle.parse([new])
        self.convert([self.write("old.txt", old)], "old", "--cap", 100000, "--frequency-limit", 2)
        self.convert([self.write("new.txt", new)], "new", "--vocab", self.path("old"), "--test-fraction", 0.5, "--shuffle", 9)
        vocabs = oracle.vocabularies(old_rows.ids, 2, 100000)
        got, _ = oracle.read_folder(self.path("new"))
        self.assertTrue((got["train"][2] == 0).any() and (got["train"][2] > 0).any())
        summary = self.summary("new")
        self.assertEqual([c["cardinality"] for c in summary["columns"]], [len(v) + 1 for v in vocabs])
        self.assertEqual(summary["options"]["cap"], 100000)
        test, validation = self.tail(lines[0], 0.5)
        ids = oracle.apply_vocabularies(new_rows.ids, vocabs, 100000)
        train = np.flatnonzero(~test)
        train = train[oracle.shuffle_order(new_rows.number[train], 9)]
        np.testing.assert_array_equal(got["train"][2], ids[train])
        np.testing.assert_array_equal(got["test"][2], ids[test])
        # the vocabulary goes along, so that the new folder serves as well as the old
        self.convert(["new.txt"], "newer", "--vocab", self.path("new"), "--test-fraction", 0.5, "--shuffle", 9)
        self.assertSameFolder("new", "newer")

    def test_shuffle(self):
        text = make_text(3000, 7)
        rows, _ = oracle.parse([text])
        self.write("train.txt", text)
        vocabs = oracle.vocabularies(rows.ids)
        for seed in (0, 1, 2**62):
            self.convert(["train.txt"], "out%d" % seed, "--shuffle", seed, "--test-rows", 200)
            self.check("out%d" % seed, rows, *self.tail(3000, test_rows=200), vocabs, shuffle=seed)

    def test_shuffle_is_uniform(self):
        # the order of four rows under 2400 seeds: each of the 24 about 100 times
        seen = {}
        for seed in range(2400):
            order = tuple(oracle.shuffle_order(np.arange(4), seed))
            seen[order] = seen.get(order, 0) + 1
        self.assertEqual(len(seen), 24)
        self.assertLess(sum((c - 100) ** 2 / 100 for c in seen.values()), 60)  # chi-square, 23 degrees: 1e-4 beyond 57

    def test_threads_and_memory_do_not_matter(self):
        self.tool("synth", "--rows", 60000, "--out", "rows.txt", "--alpha", 0.4, "--seed", 3)
        for shuffle in ([], ["--shuffle", 4]):
            name = "shuffled" if shuffle else "plain"
            for threads, memory in ((1, "32M"), (4, "56M"), (4, "1G")):
                self.convert(["rows.txt"], "%s_%d_%s" % (name, threads, memory), "--threads", threads, "--memory", memory, *shuffle)
            self.assertSameFolder(name + "_1_32M", name + "_4_56M")
            self.assertSameFolder(name + "_1_32M", name + "_4_1G")

    def test_gzip(self):
        text = make_text(1200, 8)
        self.write("plain.txt", text)
        self.write("whole.txt.gz", gzip.compress(text))
        self.write("parts", b"".join(gzip.compress(text[i:i + 50000]) for i in range(0, len(text), 50000)))  # members; told by content
        self.convert(["plain.txt"], "plain")
        self.convert(["whole.txt.gz"], "whole")
        self.convert(["parts"], "parts_out", "--threads", 3)
        self.assertSameFolder("plain", "whole")
        self.assertSameFolder("plain", "parts_out")
        packed = gzip.compress(text)
        for cut in (5, len(packed) // 2, len(packed) - 4):
            self.write("cut.gz", packed[:cut])
            r = self.convert(["cut.gz"], "cut", code=1)
            self.assertRegex(r.stderr, r"^dlrm_data: cut.gz: the compressed data end early, after line \d+; is the download cut off\?\n$")
            self.assertFalse(os.path.exists(self.path("cut")) or os.path.exists(self.path("cut.partial")))
        damaged = bytearray(packed)
        damaged[len(packed) // 2] ^= 0x55
        damaged[-6] ^= 1
        self.write("damaged.gz", bytes(damaged))
        self.assertIn("damaged.gz: the compressed data are damaged", self.convert(["damaged.gz"], "cut", code=1).stderr)

    def test_several_gzip_days(self):
        texts = [make_text(2500, 20 + n) for n in range(3)]
        for n, text in enumerate(texts):
            self.write("day_%d.gz" % n, gzip.compress(text))
            self.write("day_%d" % n, text)
        days = ["day_0", "day_1", "day_2"]
        self.convert(days, "plain", "--shuffle", 1)
        self.convert([d + ".gz" for d in days], "packed", "--threads", 4, "--shuffle", 1)
        self.assertSameFolder("plain", "packed")

    def test_line_ends(self):
        text = make_text(900, 9)
        self.write("plain.txt", text)
        self.write("dos.txt", text.replace(b"\n", b"\r\n"))
        self.write("open.txt", text[:-1])
        self.convert(["plain.txt"], "plain")
        self.convert(["dos.txt"], "dos")
        self.assertSameFolder("plain", "dos")
        r = self.convert(["open.txt"], "open")
        self.assertSameFolder("plain", "open")
        self.assertEqual(r.stderr, "dlrm_data: open.txt: the last line does not end in a line break; was the file cut off?\n")

    def test_malformed_lines(self):
        good = make_text(1000, 11).split(b"\n")[:-1]
        fields = good[0].split(b"\t")

        def having(at, value):
            return b"\t".join(fields[:at] + [value] + fields[at + 1:])

        integer, hexadecimal = "expected a 32-bit integer or nothing", "expected at most 8 hexadecimal digits or nothing"
        bad = {
            3: (b"", "1 field, expected 40"),
            5: (b"\t".join(fields[1:]), "39 fields, expected 40 (is the label missing, as in Kaggle's test.txt?)"),
            6: (good[1] + b"\t", "41 fields, expected 40"),
            50: (having(0, b"2"), 'field 1 (label): "2", expected 0 or 1'),
            51: (having(0, b""), 'field 1 (label): "", expected 0 or 1'),
            52: (having(3, b"5.0"), 'field 4 (I3): "5.0", ' + integer),
            53: (having(13, b"2147483648"), 'field 14 (I13): "2147483648", ' + integer),
            54: (having(1, b"-"), 'field 2 (I1): "-", ' + integer),
            55: (having(14, b"123456789"), 'field 15 (C1): "123456789", ' + hexadecimal),
            56: (having(39, b"zz\x00z"), 'field 40 (C26): "zz\\x00z", ' + hexadecimal),
            57: (having(20, b"f" * 5000), "the line is longer than 4096 bytes"),
            58: (having(20, b"f" * 2500000), "the line is longer than 4096 bytes"),
            400: (having(20, b"0x12"), 'field 21 (C7): "0x12", ' + hexadecimal),
        }
        lines = list(good)
        for at, (line, _) in sorted(bad.items()):
            lines.insert(at, line)
        text = b"\n".join(lines) + b"\n"
        self.write("train.txt", text)
        rows, _ = oracle.parse([text])
        self.assertEqual(len(rows), 1000)
        for threads in (1, 4):
            r = self.convert(["train.txt"], "out%d" % threads, "--max-bad-share", 0.02, "--threads", threads)
            wanted = ["dlrm_data: train.txt:%d: %s" % (at + 1, bad[at][1]) for at in sorted(bad)[:10]]
            self.assertEqual(r.stderr.splitlines(), wanted)
            self.assertIn("13 of 1013 lines malformed", r.stdout)
            summary = self.summary("out%d" % threads)
            self.assertEqual((summary["lines"], summary["bad_lines"], len(summary["first_bad_lines"])), (1013, 13, 10))
            self.assertEqual(summary["first_bad_lines"][3], {"file": "train.txt", "line": 51, "reason": bad[50][1]})
            # malformed lines count for the cut
            test = (rows.number & 2**40 - 1) >= 1013 - 1013 // 7
            self.check("out%d" % threads, rows, test, np.zeros(len(test), bool), oracle.vocabularies(rows.ids))
        r = self.convert(["train.txt"], "out", code=1)
        self.assertEqual(r.stderr.splitlines()[-1], "dlrm_data: 13 of 1013 lines are malformed, more than --max-bad-share 0.001 allows")
        self.write("none.txt", b"\n" * 5)
        self.write("day_0.gz", gzip.compress(b""))
        for name, share, lines, message in (
                ("none.txt", 0.001, 5, "5 of 5 lines are malformed, more than --max-bad-share 0.001 allows"),
                ("none.txt", 1, 5, "found no row of Criteo's text in 5 lines, expected at least one"),
                ("day_0.gz", 0.001, 0, "found no row of Criteo's text in 0 lines, expected at least one")):
            said = self.convert([name], "none", "--max-bad-share", share, code=1).stderr.splitlines()
            self.assertEqual((len(said), said[-1]), (lines + 1, "dlrm_data: " + message))
            self.assertFalse(os.path.exists(self.path("none")) or os.path.exists(self.path("none.partial")))
        self.assertEqual(len(r.stderr.splitlines()), 11)
        self.assertFalse(os.path.exists(self.path("out")) or os.path.exists(self.path("out.partial")))

    def test_garbage_ends_early(self):
        self.write("garbage", b"garbage\n" * 400000)
        r = self.convert(["garbage"], "out", "--test-fraction", 0, "--threads", 1, code=1)
        self.assertEqual(len(r.stderr.splitlines()), 11)
        self.assertRegex(r.stderr, r"garbage:1: 1 field, expected 40\n(.*\n)*dlrm_data: (\d+) of \2 lines are malformed")
        self.assertLess(int(r.stderr.split(" of ")[-1].split()[0]), 400000)
        self.write("binary", os.urandom(3 << 20).replace(b"\n", b"x"))
        self.assertIn("binary:1: the line is longer than 4096 bytes", self.convert(["binary"], "out", code=1).stderr)

    def test_bad_input_and_output(self):
        text = make_text(20, 12)
        self.write("train.txt", text)
        self.write("empty.txt", b"")
        os.mkdir(self.path("folder"))
        cases = [
            (["none.txt"], "out", [], 1, "none.txt: No such file or directory"),
            (["empty.txt"], "out", [], 1, "empty.txt: the file is empty (0 bytes)"),
            (["folder"], "out", [], 1, "folder: a folder of none of the known formats"),
            (["train.txt"], "folder", [], 1, "folder: exists already; name a new output, or remove it first"),
            (["train.txt"], "no/out", [], 1, "no/out.partial: cannot make this folder: No such file or directory"),
            (["train.txt"], "out", ["--vocab", "folder"], 1, "folder/vocab/cat_0.vocab: cannot open this vocabulary: No such file or directory"),
            (["train.txt"], "out", ["--cap", "0"], 2, "--cap: 0, expected an integer from 1 to 4294967295"),
            (["train.txt"], "out", ["--dense", "log"], 2, "--dense: log, expected log3 or log1"),
            (["train.txt"], "out", ["--memory", "1M", "--threads", "2"], 2, "--memory: 1 MiB, expected at least 40 for 2 threads"),
            (["train.txt"], "out", ["--memory", "x"], 2, "--memory: x, expected a number of bytes such as 512M, 4G or 0.5T"),
            (["train.txt"], "out", ["--frobnicate"], 2, "unknown option --frobnicate; 'dlrm_data convert --help' lists them"),
            (["train.txt"], "out", ["--cap"], 2, "--cap needs a value"),
            (["train.txt"], "out", ["--test-day", "3"], 2, "--test-day: train.txt is not named day_N or day_N.gz"),
            (["train.txt"], "out", ["--vocab", "folder", "--cap", "7"], 2, "--cap does not go with --vocab"),
            ([], "out", [], 2, "no input files"),
        ]
        for inputs, out, args, code, message in cases:
            r = self.tool("convert", *inputs, "--out", out, *args, code=code)
            self.assertEqual(len(r.stderr.splitlines()), 1, r.stderr)
            self.assertIn("dlrm_data: " + message, r.stderr)
        self.assertFalse(os.path.exists(self.path("out")))
        self.write("day_1", text)
        self.write("day_1.gz", gzip.compress(text))
        self.assertIn("are the same day", self.convert(["day_1", "day_1.gz"], "out", code=2).stderr)
        os.symlink("day_1", self.path("day_2"))
        os.link(self.path("train.txt"), self.path("again.txt"))
        for first, second in (("day_1", "day_2"), ("train.txt", "again.txt"), ("train.txt", "./train.txt")):
            message = self.convert([first, second], "out", code=1).stderr
            self.assertEqual(message, "dlrm_data: %s: the same file as %s; give it once\n" % (second, first))
        self.assertIn("no file of day 7", self.convert(["day_1"], "out", "--test-day", 7, code=2).stderr)

    def test_damaged_vocabulary(self):
        self.convert([self.write("train.txt", make_text(100, 13))], "old")
        path = self.path("old/vocab/cat_3.vocab")
        with open(path, "rb") as f:
            good = f.read()
        for damaged, message in [
            (good[:-3], "cat_3.vocab: %d bytes, but its header announces" % (len(good) - 3)),
            (b"X" + good[1:], "cat_3.vocab: not a vocabulary of dlrm_data"),
            (good[:40], "cat_3.vocab: 40 bytes, but"),
            (good[:48] + good[40:48] + good[56:], "cat_3.vocab: pair 1: value"),
            (good[:40] + b"\xff\xff\xff\x7f" + good[44:], "cat_3.vocab: pair 0: id 2147483647, expected 1 to"),
            (good[:16] + b"\x05" + good[17:], "cat_3.vocab: made with cap 5, cat_0.vocab with 0"),
        ]:
            with open(path, "wb") as f:
                f.write(damaged)
            error = self.convert(["train.txt"], "new", "--vocab", self.path("old"), code=1).stderr
            self.assertIn("dlrm_data: %s/vocab/%s" % (self.path("old"), message), error)  # the user's file, not the copy
            self.assertFalse(os.path.exists(self.path("new")))

    def test_partial_folders(self):
        text = make_text(50, 14)
        self.write("train.txt", text)
        os.mkdir(self.path("out.partial"))
        self.write("out.partial/mine", b"x")  # not ours: left alone
        self.assertIn("out.partial: this name is needed", self.convert(["train.txt"], "out", code=1).stderr)
        self.assertTrue(os.path.exists(self.path("out.partial/mine")))
        self.write("out.partial/.dlrm_data", b"")  # as an interrupted run leaves it
        with open(self.path("out.partial/.dlrm_data")) as f:
            fcntl.flock(f, fcntl.LOCK_EX)  # as a living run holds it
            r = self.convert(["train.txt"], "out", code=1)
            self.assertIn("out.partial: another dlrm_data is writing here now", r.stderr)
        self.convert(["train.txt"], "out")
        self.assertFalse(os.path.exists(self.path("out.partial")))
        self.assertFalse(os.path.exists(self.path("out/.dlrm_data")) or os.path.exists(self.path("out/mine")))

    def test_full_disk(self):
        # a limit on file size stands for it: the same path through the same calls
        self.write("train.txt", make_text(3000, 15))
        r = subprocess.run([self.dlrm_data, "convert", "train.txt", "--out", "out"], cwd=self.dir, stderr=subprocess.PIPE, text=True,
                           preexec_fn=lambda: (resource.setrlimit(resource.RLIMIT_FSIZE, (200000, 200000)),
                                               signal.signal(signal.SIGXFSZ, signal.SIG_IGN)))
        self.assertEqual(r.returncode, 3)
        self.assertRegex(r.stderr, r"^dlrm_data: .*out.partial/rows.tmp: cannot write at byte \d+: File too large\n$")
        self.assertFalse(os.path.exists(self.path("out")) or os.path.exists(self.path("out.partial")))

    def test_real_rows(self):
        with open(SAMPLE, "rb") as f:
            text = f.read()
        rows, lines = oracle.parse([text])
        self.assertEqual((len(rows), lines), (700, [700]))
        for kind, dtype in (("log3", "float16"), ("log1", "float32")):
            self.convert([SAMPLE], kind, "--dense", kind, "--dense-type", dtype)
            self.check(kind, rows, *self.tail(700), oracle.vocabularies(rows.ids), kind, dtype)
        distinct = [236, 309, 450, 149, 203, 2, 387, 150, 13, 228, 173, 432, 9, 38, 250, 12, 4, 33, 12, 236, 211, 231, 97, 399, 12, 16]
        missing = (rows.ids < 0).any(0)
        self.assertEqual([c["cardinality"] for c in self.summary("log3")["columns"]], [n + (not m) for n, m in zip(distinct, missing)])


class Memory(Case):
    """The bound holds, and what it forces (runs on disk, vocabularies in parts) changes nothing."""

    def write_unique(self, name, rows, columns):
        """Text in which every id of the first `columns` columns is different from the others of its column."""
        hashes = []
        with open(self.path(name), "wb") as f:
            for first in range(0, rows, 100000):
                n = min(100000, rows - first)
                line = np.full((n, 41 + 8 * columns), ord("\t"), np.uint8)
                line[:, 0] = ord("0")
                line[:, -1] = ord("\n")
                x = (np.arange(first, first + n, dtype=np.uint64) * np.uint64(2654435761) & np.uint64(0xFFFFFFFF)).astype(np.uint32)
                digits = np.frombuffer(b"0123456789abcdef", np.uint8)
                text = digits[(x[:, None] >> np.arange(28, -1, -4, dtype=np.uint32)) & 15]
                for k in range(columns):
                    line[:, 15 + 9 * k:23 + 9 * k] = text
                hashes.append(x)
                line.tofile(f)
        return np.concatenate(hashes)

    def check_unique(self, out, hashes, columns):
        """All counts are 1, so ids follow the hashes."""
        wanted = np.empty(len(hashes), np.int64)
        wanted[np.argsort(hashes, kind="stable")] = np.arange(1, len(hashes) + 1)
        got, spec = oracle.read_folder(self.path(out))
        for k in range(26):
            self.assertEqual(spec["feature_spec"]["cat_%d.bin" % k]["cardinality"], len(hashes) + 1 if k < columns else 1)
        ids = np.concatenate([got["train"][2], got["test"][2]])
        for k in range(26):
            np.testing.assert_array_equal(ids[:, k], wanted if k < columns else 0)

    def test_ten_million_ids_in_all_columns(self):
        rows = 40000 if self.sanitized else 400000
        hashes = self.write_unique("unique.txt", rows, 26)
        peak = self.measured("convert", "unique.txt", "--out", "out", "--memory", "48M", "--threads", 2)
        self.check_unique("out", hashes, 26)
        if not self.sanitized:
            self.assertTrue(24 << 20 < peak < 48 << 20, peak)
            summary = self.summary("out")
            self.assertGreater(min(c["runs_on_disk"] for c in summary["columns"]), 1)
            self.assertGreater(summary["column_groups"], 4)


class LongMemory(Memory):
    test_ten_million_ids_in_all_columns = None

    def setUp(self):  # on disk: some gigabytes
        self.dir = tempfile.mkdtemp(prefix="dlrm_convert_")
        self.addCleanup(shutil.rmtree, self.dir)

    @unittest.skipUnless(os.environ.get("DLRM_LONG_TESTS"), "takes a minute or two; DLRM_LONG_TESTS=1 runs it")
    def test_ten_million_ids_in_one_column(self):
        hashes = self.write_unique("unique.txt", 10000000, 1)
        for shuffle in ([], ["--shuffle", "1"]):
            peak = self.measured("convert", "unique.txt", "--out", "out", "--memory", "64M", "--threads", 2, *shuffle)
            summary = self.summary("out")
            self.assertTrue(24 << 20 < peak < 64 << 20, peak)
            self.assertGreater(summary["columns"][0]["runs_on_disk"], 4)
            self.assertGreater(summary["column_groups"], 1)
            if not shuffle:
                self.check_unique("out", hashes, 1)
            shutil.rmtree(self.path("out"))

    @unittest.skipUnless(os.environ.get("DLRM_LONG_TESTS") and shutil.disk_usage(tempfile.gettempdir()).free > 60e9,
                         "takes ten minutes and 45 GB; DLRM_LONG_TESTS=1 runs it, where 60 GB are free")
    def test_twenty_gigabytes(self):
        """Terabyte's shape with Terabyte's cardinalities. The rates are printed: what they are depends on the machine."""
        rows = 80000000
        self.measured("synth", "--rows", rows, "--seed", 1, "--out", "rows.txt")
        text = os.path.getsize(self.path("rows.txt"))
        self.assertGreater(text, 20e9)
        peak = self.measured("convert", "rows.txt", "--out", "out", "--memory", "1G", "--threads", 2)
        self.assertTrue(256 << 20 < peak < 1 << 30, peak)
        summary = self.summary("out")
        self.assertEqual(sum(summary["rows"].values()), rows)
        cpu = sum(p["cpu_seconds"] for p in summary["passes"])
        for p in summary["passes"]:
            print("%s: %.0f MB/s per core of %s, %.1f s" % (p["name"], p["mb_per_s_per_core"], p["of"], p["cpu_seconds"]))
        print("%.1f GB of text: %.0f MB/s per core, peak memory %.0f MiB" % (text * 1e-9, text * 1e-6 / cpu, peak / 2 ** 20))


@unittest.skipUnless(os.environ.get("DLRM_CRITEO_DIR"), "DLRM_CRITEO_DIR names no folder with Criteo's own files")
class OwnRows(Case):
    def test_first_rows(self):
        folder = os.environ["DLRM_CRITEO_DIR"]
        for name in ("train.txt", "day_0"):
            if os.path.exists(os.path.join(folder, name)):
                with open(os.path.join(folder, name), "rb") as f:
                    text = b"".join(f.readline() for _ in range(20000))
                rows, _ = oracle.parse([text])
                self.assertEqual(len(rows), text.count(b"\n"))
                self.convert([self.write("rows.txt", text)], "own")
                self.check("own", rows, *self.tail(len(rows)), oracle.vocabularies(rows.ids))


if __name__ == "__main__":
    tool_fixture.main()
