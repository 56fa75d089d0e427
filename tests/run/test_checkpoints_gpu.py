#!/usr/bin/env python3
"""Checkpoints of runs on GPUs: the bits of a run in one go, on other numbers of GPUs, too; and from CPU to GPU and back within what
rounding allows. For tests/gpu.sh: without a GPU every test fails.

  test_checkpoints_gpu.py TRAINER [OnGpus.test_one_gpu ...]
"""
import numpy as np

import fixture
from fixture import events
from test_checkpoints import DETERMINISTIC, OPTIMIZERS, SCHEDULE, checkpoints, read_checkpoint


class OnGpus(fixture.RunTest):
    def cut(self, name, parts, *args):
        """Parts: (ranks, device, steps), each going on from the one before; the last one's tensors."""
        for ranks, device, steps in parts:
            self.succeed(ranks, "config.yaml", "device=" + device, "train.steps=%d" % steps, "checkpoint.path=" + name, "checkpoint.every_steps=3",
                         "log.jsonl=%s.jsonl" % name, *args)
        log = events(self.path(name + ".jsonl"))
        self.assertEqual([e["device"] for e in log if e["event"] == "start"], [device for _, device, _ in parts])
        return read_checkpoint(self.path(name, checkpoints(self.path(name))[-1]))

    def same_bits(self, ranks):
        self.make_data()
        for name, optimizer in OPTIMIZERS.items():
            with self.subTest(optimizer=name):
                args = [optimizer, SCHEDULE, DETERMINISTIC, "train.epochs=3"]
                straight = self.cut("straight_" + name, [(1, "cuda", 24)], *args)
                there = self.cut("cut_" + name, list(zip(ranks, ["cuda"] * 3, (7, 16, 24))), *args)
                self.assertEqual(sorted(there), sorted(straight))
                for tensor in straight:
                    np.testing.assert_array_equal(there[tensor], straight[tensor], tensor)

    def test_one_gpu(self):
        self.same_bits((1, 1, 1))

    def test_two_gpus(self):
        self.same_bits((2, 1, 2))

    def test_bf16(self):
        """16-bit tables and products, whose random roundings go on where they were."""
        self.make_data()
        args = [DETERMINISTIC, "train.precision=bf16", "train.embedding_dtype=bf16", "train.epochs=3"]
        straight, there = self.cut("straight", [(1, "cuda", 24)], *args), self.cut("cut", [(1, "cuda", 7), (1, "cuda", 24)], *args)
        for tensor in straight:
            np.testing.assert_array_equal(there[tensor], straight[tensor], tensor)

    def test_other_device(self):
        self.make_data()
        for name, optimizer in OPTIMIZERS.items():
            with self.subTest(optimizer=name):
                args = [optimizer, SCHEDULE, DETERMINISTIC, "train.epochs=3"]
                straight = self.cut("straight_" + name, [(1, "cpu", 24)], *args)
                there = self.cut("cut_" + name, [(2, "cpu", 8), (1, "cuda", 16), (3, "cpu", 24)], *args)
                for tensor in straight:
                    np.testing.assert_allclose(there[tensor], straight[tensor], rtol=2e-3, atol=2e-5, err_msg=tensor)


if __name__ == "__main__":
    fixture.main()
