#!/usr/bin/env python3
"""Row formats (records, arrays): files that NumPy wrote train as the same rows in split-binary files do, bit by bit, on one to
four ranks; every trap of these formats has its message or its right value."""
import os

import numpy as np

import fixture
from row_fixture import FEATURES, Rows, RowTest, config, join, records, write_archive, write_day, write_records, write_split_binary


class SameRows(RowTest):
    """One and the same run, whatever the rows lie in and however many ranks read them."""

    def same(self, want, ranks, *more):
        with self.subTest(ranks=ranks, more=more):
            got = self.outcome(ranks, *more)
            self.assertEqual(got[:2], want[:2])
            self.assertEqual(got[2], want[2], "weights differ")

    def test_one_hot(self):
        train, test = self.make()
        want = self.outcome(1)
        self.assertEqual(len(want[0]), 16)
        write_records(self.path("counts", "day_train.bin"), train)
        write_records(self.path("counts", "day_test.bin"), test)
        write_records(self.path("floats", "train_data.bin"), train, float_dense=True)
        write_records(self.path("floats", "test_data.bin"), test, float_dense=True)
        for day, (begin, end) in {"day_2": (0, 37), "day_9": (37, 38), "day_10": (38, 120)}.items():  # by number, not by letter
            write_day(self.path("days"), day, train.part(begin, end), "<i8" if day == "day_9" else "<i4")
        write_day(self.path("days"), "day_11", test, "<i8")
        for ranks in (1, 2, 3, 4):
            self.same(want, ranks, "data.format=mlperf_bin", "data.path=counts")
            self.same(want, ranks, "data.format=npy", "data.path=days")
        self.same(want, 3, "data.format=mlperf_bin", "data.path=floats")  # DeepLearningExamples' variant
        self.same(want, 2, "data.format=hugectr_raw", "data.path=counts")
        self.same(want, 4, "data.format=hugectr_raw", "data.path=floats")

    def test_multi_hot(self):
        train, test = self.make(multi_hot=True)
        want = self.outcome(1)
        write_records(self.path("raw", "train_data.bin"), train, float_dense=True)
        write_records(self.path("raw", "test_data.bin"), test, float_dense=True)
        write_day(self.path("days"), "day_0", train.part(0, 61))
        write_day(self.path("days"), "day_1", train.part(61, 120))
        write_day(self.path("days"), "day_2", test)
        for ranks in (1, 2, 3, 4):
            self.same(want, ranks, "data.format=hugectr_raw", "data.path=raw")
            self.same(want, ranks, "data.format=npy", "data.path=days")
        unpooled = ["model.features.0.combiner=none", "model.features.2.combiner=none"]
        want = self.outcome(1, *unpooled)
        self.same(want, 2, *unpooled, "data.format=npy", "data.path=days", "parallel.row_slice_threshold=10000")
        self.same(want, 3, *unpooled, "data.format=hugectr_raw", "data.path=raw", "parallel.data_parallel_threshold=200")

    def test_one_hot_in_archives(self):
        train, test = self.make(train=30, test=9)
        want = self.outcome(1)
        for day, rows in (("day_0", train), ("day_1", test)):
            write_day(self.path("days"), day, rows)
            os.remove(self.path("days", day + "_sparse.npy"))
            write_archive(self.path("days"), day, rows)
        self.same(want, 2, "data.format=npy", "data.path=days")

    def test_several_files(self):
        """In the order of their numbers: part-2 before part-10."""
        train, test = self.make()
        want = self.outcome(1)
        for name, rows in (("part-2", train.part(0, 50)), ("part-10", train.part(50, 51)), ("last", train.part(51, 120)), ("score", test)):
            write_records(self.path("parts", name), rows)
        self.same(want, 3, "data.format=mlperf_bin", "data.path=parts", "data.train_files=part-*, last", "data.test_files=score")

    def test_more_ranks_than_rows(self):
        train, test = self.make(train=3, test=2)
        want = self.outcome(1)
        write_records(self.path("counts", "day_train.bin"), train)
        write_records(self.path("counts", "day_test.bin"), test)
        self.same(want, 4, "data.format=mlperf_bin", "data.path=counts")

    def test_default_order_of_sums(self):
        """Without train.deterministic the format decides nothing either."""
        train, test = self.make()
        write_records(self.path("counts", "day_train.bin"), train)
        write_records(self.path("counts", "day_test.bin"), test)
        for more in (), ("parallel.data_parallel_threshold=20000",):  # user and item on every rank: ids of own samples alone
            want = self.outcome(3, "train.deterministic=false", *more)
            self.same(want, 3, "train.deterministic=false", "data.format=mlperf_bin", "data.path=counts", *more)
        want = self.outcome(1, *more)
        self.same(want, 4, "data.format=mlperf_bin", "data.path=counts", *more)
        for more in (["train.deterministic=false"], []):  # ids of replicated tables come for all samples, not for the rank's own
            replicated = ["parallel.data_parallel_threshold=1e6"] + more
            self.same(self.outcome(3, *replicated), 3, *replicated, "data.format=mlperf_bin", "data.path=counts")

    def test_short_batch_of_five_ranks(self):
        """8 samples cut for 5 ranks give rank 2 one, the last batch's 7 give it two."""
        train, test = self.make(train=15, test=5)
        write_records(self.path("counts", "day_train.bin"), train)
        write_records(self.path("counts", "day_test.bin"), test)
        more = ["train.deterministic=false", "train.batch_size=8", "parallel.data_parallel_threshold=1e6"]
        self.same(self.outcome(5, *more), 5, *more, "data.format=mlperf_bin", "data.path=counts")

    def test_predict(self):
        """In input order; the halves of the test rows, an odd number of them."""
        train, test = self.make(test=71)
        self.outcome(1)
        self.succeed(1, "config.yaml", "checkpoint.init_from=out", "--predict", "want.npy")
        write_records(self.path("counts", "day_train.bin"), train)
        write_records(self.path("counts", "day_test.bin"), test)
        want = np.load(self.path("want.npy"))
        for ranks, part, rows in ((1, "all", slice(0, 71)), (3, "first_half", slice(0, 36)), (2, "second_half", slice(36, 71))):
            self.succeed(ranks, "config.yaml", "data.format=mlperf_bin", "data.path=counts", "data.test_part=" + part,
                         "checkpoint.init_from=out", "--predict", "got.npy")
            np.testing.assert_array_equal(np.load(self.path("got.npy")), want[rows])

    def test_more_rows_than_fit_31_bits(self):
        """The second half of a file with more rows than Terabyte has, 192 GB of holes but for its first rows."""
        train, test = self.make(test=70)
        self.outcome(1)
        self.succeed(1, "config.yaml", "checkpoint.init_from=out", "--predict", "want.npy")
        write_records(self.path("counts", "day_train.bin"), train)
        path, rows = self.path("counts", "day_test.bin"), 2 ** 32 + 2 ** 31
        with open(path, "wb") as f:
            f.truncate(rows * 32)
            f.seek(rows // 2 * 32)
            f.write(records(test).tobytes())
        self.succeed(2, "config.yaml", "data.format=mlperf_bin", "data.path=counts", "data.dense_type=int32", "data.test_part=second_half",
                     "eval.max_samples=70", "checkpoint.init_from=out", "--predict", "got.npy")
        np.testing.assert_array_equal(np.load(self.path("got.npy")), np.load(self.path("want.npy")))


class Shuffled(RowTest):
    """data.shuffle: one order for all formats and any number of ranks, another in each epoch."""

    def test_same_order(self):
        train, test = self.make()
        want, plain = self.outcome(1, "data.shuffle=true"), self.outcome(1)
        self.assertNotEqual(want[0][0], plain[0][0])
        self.assertNotEqual(want[0], self.outcome(1, "data.shuffle=true", "train.seed=2")[0])
        write_records(self.path("counts", "day_train.bin"), train)
        write_records(self.path("counts", "day_test.bin"), test)
        write_day(self.path("days"), "day_0", train.part(0, 61), "<i4")
        write_day(self.path("days"), "day_1", train.part(61, 120), "<i8")
        write_day(self.path("days"), "day_2", test)
        for ranks, more in ((2, ()), (3, ()), (4, ()), (1, ("data.format=mlperf_bin", "data.path=counts")), (3, ("data.format=mlperf_bin", "data.path=counts")),
                            (2, ("data.format=npy", "data.path=days")), (4, ("data.format=npy", "data.path=days"))):
            with self.subTest(ranks=ranks, more=more):
                self.assertEqual(self.outcome(ranks, "data.shuffle=true", *more), want)

    def test_epochs(self):
        """Without updates the mean loss over an epoch is that of all its rows, in whatever order."""
        self.make(train=128)
        losses = []
        for shuffle in ("true", "false"):
            self.succeed(2, "config.yaml", "train.epochs=3", "data.shuffle=" + shuffle, "optimizer.dense={name: sgd, learning_rate: 1.0e-30}",
                         "optimizer.embedding={name: sgd, learning_rate: 1.0e-30}")
            losses.append(np.array([e["loss"] for e in fixture.events(self.path("run.jsonl"), "step")]).reshape(3, 8))
        np.testing.assert_allclose(losses[0].mean(1), losses[1].mean(1), rtol=1e-6)
        for a, b in ((0, 1), (0, 2), (1, 2)):
            self.assertFalse(np.any(losses[0][a] == losses[0][b]))
            self.assertTrue(np.all(losses[1][a] == losses[1][b]))

    def test_resumed(self):
        """From a checkpoint within an epoch, on other ranks: as in one go."""
        train, test = self.make()
        write_records(self.path("counts", "day_train.bin"), train)
        write_records(self.path("counts", "day_test.bin"), test)
        for more in ((), ("data.format=mlperf_bin", "data.path=counts")):
            with self.subTest(more=more):
                more = ("data.shuffle=true",) + more
                want = self.outcome(1, *more)[2]
                folder = "checkpoint.path=saved" + str(len(more))
                self.succeed(3, "config.yaml", "train.epochs=2", "train.steps=11", folder, *more)
                self.succeed(2, "config.yaml", "train.epochs=2", folder, "checkpoint.export=out", *more)
                start = [e for e in fixture.events(self.path("run.jsonl")) if e["event"] in ("start", "resume")][-1]
                end = fixture.events(self.path("run.jsonl"), "end")[-1]
                for s, e in zip(start.get("per_rank", []), end["per_rank"]):
                    self.assertLessEqual(abs(s["sent_bytes_per_step"] - e["sent_bytes_per_step"]), 0.05 * e["sent_bytes_per_step"] + 1)
                self.assertEqual(self.file_bytes("out", "model.safetensors"), want)

    def test_bad_row(self):
        rows = self.make(train=3000)[0]
        rows.ids[2][2222, 0] = 70001
        write_records(self.path("counts", "day_train.bin"), rows)
        self.refuse(3, 1, r"^counts/day_train\.bin: row 2222: id 70001 is outside \[0, 70000\) of table page", "config.yaml", "data.shuffle=true",
                    "data.format=mlperf_bin", "data.path=counts")

    def test_bytes(self):
        """Whole lanes: every row is read once by one rank; and what --check says."""
        train, test = self.make(train=6400)
        write_records(self.path("counts", "day_train.bin"), train)
        write_records(self.path("counts", "day_test.bin"), test)
        for ranks in (1, 2, 4):
            self.succeed(ranks, "config.yaml", "data.shuffle=true", "data.format=mlperf_bin", "data.path=counts", "train.batch_size=128",
                         "log.every_steps=0", "eval.every_epoch=false")
            start, end = (fixture.events(self.path("run.jsonl"), kind)[0] for kind in ("start", "end"))
            for s, e in zip(start["per_rank"], end["per_rank"]):
                self.assertEqual((s["file_bytes"], e["file_bytes"]), (6400 // ranks * 32, 6400 // ranks * 32))
                memory = max(s["memory_bytes"], 4 << 20)  # as test_work.py has it
                self.assertLessEqual(abs(e["peak_bytes"] - memory), 0.05 * memory + (2 << 20))

    def test_synthetic(self):
        self.write("config.yaml", fixture.SYNTHETIC)
        self.refuse(1, 1, r"data\.shuffle: found true, expected false: synthetic rows", "config.yaml", "data.shuffle=true")


class Work(RowTest):
    """A rank reads the rows of its own samples alone, sends ids in as few bytes as they need, and --check knows it."""

    def test_bytes(self):
        train, test = self.make(train=125, multi_hot=True)
        write_records(self.path("raw", "train_data.bin"), train)
        write_records(self.path("raw", "test_data.bin"), test)
        write_day(self.path("days"), "day_0", train)
        write_day(self.path("days"), "day_1", test)
        record, day = 4 * (1 + 3 + 7), 4 * (1 + 3 + 7)
        for (form, path, row), ranks in zip((("hugectr_raw", "raw", record), ("npy", "days", day)) * 2, (2, 3, 4, 1)):
            self.succeed(ranks, "config.yaml", "data.format=" + form, "data.path=" + path, "eval.every_epoch=true")
            start, end = (fixture.events(self.path("run.jsonl"), kind)[0] for kind in ("start", "end"))
            for s, e in zip(start["per_rank"], end["per_rank"]):
                self.assertEqual(s["file_bytes"], e["file_bytes"])
                self.assertLessEqual(abs(s["sent_bytes_per_step"] - e["sent_bytes_per_step"]), 0.05 * s["sent_bytes_per_step"] + 1)
            self.assertEqual(sum(e["file_bytes"] for e in end["per_rank"]), (125 + 70) * row)

    def test_sent(self):
        """The difference to split-binary files, where nothing is exchanged, is the ids' bytes: 1, 2 and 3 each."""
        train, test = self.make(train=128)
        write_records(self.path("counts", "day_train.bin"), train)
        write_records(self.path("counts", "day_test.bin"), test)
        sent = []
        for more in ((), ("data.format=mlperf_bin", "data.path=counts")):
            self.succeed(2, "config.yaml", "parallel.strategy=basic", *more)  # user and page on rank 0, item on rank 1
            sent.append([r["sent_bytes_per_step"] for r in fixture.events(self.path("run.jsonl"), "end")[0]["per_rank"]])
        self.assertEqual([b - a for a, b in zip(*sent)], [8 * 2, 8 * (1 + 3 + 1)])
        sent = []
        for more in ((), ("data.format=mlperf_bin", "data.path=counts")):  # item is on both ranks, and its ids stay where they were read
            self.succeed(2, "config.yaml", "parallel.strategy=basic", "train.deterministic=false", "parallel.data_parallel_threshold=20000", *more)
            sent.append([r["sent_bytes_per_step"] for r in fixture.events(self.path("run.jsonl"), "end")[0]["per_rank"]])
        self.assertEqual([b - a for a, b in zip(*sent)], [8 * 3] * 2)  # page alone has owners: half of its columns on each rank


class RecordTraps(RowTest):
    """What files without a header invite."""

    def refused(self, pattern, *more, ranks=1):
        self.refuse(ranks, 1, pattern, "config.yaml", "data.format=mlperf_bin", "data.path=set", *more)

    def records(self, train=None, test=None, n=120, **kind):
        rows = [Rows(n, 1), Rows(70, 2)]
        self.write("config.yaml", config())
        os.makedirs(self.path("set"), exist_ok=True)
        for name, given, usual in (("train_data.bin", train, rows[0]), ("test_data.bin", test, rows[1])):
            (records(usual, **kind) if given is None else given).tofile(self.path("set", name))
        return rows

    def test_int_or_float(self):
        """Told apart by the bits; refused where they do not say."""
        rows = self.records()
        mixed = records(rows[0])
        mixed[::2] = records(rows[0], float_dense=True)[::2]
        self.records(train=mixed)
        self.refused(r"^set/train_data\.bin: cannot tell whether the dense values are int32 counts or float32: .* data\.dense_type says it$")
        blank = records(rows[0])
        blank[:, 1:4] = 0
        self.records(train=blank)
        self.refused(r"^set/train_data\.bin: cannot tell .*data\.dense_type says it$")
        self.succeed(1, "config.yaml", "data.format=mlperf_bin", "data.path=set", "data.dense_type=int32")
        self.records(test=records(rows[1], float_dense=True))
        self.refused(r"^set/test_data\.bin: the dense values are float32 values, but those of set/train_data\.bin are int32 counts$")
        self.records(float_dense=True)
        self.refused(r"^set/train_data\.bin: the dense values are float32 values .*, expected int32 counts$", "data.dense_type=int32")

    def test_float_labels(self):
        """Whose bits an int32 reader would take for 1065353216."""
        self.records(float_labels=True)
        self.refused(r"^set/train_data\.bin: of 360 records looked at, \d+ have a label of 1065353216, the bits of float 1; expected int32 labels")

    def test_labels(self):
        late = records(Rows(9000, 1))
        late[2000, 0] = 2
        self.records(train=late)
        self.refused(r"^set/train_data\.bin: row 2000: label 2 is neither 0 nor 1$", ranks=3)

    def test_ids(self):
        """By file, row and value, whichever rank reads it; and what else can be done with them."""
        rows = self.records()[0]
        rows.ids[2][77, 0] = 70000
        self.records(train=records(rows))
        for ranks in (1, 3):
            self.refused(r"^set/train_data\.bin: row 77: id 70000 is outside \[0, 70000\) of table page", ranks=ranks)
        self.succeed(2, "config.yaml", "data.format=mlperf_bin", "data.path=set", "data.index_check=clamp")
        end = fixture.events(self.path("run.jsonl"), "end")[0]
        self.assertEqual(sum(r["clamped_ids"] for r in end["per_rank"]), 1)

    def test_modulo(self):
        """torchrec's `hashes`, facebook's max_ind_range: the same as ids taken modulo the rows beforehand."""
        rows = self.records()
        for k, r in enumerate(rows):
            r.ids[0][5, 0] += 50 * 7
            r.ids[2][:, 0] += 70000 * np.arange(r.n)
        self.records(train=records(rows[0]), test=records(rows[1]))
        for j, r in enumerate(rows):
            write_day(self.path("days"), "day_%d" % j, r, "<i8")
        write_split_binary(self.path("data"), *rows)  # its cardinality says nothing of these ids
        self.refused(r"^set/train_data\.bin: row ", ranks=2)
        got = [self.outcome(ranks, "data.index_check=modulo", "data.format=" + form, "data.path=" + path)
               for ranks, form, path in ((2, "mlperf_bin", "set"), (3, "npy", "days"), (1, "split_binary", "data"))]
        for r in rows:
            for ids, (_, table, _) in zip(r.ids, FEATURES):
                ids %= table
        write_split_binary(self.path("data"), *rows)
        want = self.outcome(1)
        for g in got:
            self.assertEqual(g, want)

    def test_hash(self):
        """An unsigned hash in an int32 is no id, and modulo does not make it one; in HugeCTR's unsigned words it does."""
        rows = self.records()[0]
        rows.ids[1][11, 0] = 0xFFFFFFFF
        self.records(train=records(rows))
        for check in ("error", "modulo"):
            self.refused(r"^set/train_data\.bin: row 11: id 4294967295 is outside \[0, 3000\) of table item, or negative as an int32", "data.index_check=" + check)
        self.succeed(1, "config.yaml", "data.format=hugectr_raw", "data.path=set", "data.index_check=modulo")

    def test_negative_count(self):
        rows = self.records()[0]
        rows.counts[33, 1] = -1
        self.records(train=records(rows))
        self.refused(r"^set/train_data\.bin: row 33: count -1 in column 1 is negative")

    def test_not_finite(self):
        late = records(Rows(9000, 1), float_dense=True)
        late[4000, 2] = np.float32("nan").view("<i4")
        self.records(train=late, float_dense=True)
        self.refused(r"^set/train_data\.bin: row 4000: value -?nan in column 1 is not finite$", ranks=2)

    def test_sizes(self):
        """At the start, with what was expected."""
        whole = records(self.records()[0]).tobytes()
        for cut, what in ((len(whole) - 3, r"found 3837 bytes, which are 119 records and 29 bytes; expected a multiple of 32 bytes"), (0, "the file is empty")):
            with open(self.path("set", "train_data.bin"), "wb") as f:
                f.write(whole[:cut])
            self.refused(r"^set/train_data\.bin: " + what)

    def test_which_files(self):
        """Files that are not there, or there twice, or the rows of both splits."""
        rows = self.records()
        records(rows[0]).tofile(self.path("set", "a_train.bin"))
        self.refused(r"data\.train_files: missing: set has both a_train\.bin and train_data\.bin")
        self.refused(r"data\.test_files: train_data\.bin is one of data\.train_files, too", "data.train_files=train_data.bin", "data.test_files='*data.bin'")
        self.refused(r'data\.train_files: no file in set is called "day_\?\.bin"$', "data.train_files=day_?.bin")
        self.refused(r'data\.train_files: found "\.\./set/train_data\.bin", expected names of files in data\.path', "data.train_files=../set/train_data.bin")
        os.remove(self.path("set", "a_train.bin"))
        # a pattern does not take in the test split unasked; its name does
        self.refused(r'data\.train_files: "\*\.bin" takes in test_data\.bin, the test split where data\.test_files does not say another: name the '
                     r"training files without it, or it in full, or set data\.test_files$", "data.train_files='*.bin'")
        self.refused(r"data\.test_files: train_data\.bin is one of data\.train_files, too", "data.train_files='*.bin'", "data.test_files=train_data.bin")
        args = ["config.yaml", "--check", "data.format=mlperf_bin", "data.path=set"]
        self.assertIn("training   190 rows", self.succeed(1, *args, "data.train_files=train_data.bin,test_data.bin").stdout)
        os.remove(self.path("set", "train_data.bin"))
        self.refused(r"data\.path: set has no training files of format mlperf_bin")
        os.mkdir(self.path("set", "train_data.bin"))
        self.refused(r"^set/train_data\.bin: found a folder, expected a file$")

    def test_no_test_split(self):
        self.records()
        os.remove(self.path("set", "test_data.bin"))
        done = self.succeed(1, "config.yaml", "data.format=mlperf_bin", "data.path=set")
        self.assertIn("note: the data has no test split", done.stdout)
        self.refused(r"eval\.target_auc: is 0\.8, but the data has no test split", "eval.target_auc=0.8")

    def test_model(self):
        """What a format cannot hold, or cannot say."""
        self.records()
        self.refused(r'model\.tables: found "from_dataset", but there is no set/records\.yaml, which `dlrm_data convert` writes beside records and which '
                     r"could say; expected a list$", "model.tables=from_dataset", "model.features=null")
        self.refused(r'model\.tables: found "from_dataset", but data\.format: npy has no data description', "data.format=npy", "model.tables=from_dataset")
        self.refused(r"model\.tables: feature user has 2 ids per sample, but data\.format: mlperf_bin has one id for each feature$",
                     "model.features=[{table: user, hotness: 2}]")
        self.refused(r"model\.tables: feature user has up to 3 ids per sample, but data\.format: hugectr_raw has a fixed number",
                     "data.format=hugectr_raw", "model.features=[{table: user, hotness: {max: 3}}]")
        for key, value in (("train_files", "a"), ("test_files", "a"), ("test_part", "first_half"), ("dense_type", "int32")):
            self.refused(r"data\.%s: .*expected (null|all|auto)" % key, "data.format=split_binary", "data.%s=%s" % (key, value))
        self.refused(r"data\.dense_type: expected auto with data\.format: npy, whose arrays say what they hold", "data.format=npy", "data.dense_type=int32")


class ArrayTraps(RowTest):
    """Of arrays and archives."""

    def refused(self, pattern, *more):
        self.refuse(1, 1, pattern, "config.yaml", "data.format=npy", "data.path=set", *more)

    def setUp(self):
        super().setUp()
        self.write("config.yaml", config())
        self.days = [Rows(60, 1), Rows(61, 2), Rows(50, 3)]
        for d, rows in enumerate(self.days):
            write_day(self.path("set"), "day_%d" % d, rows)

    def save(self, name, array):
        np.save(self.path("set", name), array)

    def spoilt(self, name, array, pattern):
        """The message about a file that is not as it should be; then it is again."""
        good = self.file_bytes("set", name)
        if isinstance(array, bytes):
            with open(self.path("set", name), "wb") as f:
                f.write(array)
        else:
            self.save(name, array)
        self.refused("^set/" + name.replace(".", r"\.") + ": " + pattern)
        with open(self.path("set", name), "wb") as f:
            f.write(good)

    def test_no_file(self):
        os.remove(self.path("set", "day_0_labels.npy"))
        os.mkfifo(self.path("set", "day_0_labels.npy"))
        self.refused(r"^set/day_0_labels\.npy: found a pipe, expected a file$")

    def test_headers(self):
        ids = np.concatenate(self.days[1].ids, axis=1)
        dense = self.days[1].dense
        name = "day_1_sparse.npy"
        self.spoilt(name, ids.astype(">i4"), r"found big-endian values \('>i4'\)")
        self.spoilt(name, np.asfortranarray(ids.astype("<i4")), r"found Fortran order")
        self.spoilt(name, ids.astype(object), r"found an array of Python objects")
        self.spoilt(name, ids.astype("<f8"), r"found dtype '<f8'")
        self.spoilt(name, ids.astype("<f4"), r"found float32 ids, expected one of int32, int64$")
        self.spoilt(name, ids[:, :3].astype("<i4"), r"found 3 ids in a row, expected 4 as the model has$")
        self.spoilt(name, ids[:-1].astype("<i4"), r"found 60 rows, expected 61 as in set/day_1_labels\.npy$")
        self.spoilt(name, ids[:, :, None].astype("<i4"), r"found an array of more than 2 dimensions$")
        self.spoilt(name, ids.astype([("a", "<i4")]), r"found an array of a structured type")
        self.spoilt(name, self.file_bytes("set", name)[:-4], r"found \d+ bytes of values, which are not the 61 x 4 of int32 that its header says")
        self.spoilt(name, self.file_bytes("set", name) + b"1234", r"found \d+ bytes of values, which are not")
        self.spoilt(name, self.file_bytes("set", name)[:100], r"the file ends within the array's header$")
        self.spoilt(name, b"", r"is no \.npy array")
        self.spoilt("day_1_dense.npy", dense[:, :2], r"found 2 dense values in a row, expected 3 as the model has$")
        self.spoilt("day_1_dense.npy", self.days[1].counts, r"found int32 dense values, expected one of float16, float32$")
        self.spoilt("day_1_dense.npy", dense.astype("<f2"), r"found float16, expected float32 as in set/day_0_dense\.npy$")
        self.spoilt("day_1_labels.npy", self.days[1].labels.astype("<i8"), r"found int64 labels, expected one of bool, int8, int32, float32$")
        self.spoilt("day_1_labels.npy", self.days[1].labels[:0], r"found no rows$")

    def test_values(self):
        ids = np.concatenate(self.days[1].ids, axis=1).astype("<i8")
        ids[7, 2] = 2 ** 40
        self.spoilt("day_1_sparse.npy", ids, r"row 7: id 1099511627776 is outside \[0, 70000\) of table page; "
                     r"keys of 64 bits are for a table with rows: dynamic$")
        ids[7, 2] = -1
        self.spoilt("day_1_sparse.npy", ids, r"row 7: id -1 is outside")
        dense = self.days[1].dense
        dense[60, 0] = np.inf
        self.spoilt("day_1_dense.npy", dense, r"row 60: value inf in column 0 is not finite$")
        labels = self.days[1].labels.copy()
        labels[3] = -1  # what Kaggle's test set has for labels
        self.spoilt("day_1_labels.npy", labels, r"row 3: label -1 is neither 0 nor 1$")

    def test_missing_files(self):
        os.rename(self.path("set", "day_1_dense.npy"), self.path("elsewhere"))
        self.refused(r"^set/day_1_dense\.npy: No such file or directory$")

    def test_accepted(self):
        """Labels of one dimension, of another type; version 2.0 of the header; days of another name."""
        rows = self.days
        self.outcome_of_days = self.outcome(2, "data.format=npy", "data.path=set")
        for d, r in enumerate(rows):
            self.save("day_%d_labels.npy" % d, r.labels.astype(bool))
            with open(self.path("set", "day_%d_sparse.npy" % d), "wb") as f:
                np.lib.format.write_array(f, np.concatenate(r.ids, axis=1).astype("<i4"), version=(2, 0))
        self.assertEqual(self.outcome(2, "data.format=npy", "data.path=set"), self.outcome_of_days)
        write_split_binary(self.path("data"), join(rows[0], rows[1]), rows[2])
        self.assertEqual(self.outcome(1), self.outcome_of_days)
        for d in ("0", "1", "2"):
            for kind in ("labels", "dense", "sparse"):
                os.rename(self.path("set", "day_%s_%s.npy" % (d, kind)), self.path("set", "%s_%s.npy" % ({"0": "a", "1": "b", "2": "c"}[d], kind)))
        self.assertEqual(self.outcome(1, "data.format=npy", "data.path=set", "data.train_files=a,b", "data.test_files=c"), self.outcome_of_days)

    def test_pattern_with_the_test_day(self):
        """day_* has the last day in it, which is the test split; one day alone is for training."""
        self.refused(r'data\.train_files: "day_\*" takes in day_2, the test split where data\.test_files does not say another', "data.train_files=day_*")
        args = ["config.yaml", "--check", "data.format=npy", "data.path=set"]
        rows = [d.n for d in self.days]
        self.assertIn("training   %d rows" % sum(rows), self.succeed(1, *args, "data.train_files='day_0,day_1,day_2'").stdout)
        for d in (1, 2):
            for kind in ("labels", "dense", "sparse"):
                os.remove(self.path("set", "day_%d_%s.npy" % (d, kind)))
        self.assertIn("training   %d rows" % rows[0], self.succeed(1, *args, "data.train_files=day_*").stdout)

    def test_kaggle(self):
        """train_*.npy alone: nothing to score on, and not the training rows."""
        os.mkdir(self.path("kaggle"))
        write_day(self.path("kaggle"), "train", self.days[0])
        done = self.succeed(1, "config.yaml", "data.format=npy", "data.path=kaggle")
        self.assertIn("note: the data has no test split", done.stdout)

    def test_archives(self):
        rows = [Rows(60, d, multi_hot=True) for d in range(2)]
        self.write("config.yaml", config(multi_hot=True))
        self.refused(r"^set/day_0_sparse_multi_hot\.npz: No such file or directory$")
        for d in range(3):
            for kind in ("labels", "dense", "sparse"):
                os.remove(self.path("set", "day_%d_%s.npy" % (d, kind)))
        for d, r in enumerate(rows):
            write_day(self.path("set"), "day_%d" % d, r)
        self.succeed(3, "config.yaml", "data.format=npy", "data.path=set")
        archive = "day_0_sparse_multi_hot.npz"

        def spoilt(ids, pattern, save=np.savez):
            save(self.path("set", archive), **ids)
            self.refused(r"^set/day_0_sparse_multi_hot\.npz: " + pattern)

        good = {str(j): i.astype("<i4") for j, i in enumerate(rows[0].ids)}
        spoilt(good, r"member 0\.npy: is compressed \(method 8\), expected it stored", np.savez_compressed)
        spoilt({k: good[k] for k in "012"}, r"found 3 members, expected 4")
        spoilt({**{k: good[k] for k in "012"}, "x": good["3"]}, r'found a member "x\.npy", expected 0\.npy to 3\.npy, once each$')
        spoilt({**good, "2": good["2"][:, :2]}, r"member 2\.npy: found 2 ids in a row, expected 3")
        spoilt({**good, "2": good["2"][:50]}, r"member 2\.npy: found 50 rows, expected 60 as in set/day_0_labels\.npy$")
        spoilt({**good, "2": np.asfortranarray(good["2"])}, r"member 2\.npy: found Fortran order")
        bad = good["2"].copy()
        bad[59, 2] = 70000
        spoilt({**good, "2": bad}, r"member 2\.npy: row 59: id 70000 is outside \[0, 70000\) of table page$")
        np.savez(self.path("set", archive), **good)
        whole = self.file_bytes("set", archive)
        for cut in (len(whole) - 1, len(whole) // 2, 3, 0):
            with open(self.path("set", archive), "wb") as f:
                f.write(whole[:cut])
            self.refused(r"^set/day_0_sparse_multi_hot\.npz: .*(cut off|end record)")


if __name__ == "__main__":
    fixture.main()
