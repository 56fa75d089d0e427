#!/usr/bin/env python3
"""Disks that fail while checkpoints are saved: training goes on, older checkpoints stay, the log says so, the exit code is 4.

  test_disk.py TRAINER FAIL_DISK.so
"""
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import numpy as np

import fixture
import launch
from fixture import events
from test_checkpoints import checkpoints, leftovers, read_checkpoint

ARGS = ["config.yaml", "train.deterministic=true", "log.every_steps=10"]


class DiskTest(fixture.RunTest):
    failing = None

    def setUp(self):
        super().setUp()
        self.write("config.yaml", fixture.SYNTHETIC.replace("{count: 4, rows: 500}", "{count: 2, rows: 500}"))

    def start_failing(self, ranks, how, *args, **more):
        env = dict(os.environ, OMP_NUM_THREADS="1", FAIL_UNDER="ckpt", FAIL_HOW=how, **launch.AT_ONCE, **more)
        return subprocess.Popen(["mpirun", "-n", str(ranks), "env", "LD_PRELOAD=" + self.failing, self.trainer] + ARGS + ["checkpoint.path=ckpt"] +
                                list(args), cwd=self.folder, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)

    def run_failing(self, ranks, how, *args, **more):
        job = self.start_failing(ranks, how, *args, **more)
        self.addCleanup(job.kill)
        out, err = job.communicate(timeout=launch.PATIENCE)
        return subprocess.CompletedProcess(job.args, job.returncode, out, err)

    def all_sound(self, steps):
        """Every checkpoint is whole and has the state of its step; nothing else is left."""
        self.assertEqual(leftovers(self.path("ckpt")), [])
        names = checkpoints(self.path("ckpt"))
        self.succeed(2, *ARGS, "train.steps=%d" % steps, "checkpoint.path=straight", "checkpoint.every_steps=1", "checkpoint.keep=1000",
                     "checkpoint.resume=never", "log.jsonl=straight.jsonl")
        for name in names:
            there, straight = read_checkpoint(self.path("ckpt", name)), read_checkpoint(self.path("straight", name))
            self.assertEqual(sorted(there), sorted(straight))
            for tensor in there:
                np.testing.assert_array_equal(there[tensor], straight[tensor])
        self.succeed(1, *ARGS, "--eval", "checkpoint.path=ckpt", "checkpoint.resume=ckpt/" + names[-1])
        return names


