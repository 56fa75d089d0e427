#!/usr/bin/env python3
"""A training that is killed, signalled, or diverges: what is left is a checkpoint that can be gone on from, with the bits of a
run that nothing happened to.

  test_survival.py TRAINER STOP_AT.so      DLRM_KILLS=200: so many kills in the place of ten
"""
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import numpy as np

import fixture
import launch
from fixture import events, rank_processes
from test_checkpoints import checkpoints, read_checkpoint

SYNTHETIC = fixture.SYNTHETIC.replace("name: sgd", "name: adagrad")
ARGS = ["config.yaml", "train.deterministic=true", "checkpoint.path=ckpt", "log.every_steps=20"]
FOREVER = "train.steps=100000000"


class SurvivalTest(fixture.RunTest):
    def setUp(self):
        super().setUp()
        self.write("config.yaml", SYNTHETIC)

    def start(self, ranks, *args):
        self.write("err", "")
        with open(self.path("err"), "w") as err:
            job = subprocess.Popen(["mpirun", "-n", str(ranks), self.trainer] + ARGS + list(args), cwd=self.folder, stdout=subprocess.DEVNULL,
                                   stderr=err, stdin=subprocess.DEVNULL, env=dict(os.environ, OMP_NUM_THREADS="1"))
        self.addCleanup(self.end, job)
        return job

    @staticmethod
    def end(job):
        if job.poll() is None:
            for pid in list(rank_processes(job.pid).values()) + [job.pid]:
                os.kill(pid, signal.SIGKILL)
        job.wait()

    def trains(self, job, ranks, steps=20):
        """Waits until it has made some steps; its ranks' processes."""
        deadline = time.monotonic() + launch.PATIENCE
        while not os.path.exists(self.path("run.jsonl")) or b'"step":%d,' % steps not in self.file_bytes("run.jsonl"):
            self.assertIsNone(job.poll(), self.file_bytes("err"))
            self.assertLess(time.monotonic(), deadline, "no training")
            time.sleep(0.02)
        found = rank_processes(job.pid)
        self.assertEqual(sorted(found), list(range(ranks)))
        return found

    def ended_by_kill(self, job):
        """No rank is left within a while. Open MPI 4's launcher can hang when a rank dies while it connects: then that is ended, too."""
        try:
            return job.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.assertEqual(rank_processes(job.pid), {}, self.file_bytes("err").decode())
            job.kill()
            return job.wait()

    def latest(self):
        names = checkpoints(self.path("ckpt"))
        return int(names[-1][5:]) if names else 0

    def has_the_bits_of_a_straight_run(self, ranks, *args):
        """Goes on a little further and compares weights and optimizer state with a run in one go."""
        steps = self.latest() + 30
        self.succeed(ranks, *ARGS, "train.steps=%d" % steps, *args)
        self.succeed(2, *ARGS, "train.steps=%d" % steps, "checkpoint.path=straight", "log.jsonl=straight.jsonl", *args)
        cut, straight = (read_checkpoint(self.path(folder, "step_%09d" % steps)) for folder in ("ckpt", "straight"))
        self.assertEqual(sorted(cut), sorted(straight))
        for name in straight:
            np.testing.assert_array_equal(cut[name].view(np.uint32), straight[name].view(np.uint32), name)


