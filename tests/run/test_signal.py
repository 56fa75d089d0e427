"""A planted signal is learnt: rows made by dlrm_data synth, converted, trained on 2 ranks. On the held-back rows the model
comes near the AUC of the probabilities that the labels were drawn from, which nothing can beat but by chance.

test_signal.py TRAINER DLRM_DATA [unittest's arguments]
"""
import re

import criteo_run

ROWS = 150000
DISTANCE = 0.05  # in AUC, from the planted model's 0.80; coin flips are 0.30 away
CHANCE = 0.01    # three standard deviations of the AUC of 21428 rows


class Signal(criteo_run.CriteoTest):
    def test_planted_signal(self):
        out = self.tool("synth", "--shape", "kaggle", "--scale", 0.001, "--rows", ROWS, "--seed", 3, "--test-fraction", 1 / 7,
                        "--out", "train.txt")
        planted = float(re.search(r"^planted AUC, test rows: ([0-9.]+)", out, re.M)[1])
        self.tool("convert", "train.txt", "--out", "data", "--frequency-limit", 5)
        self.write_config("name: adagrad, learning_rate: 0.05, initial_accumulator: 0.1", "batch_size: 128, epochs: 3")
        self.succeed(2, "config.yaml", "log.every_steps=100", "optimizer.embedding.learning_rate=0.1")
        evals = self.events("eval")
        print("AUC after each epoch %s, planted %.4f" % ([round(e["auc"], 4) for e in evals], planted), flush=True)
        self.assertEqual([e["samples"] for e in evals], [ROWS // 7] * 3)
        self.assertGreater(evals[-1]["auc"], planted - DISTANCE)
        self.assertLess(evals[-1]["auc"], planted + CHANCE)


if __name__ == "__main__":
    criteo_run.main()
