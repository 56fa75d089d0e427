"""run_criteo.sh, small: --rehearsal, the whole Terabyte recipe by one command, and a folder of Kaggle's.

  test_rehearsal.py TRAINER DLRM_DATA [unittest's arguments]"""
import json
import os
import shutil
import signal
import subprocess
import time

import numpy as np

import criteo_oracle as oracle
import criteo_run
import fixture
import launch

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
ROWS = 24000


def kind(log, event):
    """So far: a last line may be cut."""
    if not os.path.exists(log):
        return []
    with open(log) as f:
        return [e for e in map(json.loads, filter(lambda line: line.endswith("\n"), f)) if e["event"] == event]


def steps(log):
    return [e["step"] for e in kind(log, "step")]


class Rehearsal(criteo_run.CriteoTest):
    def setUp(self):
        super().setUp()
        # the script works in its own folder: here it is one with links to the repository and to this build
        shutil.copy(os.path.join(ROOT, "run_criteo.sh"), self.folder)
        for name, target in (("tests", ROOT + "/tests"), ("configs", ROOT + "/configs"), ("build", os.path.dirname(os.path.dirname(os.path.abspath(self.dlrm_data))))):
            os.symlink(target, self.path(name))

    def script(self, *args, env=None):
        return subprocess.run(["./run_criteo.sh"] + list(args), cwd=self.folder, env=env, stdin=subprocess.DEVNULL, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=2 * launch.PATIENCE)

    def rehearse(self, *args):
        return self.script("--rehearsal=%d" % ROWS, "train.batch_size=256", "eval.every_steps=20", "log.every_steps=1", *args)

    def test_kaggle_folder(self):
        # made as docs/criteo.md has it: ln(x + 1) in float32, the first 3,274,330 of the last seventh scored
        os.mkdir(self.path("kaggle"))
        self.tool("synth", "--shape", "kaggle", "--rows", 7000, "--out", "kaggle/train.txt")
        # a disk that has room for two checkpoints of these tables, if not of Kaggle's
        os.mkdir(self.path("bin"))
        self.write("bin/df", "#!/bin/sh\necho; echo none 200000 0 200000 0% /\n")
        os.chmod(self.path("bin/df"), 0o755)
        r = self.script("kaggle", "train.steps=3", "eval.every_epoch=false", env=dict(os.environ, PATH=self.path("bin") + ":" + os.environ["PATH"]))
        self.assertEqual(r.returncode, 0, r.stdout)
        self.assertEqual(os.listdir(self.path("criteo_run/kaggle/checkpoints")).count("step_000000003"), 1, r.stdout)
        self.assertRegex(r.stdout, r"\nevaluation +none .*\nmedian step +[0-9.]+ ms\n")
        spec = oracle.read_spec(self.path("criteo_run/kaggle/data/feature_spec.yaml"))
        self.assertEqual(spec["metadata"]["dense"], "log1")
        self.assertEqual(os.path.getsize(self.path("criteo_run/kaggle/data/test/numerical.bin")), 1000 * 13 * 4)
        with open(self.path("criteo_run/kaggle/data.stamp")) as f:
            self.assertIn("--test-rows 3274330", f.read())

    def test_recipe(self):
        r = self.rehearse("eval.target_auc=0.6", "optimizer.schedule.warmup_steps=5", "optimizer.schedule.decay_start_step=10",
                          "optimizer.schedule.decay_steps=40")
        self.assertEqual(r.returncode, 0, r.stdout)
        self.assertRegex(r.stdout, r"\ntime to target  [0-9.]+ s of training steps, \d+ of them; \d+ s with start and evaluations\n")
        self.assertRegex(r.stdout, r"\nAUC +0\.[67]\d+ +\(planted model: 0\.[78]\d+, the bound\)\n")
        out = self.path("criteo_run/rehearsal")
        with open(out + "/run.jsonl") as f:
            log = [json.loads(line) for line in f]
        self.assertEqual(log[-1]["why"], "target AUC reached")
        evals = [e for e in log if e["event"] == "eval"]
        self.assertTrue(all(e["auc"] < 0.6 for e in evals[:-1]) and evals[-1]["auc"] >= 0.6)
        self.assertEqual(evals[-1]["samples"], ROWS // 48)  # the first half of day 23
        rates = [e["lr"] for e in log if e["event"] == "step"]
        self.assertTrue(rates[0] < rates[3] and rates[-1] < rates[8])  # warm-up, then decay
        # what was trained on: all of days 0 to 22 in the shuffle's order, and the day's first half in its own
        labels = []
        for day in range(24):
            with open(out + "/days/day_%d" % day, "rb") as f:
                labels.append(np.array([int(line[:1]) for line in f], np.uint8))
        self.assertEqual(sum(map(len, labels)), ROWS)
        train = np.concatenate(labels[:23])[oracle.shuffle_order(np.arange(ROWS // 24 * 23), 1)]
        np.testing.assert_array_equal(np.fromfile(out + "/data/train/label.bin", np.uint8), train)
        np.testing.assert_array_equal(np.fromfile(out + "/data/test/label.bin", np.uint8), labels[23][:ROWS // 48])
        spec = oracle.read_spec(out + "/data/feature_spec.yaml")["feature_spec"]
        self.assertEqual(sum(spec["cat_%d.bin" % k].get("hotness", 1) for k in range(26)), 214)
        # again: nothing but the training is done; a target that is out of reach is said, and is a failure
        before = os.stat(out + "/data/train/label.bin").st_mtime_ns
        r = self.rehearse("eval.target_auc=0.99", "train.steps=12")
        self.assertEqual(r.returncode, 1, r.stdout)
        self.assertIn("the target AUC was not reached", r.stdout)
        self.assertIn("0 s of making them in this run", r.stdout)
        self.assertEqual(os.stat(out + "/data/train/label.bin").st_mtime_ns, before)

    def start(self, *args):
        env = {k: v for k, v in os.environ.items() if k != "OMPI_MCA_mpi_yield_when_idle"}
        with open(self.path("said"), "w") as said:
            script = subprocess.Popen(["./run_criteo.sh", "--rehearsal=%d" % ROWS] + list(args), cwd=self.folder, env=env, stdin=subprocess.DEVNULL,
                                      stdout=said, stderr=subprocess.STDOUT)
        self.addCleanup(script.wait)
        self.addCleanup(script.kill)
        return script

    def wait_for(self, script, there):
        deadline = time.monotonic() + launch.PATIENCE
        while not there():
            self.assertIsNone(script.poll(), self.said())
            self.assertLess(time.monotonic(), deadline, self.said())
            time.sleep(0.02)

    def said(self):
        with open(self.path("said")) as f:
            return f.read()

    def ends(self, script, code):
        self.assertEqual(script.wait(timeout=launch.PATIENCE), code, self.said())
        self.assertIn("stopped; the same command goes on from where it was", self.said())

    def test_signals(self):
        """While data are made they end the stage, which is done anew; in a training they have it save, and the same command goes on;
        a second one does not wait for that."""
        log, checkpoints = self.path("criteo_run/rehearsal/run.jsonl"), self.path("criteo_run/rehearsal/checkpoints")
        args = ["train.batch_size=256", "train.epochs=100000", "eval.every_epoch=false", "eval.every_steps=0", "eval.target_auc=null", "log.every_steps=1"]
        script = self.start(*args)
        self.wait_for(script, lambda: os.path.exists(self.path("criteo_run/rehearsal/days")) or
                      os.path.exists(self.path("criteo_run/rehearsal/days.partial")))
        script.terminate()
        self.ends(script, 143)
        last = 0
        for number, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
            script = self.start(*args)
            self.wait_for(script, lambda: max(steps(log), default=0) > last + 2)
            for pid in fixture.rank_processes(script.pid).values():
                with open("/proc/%d/environ" % pid, "rb") as f:
                    self.assertIn(b"\0OMPI_MCA_mpi_yield_when_idle=1\0", f.read())
            script.send_signal(number)
            self.ends(script, code)
            self.assertEqual(kind(log, "end")[-1]["why"], "ended by SIGUSR1")
            self.assertEqual(os.listdir(checkpoints).count("step_%09d" % steps(log)[-1]), 1, self.said())
            self.assertEqual([e["checkpoint"] for e in kind(log, "resume")], ["criteo_run/rehearsal/checkpoints/step_%09d" % last] if last else [])
            last = steps(log)[-1]
        script = self.start(*args, "train.batch_size=23000", "model.top_mlp=[2048, 2048, 1]", "checkpoint.resume=never")  # steps of seconds
        self.wait_for(script, lambda: [e["batch_size"] for e in kind(log, "start")] == [23000])
        ranks = fixture.rank_processes(script.pid)
        self.assertGreater(len(ranks), 0)
        for _ in range(2):
            script.terminate()
            time.sleep(0.1)
        self.ends(script, 143)
        deadline = time.monotonic() + launch.PATIENCE
        while [rank for rank, pid in ranks.items() if os.path.exists("/proc/%d" % pid)] and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertLess(time.monotonic(), deadline, "a rank is still there")
        self.assertEqual((steps(log), kind(log, "end")), ([], []))
        self.assertIn("step_%09d" % last, os.listdir(checkpoints))

    def test_arguments(self):
        for args, message in ((["--rehearsal=100"], "expected a multiple of 48"), (["--rehearsal", "/tmp"], "a rehearsal generates its data")):
            r = subprocess.run([os.path.join(ROOT, "run_criteo.sh")] + args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            self.assertEqual(r.returncode, 2)
            self.assertIn(message, r.stderr)


if __name__ == "__main__":
    criteo_run.main()
