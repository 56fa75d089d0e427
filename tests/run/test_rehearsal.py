"""run_criteo.sh, small: --rehearsal, the whole Terabyte recipe by one command, and a folder of Kaggle's.

  test_rehearsal.py TRAINER DLRM_DATA [unittest's arguments]"""
import json
import os
import shutil
import subprocess

import numpy as np

import criteo_oracle as oracle
import criteo_run
import launch

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
ROWS = 24000


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

    def test_arguments(self):
        for args, message in ((["--rehearsal=100"], "expected a multiple of 48"), (["--rehearsal", "/tmp"], "a rehearsal generates its data")):
            r = subprocess.run([os.path.join(ROOT, "run_criteo.sh")] + args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            self.assertEqual(r.returncode, 2)
            self.assertIn(message, r.stderr)


if __name__ == "__main__":
    criteo_run.main()