class Kills(SurvivalTest):
    def test_random_kills(self):
        """SIGKILL at random instants to a rank, to the launcher, or to all at once; each run goes on on other ranks. Every other
        run has saved before: else most kills would meet the start of a run."""
        kills, random_numbers = int(os.environ.get("DLRM_KILLS", "10")), random.Random(int(os.environ.get("DLRM_SEED", "1")))
        steps = []
        for _ in range(kills):
            ranks = random_numbers.randint(1, 4)
            job = self.start(ranks, FOREVER, "checkpoint.every_steps=7")
            deadline, before = time.monotonic() + launch.PATIENCE, checkpoints(self.path("ckpt"))
            while len(steps) % 2 and checkpoints(self.path("ckpt")) == before and time.monotonic() < deadline:
                time.sleep(0.01)
            time.sleep(random_numbers.uniform(0, 0.2 if len(steps) % 2 else 1.5))
            self.assertIsNone(job.poll(), self.file_bytes("err").decode())
            found, victims = rank_processes(job.pid), random_numbers.randrange(3)
            pids = [job.pid] if victims == 0 or not found else list(found.values()) + [job.pid] if victims == 1 else \
                [random_numbers.choice(list(found.values()))]
            for pid in pids:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            self.assertNotEqual(self.ended_by_kill(job), 0)
            deadline = time.monotonic() + launch.PATIENCE
            while any(os.path.exists("/proc/%d" % pid) for pid in found.values()):  # ranks outlive their launcher a little, and save
                self.assertLess(time.monotonic(), deadline, "a rank is still there")
                time.sleep(0.02)
            steps.append(self.latest())
        self.assertEqual(steps, sorted(steps))
        self.assertGreater(steps[-1], 0, "no checkpoint in all that time")
        self.assertGreaterEqual(len(set(steps)), kills // 2)
        self.has_the_bits_of_a_straight_run(random_numbers.randint(1, 4))
        self.assertEqual([name for name in os.listdir(self.path("ckpt")) if name.endswith((".part", ".gone"))], [])
        print("kills %d, steps at them: %s" % (kills, steps))


class KilledAtEachPulse(SurvivalTest):
    """The run number k is killed at the k-th of what its ranks say to each other: in each step, each batch of an evaluation, and as
    a checkpoint is saved or read."""
    stop_at = None

    def test_steps_evaluations_saves(self):
        if fixture.SANITIZED:
            self.skipTest("a preloaded library")
        often, within, k = ["eval.every_steps=2", "eval.max_samples=48", "eval.batch_size=16", "log.every_steps=1"], [], 0
        random_numbers = random.Random(1)
        while True:
            k += 1
            ranks = random_numbers.randint(1, 3)
            env = dict(os.environ, OMP_NUM_THREADS="1", STOP_AT="MPI_Iallreduce", STOP_CALL=str(k), STOP_RANK=str(random_numbers.randrange(ranks)),
                       **launch.AT_ONCE)
            with open(self.path("err"), "w") as err:
                job = subprocess.Popen(["mpirun", "-n", str(ranks), "env", "LD_PRELOAD=" + self.stop_at, self.trainer] + ARGS + often +
                                       ["train.steps=%d" % (self.latest() + 4), "checkpoint.every_steps=2"], cwd=self.folder, env=env,
                                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=err)
            self.addCleanup(self.end, job)
            if self.ended_by_kill(job) == 0:
                break
            last = events(self.path("run.jsonl"))[-1] if os.path.exists(self.path("run.jsonl")) else {"event": "nothing"}
            within.append("evaluation" if last["event"] == "step" and last["step"] % 2 == 0 else "after " + last["event"])
        print("killed in", within)
        self.assertGreaterEqual(within.count("evaluation"), 3 * 2)
        for event in ("step", "eval", "checkpoint"):
            self.assertIn("after " + event, within)
        self.has_the_bits_of_a_straight_run(2, *often)
        cut, straight = ({e["step"]: (e["auc"], e["loss"], e["samples"]) for e in events(self.path(log), "eval")} for log in ("run.jsonl", "straight.jsonl"))
        self.assertEqual(cut, straight)


class Signals(SurvivalTest):
    def ended(self, job, number):
        self.assertEqual(job.wait(timeout=launch.PATIENCE), 128 + number, self.file_bytes("err").decode())
        log = events(self.path("run.jsonl"))
        self.assertEqual(log[-1]["why"], "ended by " + signal.Signals(number).name)
        self.assertEqual(checkpoints(self.path("ckpt")), ["step_%09d" % log[-1]["steps"]])
        self.assertEqual([e["step"] for e in log if e["event"] == "step"][-1], log[-1]["steps"])
        self.assertEqual([e["step"] for e in log if e["event"] == "checkpoint"], [log[-1]["steps"]])

    def test_forwarded_by_mpirun(self):
        for number in (signal.SIGUSR1, signal.SIGUSR2):
            job = self.start(3, FOREVER)
            self.trains(job, 3)
            job.send_signal(number)
            self.ended(job, number)
            self.has_the_bits_of_a_straight_run(2)
            for name in ("ckpt", "straight"):
                shutil.rmtree(self.path(name))
            os.remove(self.path("run.jsonl"))

    def test_batch_script(self):
        """docs/checkpoints.md's lines for a scheduler that signals the script."""
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs/checkpoints.md")) as f:
            script = next(block for block in f.read().split("```") if block.startswith("bash\nmpirun"))[5:]
        command = "mpirun dlrm-train config.yaml checkpoint.path=/scratch/run7"
        self.assertIn(command, script)
        script = script.replace(command, "mpirun -n 2 %s %s %s >out 2>err" % (self.trainer, " ".join(ARGS), FOREVER))
        job = subprocess.Popen(["bash", "-c", script + "\nexit $code"], cwd=self.folder, stdin=subprocess.DEVNULL, env=dict(os.environ, OMP_NUM_THREADS="1"))
        self.addCleanup(self.end, job)
        self.write("err", "")
        self.trains(job, 2)
        job.send_signal(signal.SIGUSR1)
        self.ended(job, signal.SIGUSR1)

    def test_one_rank(self):
        """What reaches a single rank ends them all at the same step."""
        for number, rank in ((signal.SIGTERM, 2), (signal.SIGINT, 0)):
            job = self.start(3, FOREVER, "checkpoint.export=out")
            os.kill(self.trains(job, 3)[rank], number)
            self.ended(job, number)
            self.assertEqual(os.listdir(self.path("out")), [])  # which is for a training that is over
            shutil.rmtree(self.path("ckpt"))
            os.remove(self.path("run.jsonl"))

    def test_evaluation_is_left_to_the_next_run(self):
        job = self.start(2, FOREVER, "eval.every_steps=1", "eval.max_samples=48")
        os.kill(self.trains(job, 2)[1], signal.SIGTERM)
        self.ended(job, signal.SIGTERM)
        last = self.latest()
        self.assertNotIn(last, [e["step"] for e in events(self.path("run.jsonl"), "eval")])
        self.succeed(3, *ARGS, "train.steps=%d" % (last + 2), "eval.every_steps=1", "eval.max_samples=48")
        self.assertEqual([e["step"] for e in events(self.path("run.jsonl"), "eval")], list(range(1, last + 3)))

    def test_in_an_evaluation(self):
        """It is given up, and made by the run that goes on."""
        long = ["data.synthetic.batches=20000", "eval.every_steps=2", "log.every_steps=1"]
        job = self.start(2, FOREVER, *long)
        os.kill(self.trains(job, 2, 2)[1], signal.SIGTERM)
        self.ended(job, signal.SIGTERM)
        self.assertEqual((self.latest(), events(self.path("run.jsonl"), "eval")), (2, []))
        start, end = (events(self.path("run.jsonl"), kind)[0]["per_rank"] for kind in ("start", "end"))
        for predicted, was in zip(start, end):  # what the evaluation sent does not count
            self.assertAlmostEqual(was["sent_bytes_per_step"] / predicted["sent_bytes_per_step"], 1, delta=0.05)
        self.succeed(2, *ARGS, "train.steps=3", "eval.max_samples=96", *long)
        self.assertEqual([e["step"] for e in events(self.path("run.jsonl"), "eval")], [2])

    def test_in_a_matrix_product(self):
        """Some run on a stack of their own making, in memory from malloc: a handler must not write below it."""
        for _ in range(4):
            job = self.start(1, FOREVER, "train.deterministic=false", "train.batch_size=1024", "model.bottom_mlp=[256, 8]", "model.top_mlp=[256, 1]",
                             "log.every_steps=1")
            os.kill(self.trains(job, 1, 2)[0], signal.SIGUSR1)
            self.ended(job, signal.SIGUSR1)
            shutil.rmtree(self.path("ckpt"))
            os.remove(self.path("run.jsonl"))

    def test_second_signal(self):
        """Leaves at once, in the middle of a long step; the launcher's own SIGTERM does so, too: older checkpoints are good."""
        slow = ["train.batch_size=100000", "model.bottom_mlp=[128, 8]", "model.top_mlp=[128, 1]", "data.synthetic.batches=1", FOREVER]
        for _ in range(5):  # a step may end between the two signals, and the run with it
            shutil.rmtree(self.path("ckpt"), ignore_errors=True)
            self.write("run.jsonl", "")
            job = self.start(1, "log.every_steps=1", *slow)
            pid = self.trains(job, 1, 1)[0]
            os.kill(pid, signal.SIGUSR1)
            time.sleep(0.02)
            try:
                os.kill(pid, signal.SIGTERM)
            except ProcessLookupError:
                job.wait(timeout=launch.PATIENCE)
                continue
            if job.wait(timeout=launch.PATIENCE) != 128 + signal.SIGUSR1:
                break
        self.assertEqual(job.returncode, 128 + signal.SIGTERM)
        self.assertEqual(checkpoints(self.path("ckpt")), [])

    def test_same_signal_again(self):
        """Within a second it is the same request, as where a launcher and a scheduler both pass it on; later it leaves at once, even where the
        step at hand has no end."""
        job = self.start(2, FOREVER)
        ranks = self.trains(job, 2)
        os.kill(ranks[1], signal.SIGSTOP)
        for _ in range(2):
            os.kill(ranks[0], signal.SIGUSR1)
            time.sleep(0.3)
        self.assertIsNone(job.poll(), self.file_bytes("err"))
        time.sleep(2)
        self.assertIsNone(job.poll(), self.file_bytes("err"))
        os.kill(ranks[0], signal.SIGUSR1)
        self.assertEqual(job.wait(timeout=60), 128 + signal.SIGUSR1)
        self.assertEqual(checkpoints(self.path("ckpt")), [])

    def test_launcher_terminated(self):
        job = self.start(2, FOREVER, "checkpoint.every_steps=5")
        self.trains(job, 2)
        job.terminate()
        self.assertNotEqual(job.wait(timeout=launch.PATIENCE), 0)
        self.assertGreater(self.latest(), 0)
        self.has_the_bits_of_a_straight_run(3)

    def test_launcher_signalled_twice(self):
        """SIGUSR1 in a long step, then SIGTERM: mpirun ends the ranks at once, and older checkpoints are good."""
        job = self.start(2, FOREVER, "checkpoint.every_steps=5")
        self.trains(job, 2)
        job.terminate()
        job.wait(timeout=launch.PATIENCE)
        before = self.latest()
        self.write("run.jsonl", "")
        slow = ["train.batch_size=100000", "data.synthetic.batches=1", "checkpoint.allow_changed=[train, data]"]
        job = self.start(2, FOREVER, "train.deterministic=false", "log.every_steps=1", *slow)
        deadline = time.monotonic() + launch.PATIENCE
        while b'"event":"resume"' not in self.file_bytes("run.jsonl"):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)
        ranks = rank_processes(job.pid)
        job.send_signal(signal.SIGUSR1)
        time.sleep(0.05)
        job.terminate()
        self.assertNotEqual(job.wait(timeout=launch.PATIENCE), 0)
        while [pid for pid in ranks.values() if os.path.exists("/proc/%d" % pid)]:
            self.assertLess(time.monotonic(), deadline, "a rank is still there")
            time.sleep(0.02)
        self.assertGreaterEqual(self.latest(), before)
        self.succeed(1, *ARGS, "--eval", "eval.max_samples=48")

    def test_without_checkpoints(self):
        job = self.start(2, FOREVER, "checkpoint.path=null")
        self.trains(job, 2)
        job.send_signal(signal.SIGUSR1)
        self.assertEqual(job.wait(timeout=launch.PATIENCE), 128 + signal.SIGUSR1)


