"""A user's own Criteo rows: DLRM_CRITEO_DIR names a folder with Kaggle's train.txt or Terabyte's day_* files (or .gz), whose first
200,000 lines are converted and trained on 2 ranks. Without the variable the test is skipped (exit status 77).

Every line must convert; the scores must be those that the reported AUC and loss are of; the model must have learnt more than the
rate of clicks; and deterministic mode must give the same losses on 1 and on 2 ranks.

test_own_rows.py TRAINER DLRM_DATA [unittest's arguments]
"""
import glob
import gzip
import itertools
import json
import os
import re
import sys

import numpy as np

import criteo_run
import fixture

LINES = 200000
FOLDER = os.environ.get("DLRM_CRITEO_DIR")


def rows_file(folder):
    """train.txt, or the day of the lowest number."""
    found = [p for p in glob.glob(os.path.join(folder, "*")) if re.fullmatch(r"(train\.txt|day_\d+)(\.gz)?", os.path.basename(p))]
    if not found:
        sys.exit("DLRM_CRITEO_DIR=%s: expected train.txt or day_<number> in it, also as .gz" % folder)
    return min(found, key=lambda p: int("0" + "".join(re.findall(r"\d", os.path.basename(p)))))


class OwnRows(criteo_run.CriteoTest):
    def train(self, ranks, *args):
        self.succeed(ranks, "config.yaml", "train.deterministic=true", *args)
        return [(e["event"], e["step"], e["loss"]) for e in fixture.events(self.path("run.jsonl")) if e["event"] in ("step", "eval")]

    def test_own_rows(self):
        path = rows_file(FOLDER)
        with (gzip.open if path.endswith(".gz") else open)(path, "rb") as f:
            lines = list(itertools.islice(f, LINES))
        with open(self.path("rows.txt"), "wb") as f:
            f.writelines(lines)
        self.tool("convert", "rows.txt", "--out", "data", "--frequency-limit", 5)
        with open(self.path("data", "convert.json")) as f:
            summary = json.load(f)
        labels = np.array([int(line.split(b"\t", 1)[0]) for line in lines])[len(lines) - len(lines) // 7:]
        self.assertEqual((summary["lines"], summary["bad_lines"], summary["rows"]["test"]), (len(lines), 0, len(labels)))

        self.write_config("name: adagrad, learning_rate: 0.05, initial_accumulator: 0.1", "batch_size: 256, epochs: 1")
        losses = self.train(2, "checkpoint.export=final")
        reported = self.events("eval")[-1]
        rate = labels.mean()
        entropy = -(rate * np.log(rate) + (1 - rate) * np.log(1 - rate))
        print("%s, %d lines: AUC %.4f, loss %.5f; of the rate of clicks alone: %.5f" %
              (path, len(lines), reported["auc"], reported["loss"], entropy), flush=True)
        self.assertGreater(reported["auc"], 0.55)  # one pass over few rows; chance is 0.50 within 0.03
        self.assertLess(reported["loss"], entropy)

        self.succeed(1, "config.yaml", "checkpoint.init_from=final", "--predict", "scores.npy")
        scores = np.load(self.path("scores.npy")).astype(np.float64).ravel()
        self.assertAlmostEqual(fixture.auc(scores, labels), reported["auc"], delta=1e-5)
        loss = -np.mean(np.where(labels == 1, np.log(scores), np.log1p(-scores)))
        self.assertAlmostEqual(loss, reported["loss"], delta=1e-5)
        self.assertEqual(self.train(1, "train.steps=100", "eval.every_epoch=false"), losses[:100])


if __name__ == "__main__":
    if not FOLDER:
        sys.exit(77)
    criteo_run.main()
