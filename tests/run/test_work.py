#!/usr/bin/env python3
"""Nothing is replicated: what each rank computed, held, read, sent and needed, as the end event says, is what --check and the start
event said it would be, within 5 %."""
import itertools
import re

import fixture
from fixture import events

TOLERANCE = 0.05
BESIDE = 2 << 20  # bytes: fixed memory that the prediction leaves out
START = 4 << 20  # bytes: what reading the config takes, and has given back before the model is made
FIGURES = ["samples", "table_bytes", "file_bytes", "sent_bytes_per_step"]

SYNTHETIC = """\
model:
  dense_features: 13
  embedding_dim: 16
  bottom_mlp: [64, 16]
  interaction: dot
  top_mlp: [64, 1]
  tables: [{rows: 60000}, {rows: 30000, hotness: 3}, {rows: 9000, hotness: {max: 6}}, {count: 3, rows: 500}]
optimizer:
  dense: {name: adagrad, learning_rate: 0.01}
  embedding: {name: adagrad, learning_rate: 0.01}
train: {batch_size: 1001}
data: {format: synthetic, synthetic: {batches: 6}}
log: {every_steps: 0, jsonl: run.jsonl}
"""


class Work(fixture.RunTest):
    def close(self, got, want, what, beside=0):
        self.assertLessEqual(abs(got - want), TOLERANCE * want + beside, "%s: was %s, predicted %s" % (what, got, want))

    def check_table(self, out):
        """The rows of --check's table, in bytes."""
        rows = []
        for line in out[out.index("\n  rank "):].splitlines()[2:]:
            v = line.split()
            if not v or not re.fullmatch(r"\d+", v[0]):
                break
            rows.append({"tables": int(v[1]), "inputs": int(v[2]), "table_bytes": float(v[3]) * 2 ** 20,
                         "state_bytes": float(v[4]) * 2 ** 20, "memory_bytes": float(v[5]) * 2 ** 20, "samples": int(v[6]),
                         "file_bytes": float(v[7]) * 2 ** 20, "sent_bytes_per_step": float(v[8]) * 1024})
        return rows

    def compare(self, ranks, *args):
        args = ("config.yaml",) + args
        checked = self.check_table(self.succeed(ranks, *args, "--check").stdout)
        said = self.succeed(ranks, *args).stdout
        start, end = (events(self.path("run.jsonl"), kind)[0] for kind in ("start", "end"))
        self.assertEqual([len(x) for x in (checked, start["per_rank"], end["per_rank"])], [ranks] * 3)
        for rank, (c, s, e) in enumerate(zip(checked, start["per_rank"], end["per_rank"])):
            what = "rank %d of %d, %s, %%s" % (rank, ranks, " ".join(args[1:]))
            for figure in c:  # --check prints two decimals of a MiB or KiB
                printed = 0 if isinstance(c[figure], int) else 0.006 * (1024 if "sent" in figure else 2 ** 20)
                self.assertAlmostEqual(c[figure], s[figure], delta=printed, msg=what % figure)
            for figure in FIGURES:
                self.close(e[figure], s[figure], what % figure)
            self.close(e["tables_ms_predicted"], s["tables_ms"], what % "predicted time of tables")
            parts = sum(e["time_shares"][k] for k in ("lookup", "exchange", "update"))
            self.close(e["tables_ms"], parts * 1e3 * end["train_s"] / end["steps"], what % "time of tables")
            self.close(e["peak_bytes"], max(s["memory_bytes"], START), what % "memory", BESIDE)
        slowest = [max((r[key], -r["rank"]) for r in end["per_rank"]) for key in ("tables_ms_predicted", "tables_ms")]
        self.assertIn("tables of the slowest rank: %.2f ms a step predicted (rank %d), %.2f ms measured (rank %d)" %
                      (slowest[0][0], -slowest[0][1], slowest[1][0], -slowest[1][1]), said)
        # Together the ranks do the work once.
        self.assertEqual(sum(e["samples"] for e in end["per_rank"]), end["samples"])
        self.assertEqual(start["steps"], end["steps"])
        whole = len([owner for owner in start["table_owner"] if owner is not None and owner >= 0])
        self.assertGreaterEqual(sum(s["tables"] for s in start["per_rank"]), whole)
        self.assertEqual(len([owner for owner in start["table_owner"] if owner == -1]), start["replicated_tables"])
        self.assertEqual(sum(e["table_bytes"] for e in end["per_rank"]),
                         4 * (start["model"]["embedding_parameters"] + (ranks - 1) * start["replicated_parameters"]))
        return start, end

    def test_files(self):
        """Several epochs with evaluations on the way; steps that end in an epoch; only some rows scored; short last batches."""
        self.make_data(train=1100, test=900)
        settings = [["train.epochs=2"],
                    ["train.batch_size=64", "train.steps=20", "train.deterministic=true", "eval.max_samples=333"],
                    ["train.epochs=3", "eval.every_steps=50", "eval.batch_size=100", "train.batch_size=33"]]
        cases = list(zip(itertools.product((1, 2, 3), ("basic", "memory_balanced", "memory_optimized")),
                         (settings[k] for k in (0, 1, 2, 1, 2, 0, 2, 0, 1))))
        for (ranks, strategy), more in cases[::4] if fixture.SANITIZED else cases:
            with self.subTest(ranks=ranks, strategy=strategy, more=more):
                start, end = self.compare(ranks, "parallel.strategy=" + strategy, "log.every_steps=0", *more)
                self.assertEqual(start["strategy"], strategy)
                columns = sum(len(ids.tobytes()) for ids in fixture.Rows(1100, 1).ids)
                if more == settings[0]:  # all ranks together read each column once an epoch, and the offsets twice at a batch's edge
                    read = sum(r["file_bytes"] for r in end["per_rank"])
                    test = fixture.Rows(900, 2)
                    once = columns + 1100 * 13 + 8 * (1100 + 69)
                    scored = sum(len(ids.tobytes()) for ids in test.ids) + 900 * 13 + 8 * (900 + 57)
                    self.assertEqual(read, 2 * (once + scored))

    def test_synthetic(self):
        self.write("config.yaml", SYNTHETIC)
        for ranks, more in ((1, ["train.steps=9"]), (2, ["parallel.strategy=memory_optimized", "eval.every_epoch=false"]),
                            (3, ["train.deterministic=true", "optimizer.embedding.name=rowwise_adagrad"]),
                            (2, ["model.interaction=dcn", "model.cross={layers: 3, rank: 40}"])):
            with self.subTest(ranks=ranks, more=more):
                _, end = self.compare(ranks, *more)
                self.assertEqual(sum(r["file_bytes"] for r in end["per_rank"]), 0)

    def test_replicated(self):
        """A rank reads its own samples' ids of replicated tables, in deterministic mode everybody's."""
        self.write("config.yaml", SYNTHETIC)
        cases = [(2, 8000, 3, []), (3, 10 ** 6, 6, []), (1, 10 ** 6, 0, []),
                 (2, 9000 * 16, 4, ["train.deterministic=true", "optimizer.embedding.name=adam"]),
                 (3, 9000 * 16 - 1, 3, ["optimizer.embedding.name=adam"])]
        for ranks, threshold, tables, more in cases[3:] if fixture.SANITIZED else cases:
            with self.subTest(ranks=ranks, threshold=threshold):
                start, _ = self.compare(ranks, "parallel.data_parallel_threshold=%d" % threshold, *more)
                self.assertEqual(start["replicated_tables"], tables)
        said = self.succeed(2, "config.yaml", "parallel.data_parallel_threshold=1e6", "train.embedding_dtype=bf16", "train.steps=1").stdout
        elements = events(self.path("run.jsonl"), "start")[0]["replicated_parameters"]
        self.assertIn("every rank: 6 tables, %.1f MiB\n" % (2 * elements / 2 ** 20), said)
        self.make_data(train=1100, test=900)
        for more in ([], ["train.deterministic=true"]):
            self.compare(3, "train.epochs=2", "log.every_steps=0", "parallel.data_parallel_threshold=150", *more)

    def test_no_end(self):
        """A run that its target, or somebody, will end starts as fast as a short one."""
        self.write("config.yaml", SYNTHETIC)
        for every in ("null", "7"):
            checked = self.succeed(1, "config.yaml", "--check", "train.steps=1000000000000000", "eval.every_steps=" + every)
            times = int(re.search(r"^evaluation .*, (\d+) times$", checked.stdout, re.M)[1])
            # An epoch has 6 steps; the last evaluation is the one at the end.
            self.assertEqual(times, 10 ** 15 // 6 + 1 + (0 if every == "null" else 10 ** 15 // 7 - 10 ** 15 // 42))

    def test_more_ranks_than_tables(self):
        """The largest tables are halved until every rank has some; an optimizer of whole rows has its owners tell each other more."""
        self.make_data()
        _, end = self.compare(4, "train.epochs=2", "log.every_steps=0")
        self.assertGreater(min(r["table_bytes"] for r in end["per_rank"]), 0)
        _, rowwise = self.compare(4, "train.epochs=2", "log.every_steps=0", "optimizer.embedding.name=rowwise_adagrad")
        self.assertGreater(min(r["table_bytes"] for r in rowwise["per_rank"]), 0)
        self.assertGreater(sum(r["sent_bytes_per_step"] for r in rowwise["per_rank"]), sum(r["sent_bytes_per_step"] for r in end["per_rank"]))

    def test_slices(self):
        """Rows and columns of tables on several ranks, and all kinds of placement at once."""
        self.write("config.yaml", SYNTHETIC)
        cases = [(2, "1e5", "null", []), (3, "0", "null", []), (4, "null", "2e5", []), (2, "null", "1", []),
                 (3, "6e5", "1e5", ["parallel.data_parallel_threshold=8000"]),
                 (2, "0", "null", ["train.deterministic=true", "model.tables.1.combiner=mean"]),
                 (3, "0", "null", ["train.deterministic=true", "train.exchange_dtype=bf16"])]
        for ranks, rows, columns, more in cases[4:] if fixture.SANITIZED else cases:
            with self.subTest(ranks=ranks, rows=rows, columns=columns):
                self.compare(ranks, "parallel.row_slice_threshold=" + rows, "parallel.column_slice_threshold=" + columns, *more)

    def test_too_large(self):
        """What cannot fit is known before anything is taken, and which tables it is; --check shows how much."""
        self.write("config.yaml", SYNTHETIC)
        many = ("model.tables.0={rows: 4e9, count: 400, name: big}",)
        tables = ", ".join(r"big_%d \(4000000000 rows x 16: 476\.84 GiB\)" % k for k in range(3))
        self.refuse(2, 3, r"^dlrm-train: no placement of the tables fits 2 ranks of [\d.]+ GiB: one would hold [\d.]+ GiB; tables and optimizer "
                    r"state need 190\d{3}\.\d\d GiB in all, the largest %s; more than \d+ ranks with as much memory each are needed$" % tables,
                    "config.yaml", *many)
        self.refuse(2, 3, r"^dlrm-train: the model needs 190\d{3}\.\d\d GiB on this host \(2 ranks\), [\d.]+ GiB are available; "
                    "the largest tables, with optimizer state: %s; use more hosts, fewer rows or smaller tables$" % tables, "config.yaml",
                    "parallel.strategy=basic", *many)
        shown = self.check_table(self.succeed(2, "config.yaml", *many, "--check").stdout)
        self.close(sum(row["table_bytes"] for row in shown), 400 * 4e9 * 64, "table bytes")

    def test_small_sets(self):
        """A batch larger than the data is all of the data, and a rank may have no sample of it."""
        self.make_data(train=3, test=2)
        self.compare(4, "train.batch_size=64", "train.epochs=3")
        self.compare(4, "train.batch_size=2", "train.deterministic=true")
        self.make_data(train=7, test=3)
        start, _ = self.compare(2, "train.batch_size=64", "train.epochs=3")
        self.assertEqual(start["batch_size"], 7)

    def test_rank_without_tables(self):
        """Three tables of one column cannot be halved: the fourth rank holds nothing and still does its samples."""
        self.make_data()
        _, end = self.compare(4, "train.epochs=2", "log.every_steps=0", "model.interaction=cat", "model.embedding_dim=1")
        self.assertEqual(end["per_rank"][3]["table_bytes"], 0)
        self.assertGreater(end["per_rank"][3]["samples"], 0)


if __name__ == "__main__":
    fixture.main()
