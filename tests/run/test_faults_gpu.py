#!/usr/bin/env python3
"""A rank of two on GPUs that is killed or stopped, in steps that run as graphs and write into each other's memory, and in those whose vectors
NCCL sends. For tests/gpu.sh: without two GPUs every test fails.

  test_faults_gpu.py TRAINER
"""
import os
import signal

import fixture
import test_faults


class OnGpus(fixture.RunTest):
    ranks, args = 2, ["device=cuda"]
    start, ends = test_faults.Disturbed.start, test_faults.Disturbed.ends

    def both_ways(self, signal_number, *args):
        """What the job wrote, for each way."""
        for direct in "1", "0":
            with self.subTest(direct=direct):
                os.environ["DLRM_DIRECT_EXCHANGE"] = direct
                self.addCleanup(os.environ.pop, "DLRM_DIRECT_EXCHANGE", None)
                job, ranks = self.start(*args)
                os.kill(ranks[1], signal_number)
                self.assertNotEqual(self.ends(job, ranks), 0)
                os.remove(self.path("run.jsonl"))
                yield self.file_bytes("err").decode()

    def test_killed(self):
        self.assertEqual(len(list(self.both_ways(signal.SIGKILL))), 2)

    def test_stopped(self):
        texts = list(self.both_ways(signal.SIGSTOP, "parallel.timeout_s=3"))
        self.assertEqual(len(texts), 2)
        for text in texts:
            self.one_message(text, r"has waited longer than parallel\.timeout_s \(3 s\)|the step's pulse has waited")


if __name__ == "__main__":
    fixture.main()
