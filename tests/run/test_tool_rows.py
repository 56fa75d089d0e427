"""dlrm_data multihot and shuffle: which rows come out, in which order, in how much memory."""
import os
import re
import shutil
import subprocess
import time

import numpy as np

import criteo_oracle as oracle
import tool_fixture
from tool_fixture import MLPERF_HOTNESS, Rows, make_rows, norm, read_split_binary, records, ToolTest


class MultiHot(ToolTest):
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


class Shuffle(ToolTest):
    def test_each_format(self):
        rows, test = make_rows(4000, 80), make_rows(100, 81)
        test.ids = [i % c for i, c in zip(test.ids, rows.cards)]
        order = oracle.shuffle_order(np.arange(4000), 3)
        self.assertEqual(sorted(order), list(range(4000)))
        self.write("m/train_data.bin", records(rows))
        self.write("m/test_data.bin", records(test))
        self.tool("shuffle", "m", "--seed", 3, "--out", "m3")
        self.assertTrue(self.bytes_of("m3/train_data.bin") == records(rows.pick(order)).tobytes())
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
        self.assertTrue(self.bytes_of("h3/train_data.bin") == records(h.pick(order)).tobytes())
        v = make_rows(900, 83, (2, 1, 5), counts=False, n_dense=4, varying=(0, 2))
        self.write("v.bin", norm(v, 1))
        self.tool("shuffle", "v.bin", "--seed", 2**60, "--out", "v3")
        got, _ = read_split_binary(self.path("v3"), "train")
        self.assertRows(got, v.pick(order))
        self.fails("expected IN, --seed S and --out DIR", "shuffle", "m", "--out", "no", code=2)
        self.fails("--memory: 1 MiB, expected at least 32", "shuffle", "m", "--seed", 1, "--memory", "1M", "--out", "no", code=2)

    def test_as_convert_shuffles(self):
        self.tool("synth", "--rows", 6000, "--out", "t.txt")
        self.tool("convert", "t.txt", "--out", "plain", "--test-rows", 100)
        self.tool("convert", "t.txt", "--out", "shuffled", "--test-rows", 100, "--shuffle", 9)
        self.tool("shuffle", "plain", "--seed", 9, "--out", "later")
        self.assertSameFiles("shuffled", "later", but=["convert.json"])

    def test_memory_bounds_and_does_not_matter(self):
        n = 40000 if self.sanitized else 600000  # 96 MB of records
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
            if not self.sanitized:
                self.assertLess(peak, memory << 20)
            got = np.fromfile(self.path("out%d/train_data.bin" % memory), "<i4").reshape(-1, 40)
            self.assertTrue(np.array_equal(got, data[order]), memory)
            shutil.rmtree(self.path("out%d" % memory))

    def test_memory_of_streams(self):
        # 96 MB in, and 514 MB out of multihot, through a few MiB; multihot's own bound is for random ids
        n = 40000 if self.sanitized else 600000
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
        if not self.sanitized:
            self.assertLess(peak, 48 << 20)
            self.assertLess(again, 48 << 20)
            self.assertLess(many, (16 + 48) << 20)
        got = np.fromfile(self.path("split/train/cat_25.bin"), "<i4")
        self.assertTrue(np.array_equal(got, data[:, 39]))

    def test_an_interrupted_run(self):
        self.write("m.bin", records(make_rows(100000, 85)))
        for _ in range(200):  # until one is killed before its end
            with subprocess.Popen([self.dlrm_data, "shuffle", "m.bin", "--seed", "1", "--out", "out"], cwd=self.dir, stdout=subprocess.DEVNULL) as p:
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
    tool_fixture.main()
