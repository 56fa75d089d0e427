#!/usr/bin/env python3
"""On a GPU: fp16 learns what fp32 learns; a step whose gradients overflow changes nothing on any rank, halves the scale, and is counted.
Skipped (77) where there is no GPU; on as many GPUs as there are, up to two.

  test_loss_scale.py TRAINER [unittest's arguments]
"""
import sys

import fixture
from fixture import events
from test_graphs import gpus
from test_precision import LEARNT
from test_weights import coarse_weights


class LossScale(fixture.RunTest):
    def test_learns_as_well(self):
        self.write("config.yaml", LEARNT)
        loss = {}
        for precision in ("fp32", "fp16"):
            self.succeed(1, "config.yaml", "device=cuda", "train.precision=" + precision)
            steps = events(self.path("run.jsonl"), "step")
            loss[precision] = steps[-1]["loss_mean"]
        self.assertLess(loss["fp16"], steps[0]["loss_mean"] - 0.05)
        self.assertLess(abs(loss["fp16"] - loss["fp32"]), 0.003)
        self.assertTrue(all(e["loss_scale"] >= 1 and e["skipped_steps"] < 50 for e in steps))

    def test_overflow(self):
        """All steps see the same rows. Those that are skipped leave the loss as it is."""
        self.make_data()
        weights = coarse_weights(3)
        weights["top.1.weight"] *= 512  # gradients of what is below overflow with the first scales
        fixture.write_safetensors(self.path("start.safetensors"), weights)
        runs = []
        for ranks in range(1, min(gpus(), 2) + 1):
            self.succeed(ranks, "config.yaml", "device=cuda", "train.precision=fp16", "train.batch_size=120", "train.epochs=30",
                         "train.deterministic=true", "checkpoint.init_from=start.safetensors",
                         "optimizer.dense={name: sgd, learning_rate: 1.0e-4}", "optimizer.embedding={name: sgd, learning_rate: 1.0e-4}")
            steps = events(self.path("run.jsonl"), "step")
            runs.append([(e["loss"], e["loss_scale"], e["skipped_steps"]) for e in steps])
        self.assertGreater(runs[0][-1][2], 0, "nothing overflowed")
        self.assertLess(runs[0][-1][2], 30, "everything overflowed")
        for k, ((loss, scale, skipped), (next_loss, *_)) in enumerate(zip(runs[0], runs[0][1:])):
            before = runs[0][k - 1] if k else (None, 65536, 0)
            was_skipped = skipped > before[2]
            self.assertEqual(scale, before[1] / 2 if was_skipped else before[1])
            (self.assertEqual if was_skipped else self.assertNotEqual)(next_loss, loss, "step %d" % (k + 1))
        self.assertEqual(runs[0], runs[-1])

    def test_resumed(self):
        """A run that is cut goes on with the scale that it had, and counts the steps that it skipped before."""
        self.make_data()
        weights = coarse_weights(3)
        weights["top.1.weight"] *= 512
        fixture.write_safetensors(self.path("start.safetensors"), weights)
        args = ["config.yaml", "device=cuda", "train.precision=fp16", "train.batch_size=120", "train.epochs=30", "train.deterministic=true",
                "checkpoint.init_from=start.safetensors", "optimizer.dense={name: adam, learning_rate: 1.0e-4}",
                "optimizer.embedding={name: adam, learning_rate: 1.0e-4}"]
        self.succeed(1, *args, "log.jsonl=straight.jsonl", "checkpoint.export=straight")
        for steps in (13, 30):
            self.succeed(1, *args, "train.steps=%d" % steps, "checkpoint.path=ckpt", "checkpoint.export=cut")
        straight, cut = ([(e["step"], e["loss"], e["loss_scale"], e["skipped_steps"]) for e in events(self.path(name), "step")]
                         for name in ("straight.jsonl", "run.jsonl"))
        self.assertGreater(straight[12][3], 0, "nothing overflowed before the cut")
        self.assertEqual(cut, straight)
        self.assertEqual(self.file_bytes("cut", "model.safetensors"), self.file_bytes("straight", "model.safetensors"))

    def test_narrow_layers(self):
        """A layer 1 wide inside an MLP is refused by name."""
        self.make_data()
        for precision in ("bf16", "fp16"):
            for key, value in (("bottom_mlp", "[1, 4]"), ("top_mlp", "[6, 1, 1]")):
                self.refuse(1, 1, r"model\.%s: layer \d is 1 wide, whose output would be fp32 and not %s" % (key, precision),
                            "config.yaml", "device=cuda", "train.precision=" + precision, "model.%s=%s" % (key, value))


if __name__ == "__main__":
    if gpus() == 0:
        print("not run: no GPU")
        sys.exit(77)
    fixture.main()
