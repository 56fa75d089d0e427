"""Real Criteo rows, converted and trained, against PyTorch in float64 (tests/oracles/criteo_sample_torch.py made its results):
the loss of every step, the evaluation after every epoch and all final weights, on several numbers of ranks.

test_criteo_sample.py TRAINER DLRM_DATA [unittest's arguments]
"""
import os

import numpy as np

import criteo_run
import fixture

SAMPLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "criteo_sample")
SGD = "name: sgd, learning_rate: 0.3"
ADAGRAD = "name: adagrad, learning_rate: 0.03, initial_accumulator: 0.1, epsilon: 1.0e-7"
FLOAT32 = ["--dense-type", "float32"]


class CriteoSample(criteo_run.CriteoTest):
    @classmethod
    def setUpClass(cls):
        cls.expected = dict(np.load(os.path.join(SAMPLE, "expected", "results.npz")))

    def under(self, prefix):
        return {name[len(prefix):]: value for name, value in self.expected.items() if name.startswith(prefix)}

    def prepare(self, optimizer, options):
        """Every seventh row, from the fifth on, is a day of its own, held back: so there are clicks on both sides."""
        with open(os.path.join(SAMPLE, "terabyte.tsv")) as f:
            lines = f.readlines()
        self.write("day_0", "".join(line for i, line in enumerate(lines) if i % 7 != 4))
        self.write("day_1", "".join(lines[4::7]))
        self.tool("convert", "day_0", "day_1", "--out", "data", "--frequency-limit", 2, *options)
        self.write_config(optimizer, "batch_size: 64, epochs: 3")
        os.mkdir(self.path("init"))
        fixture.write_safetensors(self.path("init", "model.safetensors"), self.under("init/"))

    def close(self, what, got, wanted, tolerance):
        got = np.asarray(got, np.float64)
        self.assertEqual(got.shape, wanted.shape, what)
        off = np.abs(got - wanted)
        self.assertTrue((off <= tolerance).all(), "%s: off by %.3g, tolerance %.3g" % (what, off.max(), tolerance))
        return off.max() / tolerance

    def compare(self, case):
        """The run's log and export; the largest deviations, in tolerances, as text."""
        loss_tolerance, mlp_tolerance, table_tolerance, auc_tolerance = self.expected[case + "/tolerance"]
        steps, evals, wanted = self.events("step"), self.events("eval"), self.under(case + "/")
        self.assertEqual([e["step"] for e in steps], list(range(1, 31)))  # 600 rows: 9 batches of 64, one of 24; 3 epochs
        self.assertEqual([e["step"] for e in evals], [10, 20, 30])
        self.assertEqual([e["samples"] for e in evals], [100] * 3)
        worst = {}
        worst["losses"] = max(self.close("step losses", [e["loss"] for e in steps], wanted["loss"], loss_tolerance),
                              self.close("evaluation losses", [e["loss"] for e in evals], wanted["eval"][:, 1], loss_tolerance))
        worst["AUC"] = self.close("AUC", [e["auc"] for e in evals], wanted["eval"][:, 0], auc_tolerance)
        got, final = self.weights("final"), self.under(case + "/final/")
        self.assertEqual(sorted(got), sorted(final))
        for name, value in final.items():
            kind, tolerance = ("tables", table_tolerance) if name.startswith("table") else ("MLPs", mlp_tolerance)
            worst[kind] = max(worst.get(kind, 0), self.close(name, got[name], value, tolerance))
        return ", ".join("%s %.2f" % pair for pair in worst.items())

    def check(self, case, optimizer, options, every_rank_count):
        self.prepare(optimizer, options)
        for ranks in every_rank_count:
            for deterministic in ("false", "true"):
                with self.subTest(ranks=ranks, deterministic=deterministic):
                    self.succeed(ranks, "config.yaml", "checkpoint.init_from=init", "checkpoint.export=final",
                                 "train.deterministic=" + deterministic)
                    print("%s, %d rank(s), deterministic %s, deviations in tolerances: %s" %
                          (case, ranks, deterministic, self.compare(case)), flush=True)

    def test_sgd(self):
        self.check("sgd", SGD, FLOAT32, [1, 2, 3])

    def test_adagrad(self):
        self.check("adagrad", ADAGRAD, FLOAT32, [1, 2, 3])

    def test_float16_dense(self):
        self.check("sgd_float16", SGD, [], [2])

    def test_tolerances_tell_cases_apart(self):
        # float16 dense values move the losses by far more than is tolerated, so that the comparison could fail
        moved = np.abs(self.expected["sgd/loss"] - self.expected["sgd_float16/loss"]).max()
        self.assertGreater(moved, 100 * self.expected["sgd/tolerance"][0])


if __name__ == "__main__":
    criteo_run.main()