class Divergence(SurvivalTest):
    def test_loss(self):
        """The last good checkpoint stays; step, rank and checkpoint are named."""
        self.make_data()
        done = self.refuse(2, 3, r"^dlrm-train: step \d+: the loss is -?(nan|inf) \(first in rank [01]'s samples\); this is not saved, the last "
                           r"checkpoint is ckpt/step_\d{9}\. A lower learning rate", "config.yaml", "train.steps=400", "checkpoint.path=ckpt",
                           "checkpoint.every_steps=1", "log.every_steps=20", "eval.every_epoch=false",
                           "optimizer={dense: {name: sgd, learning_rate: 1e6}, embedding: {name: sgd, learning_rate: 1e6}}")
        names = checkpoints(self.path("ckpt"))
        self.assertIn("the last checkpoint is ckpt/" + names[-1], done.stderr)
        for value in read_checkpoint(self.path("ckpt", names[-1])).values():
            self.assertTrue(np.isfinite(value).all())

    def test_parameter(self):
        """A value that no loss has met is found while it is written, and the older checkpoint stays."""
        self.make_data()
        self.succeed(2, "config.yaml", "checkpoint.export=out", "train.steps=1")
        weights = fixture.read_safetensors(self.path("out"))
        rows = weights["table.user.weight"].copy()
        rows[49, 2] = np.inf  # the test's rows have ids below 49 in the first batch: see below
        weights["table.user.weight"] = rows
        fixture.write_safetensors(self.path("bad.safetensors"), weights)
        data = fixture.Rows(16, 1)
        for feature in (0, 3):
            data.ids[feature] = data.ids[feature] % 49
        data.write(self.path("data", "train"))
        for background in ([], ["checkpoint.every_steps=1"]):
            self.refuse(2, 3, r"^dlrm-train: step 1, rank [01]: table\.user\.weight has a value in row 49, column 2 that is not finite; nothing is "
                        r"saved\.", "config.yaml", "checkpoint.path=ckpt", "checkpoint.init_from=bad.safetensors", "eval.every_epoch=false", *background)
            self.assertEqual(checkpoints(self.path("ckpt")), [])


if __name__ == "__main__":
    KilledAtEachPulse.stop_at = os.path.abspath(sys.argv.pop(2))
    fixture.main()