class EachCall(DiskTest):
    """The k-th save fails at its k-th call; the last ones meet no failure."""
    steps = 50

    def check(self, ranks, rank, how, *args):
        done = self.run_failing(ranks, how, "train.steps=%d" % self.steps, "checkpoint.every_steps=1", "checkpoint.keep=3", *args, FAIL_RANK=str(rank))
        failures = re.findall(r"fail_disk: \w+ (\w+): (\S*)", done.stderr)
        self.assertEqual(done.returncode, 4, done.stderr)
        saves = events(self.path("run.jsonl"), "checkpoint")
        self.assertEqual([e["step"] for e in saves], list(range(1, self.steps + 1)))
        for e in saves:
            if not e["saved"]:
                self.assertRegex(e["why"], "No space left on device" if how == "ENOSPC" else "Input/output error")
        self.assertEqual(done.stderr.count("training goes on, older checkpoints stay"), sum(not e["saved"] for e in saves))
        end = events(self.path("run.jsonl"), "end")[-1]
        self.assertEqual((end["steps"], end["checkpoints"]["failed"]), (self.steps, sum(not e["saved"] for e in saves)))
        # What fails while old checkpoints are removed is a warning and costs no new one.
        removal = [i for i, (what, where) in enumerate(failures) if what == "rename" and where.startswith("step_")]
        self.assertEqual([e["saved"] for e in saves], [i in removal or i >= len(failures) for i in range(self.steps)])
        self.assertEqual(done.stderr.count("an old checkpoint stays"), len(removal))
        self.assertLess(len(failures), self.steps - 5, "too few saves to meet every call")
        names = self.all_sound(self.steps)
        self.assertEqual(names, ["step_%09d" % n for n in (self.steps - 2, self.steps - 1, self.steps)])
        return failures

    def test_rank_0(self):
        failures = self.check(1, 0, "EIO")
        calls = [what for what, _ in failures]
        for what, times in (("mkdir", 1), ("open", 2), ("fallocate", 1), ("pwrite", 11), ("fsync", 4), ("rename", 1)):
            self.assertGreaterEqual(calls.count(what), times, failures)
        self.assertIn(("fsync", ""), failures)  # of the folder that holds the checkpoints
        self.assertTrue(any(where.endswith("manifest.json") for _, where in failures))

    def test_other_rank(self):
        failures = self.check(2, 1, "ENOSPC")
        self.assertTrue(all("rank_00001" in where for _, where in failures), failures)

    def test_set_to_work(self):
        """What the disk says of bytes that it was set to work on, every 32 MiB, it does not say again at the end."""
        for how, why in (("EIO", "Input/output error"), ("ENOSPC", "No space left on device")):
            with self.subTest(how=how):
                shutil.rmtree(self.path("ckpt"), ignore_errors=True)
                done = self.run_failing(1, how, "train.steps=5", "checkpoint.every_steps=1", "checkpoint.keep=1", "log.jsonl=%s.jsonl" % how,
                                        "model.tables=[{rows: 2400000}]", FAIL_ONLY="sync_file_range")
                self.assertEqual(done.returncode, 4, done.stderr)
                self.assertEqual(done.stderr.count("fail_disk: %s sync_file_range: .step_" % how), 3)
                saves = events(self.path(how + ".jsonl"), "checkpoint")
                self.assertEqual([e["saved"] for e in saves], [False, False, False, True, True])
                for e in saves[:3]:
                    self.assertRegex(e["why"], r"rank_00000\.safetensors: cannot bring it to disk: " + why)

    def test_while_training_waits(self):
        """Without a copy, straight from the model. (The copy is for saves on the way: here each is the last of its run.)"""
        self.succeed(2, *ARGS, "checkpoint.path=ckpt", "train.steps=5")
        before = self.file_bytes("ckpt", "step_000000005", "manifest.json")
        for how in ("ENOSPC", "EROFS"):
            done = self.run_failing(2, how, "train.steps=9", "checkpoint.export=out", FAIL_ALWAYS="1")
            self.assertEqual(done.returncode, 4, done.stderr)
            self.one_message(done.stderr, r"warning: step 9 could not be saved: .*; training goes on, older checkpoints stay")
            self.assertEqual(self.file_bytes("ckpt", "step_000000005", "manifest.json"), before)
            self.assertTrue(os.path.exists(self.path("out", "model.safetensors")))
        self.assertEqual(self.all_sound(9), ["step_000000005"])

    def test_signal(self):
        """The exit code says the signal; that nothing could be saved is a warning."""
        job = self.start_failing(2, "ENOSPC", "train.steps=100000000", FAIL_ALWAYS="1")
        self.addCleanup(job.kill)
        deadline = time.monotonic() + launch.PATIENCE
        while not os.path.exists(self.path("run.jsonl")) or b'"step":20,' not in self.file_bytes("run.jsonl"):
            self.assertIsNone(job.poll())
            self.assertLess(time.monotonic(), deadline, "no training")
            time.sleep(0.05)
        job.send_signal(signal.SIGUSR1)
        _, err = job.communicate(timeout=launch.PATIENCE)
        self.assertEqual(job.returncode, 128 + signal.SIGUSR1, err)
        self.one_message(err, r"warning: step \d+ could not be saved: .*No space left on device")
        self.assertEqual((checkpoints(self.path("ckpt")), events(self.path("run.jsonl"), "end")[0]["checkpoints"]["failed"]), ([], 1))

    def test_short_writes(self):
        """Are gone on with."""
        done = self.run_failing(2, "short", "train.steps=40", "checkpoint.every_steps=1", "checkpoint.keep=100")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertGreater(done.stderr.count("fail_disk: short pwrite"), 8)
        self.assertEqual(len(self.all_sound(40)), 40)


class KilledAtEachCall(DiskTest):
    """The run number k is killed at the k-th call that two saves make, and the next one goes on."""

    def killed(self, ranks, rank):
        calls, steps = [], 0
        while True:
            done = self.run_failing(ranks, "KILL", "train.steps=%d" % (steps + 2), "checkpoint.every_steps=1", "checkpoint.keep=1",
                                    FAIL_RANK=str(rank), FAIL_CALL=str(len(calls) + 1))
            before, names = steps, checkpoints(self.path("ckpt")) if os.path.isdir(self.path("ckpt")) else []
            steps = int(names[-1][5:]) if names else 0
            if done.returncode == 0:
                break
            self.assertGreaterEqual(steps, before)
            self.assertLessEqual(len(names), 2)
            calls += re.findall(r"fail_disk: KILL (\w+): (\S*)", done.stderr)
        self.assertEqual(self.all_sound(steps), ["step_%09d" % steps])
        print("killed at", [what for what, _ in calls])
        return calls

    def test_rank_0(self):
        calls = [what for what, _ in self.killed(1, 0)]
        for what, times in (("mkdir", 2), ("open", 4), ("fallocate", 2), ("pwrite", 22), ("fsync", 8), ("rename", 3), ("unlinkat", 2)):
            self.assertGreaterEqual(calls.count(what), times, calls)

    def test_other_rank(self):
        calls = self.killed(2, 1)
        self.assertTrue(all("rank_00001" in where for _, where in calls), calls)
        self.assertGreaterEqual([what for what, _ in calls].count("fsync"), 2)


