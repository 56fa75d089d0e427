"""What dlrm_data writes is what the trainer reads: the same rows in every format give the same losses.
test_tool_formats.py TRAINER DLRM_DATA [unittest's arguments]"""
import os

import numpy as np

import criteo_run


class ToolFormats(criteo_run.CriteoTest):
    def losses(self, ranks, *args):
        self.succeed(ranks, "config.yaml", "train.deterministic=true", *args)
        return [(e["event"], e["step"], e["loss"], e.get("auc")) for kind in ("step", "eval") for e in self.events(kind)]

    def write_config_with(self, tables):
        self.write_config("name: sgd, learning_rate: 0.5", "batch_size: 100, epochs: 1")
        with open(self.path("config.yaml")) as f:
            text = f.read()
        self.assertIn("  tables: from_dataset\n", text)
        self.write("config.yaml", text.replace("  tables: from_dataset\n", tables))

    def tables_of(self, folder):
        """The tables of records.yaml, as they stand there, for model.tables."""
        with open(self.path(folder + "/records.yaml")) as f:
            lines = f.read().splitlines(True)
        begin = [i for i, line in enumerate(lines) if line.startswith("tables:")][0]
        return "".join("  " + line for line in lines[begin:])

    def test_same_losses(self):
        self.tool("synth", "--rows", 2500, "--seed", 2, "--out", self.path("t.txt"))
        self.tool("convert", self.path("t.txt"), "--out", self.path("data"), "--dense", "log1", "--dense-type", "float32")
        self.tool("convert", self.path("t.txt"), "--to", "mlperf_bin", "--out", self.path("mlperf"))
        self.tool("convert", self.path("data"), "--to", "hugectr_raw", "--out", self.path("hugectr"))
        self.assertEqual(self.tables_of("mlperf"), self.tables_of("hugectr"))
        self.write_config_with(self.tables_of("mlperf"))
        want = self.losses(1)
        self.assertEqual((len(want), len({w[2] for w in want})), (23, 23))  # 22 steps and an evaluation
        for ranks in (1, 2):
            self.assertEqual(self.losses(ranks, "data.format=mlperf_bin", "data.path=mlperf"), want)
            self.assertEqual(self.losses(ranks, "data.format=hugectr_raw", "data.path=hugectr"), want)
        # records.yaml is a description, too
        self.assertEqual(self.losses(1, "data.format=mlperf_bin", "data.path=mlperf", "model.tables=from_dataset", "model.dense_features=from_dataset"), want)
        self.check_description()

    def refused(self, message, *args):
        done = self.run_trainer(1, "config.yaml", "model.tables=from_dataset", *args)
        self.assertEqual((done.returncode, done.stderr), (1, message + "\n"), done.stdout)

    def check_description(self):
        self.refused("command line: data.format: found mlperf_bin, but hugectr/records.yaml says hugectr_raw", "data.format=mlperf_bin", "data.path=hugectr")
        for name in ("train_data.bin", "test_data.bin"):  # zeros are counts and floats alike
            rows = np.fromfile(self.path("mlperf", name), "<i4").reshape(-1, 40)
            rows[:, 1:14] = 0
            rows.tofile(self.path("mlperf", name))
        args = [1, "config.yaml", "--check", "data.format=mlperf_bin", "data.path=mlperf"]
        self.assertIn("cannot tell whether the dense values are int32 counts or float32", self.run_trainer(*args).stderr)
        self.succeed(*args, "model.tables=from_dataset")
        path = self.path("mlperf/test_data.bin")  # cut off at the end of a record
        rows = os.path.getsize(path) // 160
        os.truncate(path, (rows - 1) * 160)
        self.refused("mlperf/test_data.bin: found %d rows, expected %d as mlperf/records.yaml says" % (rows - 1, rows), "data.format=mlperf_bin", "data.path=mlperf")

    def test_multi_hot(self):
        self.tool("synth", "--rows", 1200, "--seed", 3, "--out", self.path("t.txt"))
        self.tool("convert", self.path("t.txt"), "--out", self.path("one"), "--dense-type", "float32")
        self.tool("multihot", self.path("one"), "--out", self.path("data"))
        self.tool("convert", self.path("data"), "--to", "hugectr_raw", "--out", self.path("raw"))
        self.write_config_with(self.tables_of("raw"))
        want = self.losses(1)
        self.assertEqual(self.losses(2, "data.format=hugectr_raw", "data.path=raw"), want)
        self.assertEqual(self.losses(2, "data.format=hugectr_raw", "data.path=raw", "model.tables=from_dataset"), want)


if __name__ == "__main__":
    criteo_run.main()
