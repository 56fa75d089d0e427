#!/usr/bin/env python3
"""A step allocates nothing: runs of 40 and of 140 steps ask for memory equally often.

  test_allocations.py TRAINER COUNT_MALLOC.so
"""
import os
import re
import subprocess
import sys

import fixture
import launch
import row_fixture

SHORT, LONG = 40, 140
# Of the libraries, in a step of two ranks: Open MPI builds the schedule of the step's one nonblocking reduction anew, 9 requests.
MPI_STEP = 12
# Of the libraries in a whole run, more or less: MPI's own threads run at their own pace. One in every third step would be more.
CHANCE = 30


class Allocations(fixture.RunTest):
    counter = None

    def count(self, ranks, steps, threads, *args):
        """[(from the program, from libraries)] of the ranks, sorted."""
        command = ["mpirun", "-n", str(ranks)] if ranks > 1 else []
        command += ["env", "LD_PRELOAD=" + self.counter, self.trainer, "config.yaml", "train.steps=%d" % steps, "log.every_steps=0",
                    "eval.every_epoch=false"]
        done = subprocess.run(command + list(args), cwd=self.folder, timeout=launch.PATIENCE, text=True, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(os.environ, OMP_NUM_THREADS=str(threads)))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.one_dnn = "(oneDNN)" in done.stdout
        found = re.findall(r"count_malloc: (\d+) from the program, (\d+) from libraries", done.stderr)
        found = sorted((int(a), int(b)) for a, b in found if a != "0")  # MPI's helper process is not the program
        self.assertEqual(len(found), ranks, done.stderr)
        return found

    def compare(self, ranks, threads, *args):
        """GCC's OpenMP takes memory for each parallel region of one thread, so libraries are compared with more."""
        short, long = (self.count(ranks, steps, threads, *args) for steps in (SHORT, LONG))
        self.assertEqual([s[0] for s in short], [l[0] for l in long])
        self.assertGreater(short[0][0], 50, "the program's own requests were not seen")
        more = [l[1] - s[1] for s, l in zip(short, long)]
        if threads > 1 and not self.one_dnn:  # which takes memory in each product
            self.assertLessEqual(max(more), CHANCE + (MPI_STEP * (LONG - SHORT) if ranks > 1 else 0), more)

    def test_files(self):
        self.make_data()
        self.compare(1, 1)
        self.compare(1, 2, "train.deterministic=true")

    def test_synthetic(self):
        self.write("config.yaml", fixture.SYNTHETIC)
        self.compare(1, 2, "data.synthetic.batches=50", "optimizer.embedding.name=adam", "optimizer.dense.name=adam")

    def test_dynamic_rows(self):
        """Keys come, are counted, and take each other's rows."""
        self.write("config.yaml", fixture.SYNTHETIC)
        self.compare(1, 2, "data.synthetic.batches=50", "model.tables.0.rows=dynamic", "model.tables.0.capacity=60", "model.tables.0.evict=lfu",
                     "model.tables.0.admission=2")

    def test_row_formats(self):
        """Ids in the background, rows in shuffled order."""
        train, test = row_fixture.Rows(300, 1), row_fixture.Rows(70, 2)
        self.write("config.yaml", row_fixture.config())
        row_fixture.write_records(self.path("set", "day_train.bin"), train)
        row_fixture.write_records(self.path("set", "day_test.bin"), test)
        for ranks in 1, 2:
            self.compare(ranks, 1, "data.format=mlperf_bin", "data.path=set", "data.shuffle=true")

    def test_two_ranks(self):
        self.make_data()
        self.compare(2, 2)
        self.compare(2, 1, "train.deterministic=true")


if __name__ == "__main__":
    Allocations.counter = os.path.abspath(sys.argv.pop(2))
    fixture.main()