class Slow(DiskTest):
    def run_slow(self, seconds, timeout):
        return self.run_failing(2, "", "train.steps=20", "checkpoint.every_steps=5", "checkpoint.keep=1", "parallel.timeout_s=%d" % timeout,
                                FAIL_REMOVE_S=str(seconds))

    def test_writing_is_waited_for(self):
        """As long as some bytes get to the disk within each timeout, the whole may take longer."""
        for more in ([], ["checkpoint.every_steps=1"]):  # straight from the model; beside the training
            shutil.rmtree(self.path("ckpt"), ignore_errors=True)
            start = time.monotonic()
            done = self.run_failing(2, "", "train.steps=1", "parallel.timeout_s=3", *more, FAIL_WRITE_S="1", FAIL_RANK="1")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertGreater(time.monotonic() - start, 4)
            self.assertEqual(self.all_sound(1), ["step_000000001"])

    def test_writing_without_an_end(self):
        """Ends the job in time, with the rank and its file; older checkpoints stay."""
        self.succeed(2, *ARGS, "checkpoint.path=ckpt", "train.steps=2")
        done = self.run_failing(2, "", "train.steps=6", "checkpoint.every_steps=2", "parallel.timeout_s=3", FAIL_WRITE_S="1000", FAIL_RANK="1")
        self.assertEqual(done.returncode, 3, done.stderr)
        self.one_message(done.stderr, r"^dlrm-train: rank 1: ckpt/\.step_000000004\.part/rank_00001\.safetensors: the disk has taken nothing for longer than "
                         r"parallel\.timeout_s \(3 s\)")
        self.assertEqual((checkpoints(self.path("ckpt")), leftovers(self.path("ckpt"))), (["step_000000002"], [".step_000000004.part"]))
        self.succeed(1, *ARGS, "checkpoint.path=ckpt", "train.steps=3")
        self.assertEqual(self.all_sound(3), ["step_000000002", "step_000000003"])

    def test_removal_is_waited_for(self):
        done = self.run_slow(1, 100)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.all_sound(20), ["step_000000020"])

    def test_removal_without_an_end(self):
        """Costs saves, one after the other, and ends in time; what was saved stays."""
        done = self.run_slow(1000, 2)
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertRegex(done.stderr, r"step 15 could not be saved: ckpt: the disk has not removed old checkpoints for longer than "
                                      r"parallel\.timeout_s \(2 s\); training goes on")
        self.one_message(done.stderr, "an old checkpoint stays: ckpt: the disk has not removed it")
        self.assertEqual(checkpoints(self.path("ckpt")), ["step_000000010"])


class Full(DiskTest):
    def test_full(self):
        """A file system without room: known before anything is written."""
        os.mkdir(self.path("ckpt"))
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", self.path("ckpt")], stderr=subprocess.DEVNULL).returncode != 0:
            self.skipTest("a file system cannot be mounted here")
        self.addCleanup(subprocess.run, ["umount", self.path("ckpt")])
        args = ARGS + ["checkpoint.path=ckpt"]
        self.succeed(2, *args, "train.steps=5")
        with open(self.path("ckpt", "filler"), "wb") as f:
            f.write(bytes(4 << 20))
        done = self.run_trainer(2, *args, "train.steps=9")
        self.assertEqual(done.returncode, 4, done.stderr)
        self.one_message(done.stderr, r"warning: step 9 could not be saved: ckpt: needs \d+ bytes \([\d.]+ GiB\), but \d+ are free \([\d.]+ GiB\); training "
                         r"goes on")
        self.assertEqual(checkpoints(self.path("ckpt")), ["step_000000005"])
        os.remove(self.path("ckpt", "filler"))
        self.assertEqual(self.succeed(2, *args, "train.steps=9").stdout.count("resumed from ckpt/step_000000005"), 1)
        self.all_sound(9)


if __name__ == "__main__":
    DiskTest.failing = os.path.abspath(sys.argv.pop(2))
    fixture.main()
