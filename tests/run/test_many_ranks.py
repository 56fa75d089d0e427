#!/usr/bin/env python3
"""Merlin's Jumbo model scaled down (rows / 10000, widths and MLP / 8, batch 256), on 1, 2 and 16 ranks, and with DLRM_LONG_TESTS on
128: the same bits in deterministic mode, whatever placement strategy: auto chooses, in at most 12 GB of memory together."""
import json
import os

import fixture

# tables, ids a sample of the inputs that share one, rows, width: configs/synthetic/jumbo.yaml
JUMBO = [(50, [1, 200], 100000, 128), (24, [1, 200], 20000000, 128), (1, [1, 200], 400000000, 256), (1, [1], 400000000, 256),
         (100, [1], 10, 32), (200, [1], 10000, 64), (350, [1], 100000, 128), (80, [1], 1000000, 128), (216, [1], 20000000, 128)]


class ManyRanks(fixture.RunTest):
    def configure(self):
        rate = {"name": "adagrad", "learning_rate": 0.01, "initial_accumulator": 0.1, "epsilon": 1e-7}
        self.write("config.yaml", json.dumps({
            "model": {"dense_features": 200, "embedding_dim": 16, "bottom_mlp": [], "interaction": "pool", "pool_stride": 20,
                      "top_mlp": [256, 128, 64, 32, 1],
                      "tables": [{"count": n, "rows": max(1, rows // 10000), "dim": dim // 8, "hotness": hotness}
                                 for n, hotness, rows, dim in JUMBO]},
            "optimizer": {"dense": rate, "embedding": rate},
            "train": {"batch_size": 256, "steps": 2, "deterministic": True, "deterministic_chunks": 128},
            "data": {"format": "synthetic", "synthetic": {"batches": 2, "labels": "random", "dense": "uniform"}},
            "eval": {"every_epoch": False}, "log": {"every_steps": 1}}))

    def test_jumbo(self):
        self.configure()
        first = None
        for ranks in [1, 2, 16] + ([128] if os.environ.get("DLRM_LONG_TESTS") else []):
            done = self.run_trainer(ranks, "config.yaml", "log.jsonl=%d.jsonl" % ranks, "checkpoint.export=%d" % ranks, timeout=1500)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            end = fixture.events(self.path("%d.jsonl" % ranks), "end")[0]
            self.assertEqual(len(end["per_rank"]), ranks)
            self.assertLessEqual(sum(r["peak_resident_bytes"] for r in end["per_rank"]), 12e9)
            self.assertGreater(min(r["table_bytes"] for r in end["per_rank"]), 0)
            got = ([e["loss"] for e in fixture.events(self.path("%d.jsonl" % ranks), "step")], self.file_bytes(str(ranks), "model.safetensors"))
            if first is None:
                first = got
            self.assertEqual(got[0], first[0])
            self.assertEqual(got[1], first[1], "weights differ on %d ranks" % ranks)


if __name__ == "__main__":
    fixture.main()
