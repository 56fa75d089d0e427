#!/usr/bin/env python3
"""The command line: exit codes, --help, --check, --eval and --predict against a forward pass in NumPy, the log's events, and what
goes to a terminal and to a file."""
import os
import pty
import re
import signal
import subprocess

import numpy as np

import fixture
import launch
from fixture import events


class Usage(fixture.RunTest):
    def direct(self, *args, **variables):
        """Without mpirun."""
        return subprocess.run([self.trainer] + list(args), cwd=self.folder, timeout=launch.PATIENCE, text=True, errors="replace",
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(os.environ, **variables))

    def says(self, code, message, *args, **variables):
        """This exit code and this text (None: any) as the whole of stderr, and nothing on stdout."""
        done = self.direct(*args, **variables)
        self.assertEqual((done.returncode, done.stdout), (code, ""), done.stderr)
        self.assertRegex(done.stderr, r"\A%s\n\Z" % message)

    def test_usage(self):
        self.says(2, r"dlrm-train: no config file; see dlrm-train --help")
        self.says(2, r"dlrm-train: no config file; see dlrm-train --help", "--check")
        self.says(2, r"dlrm-train: unknown option --chek; see dlrm-train --help", "config.yaml", "--chek")
        self.says(2, r"dlrm-train: two config files, a\.yaml and b\.yaml; a setting is given as key\.path=value", "a.yaml", "b.yaml")
        self.says(2, r"dlrm-train: --eval: only one of --check, --plan, --eval and --predict can be given", "c.yaml", "--check", "--eval")
        self.says(2, r"dlrm-train: --predict: expected a file name after it", "config.yaml", "--predict")
        self.says(2, r"dlrm-train: --version: is given alone, or --help with one topic", "config.yaml", "--version")
        self.says(2, r"dlrm-train: --help: is given alone, or --help with one topic", "--help", "train", "data")

    def test_bad_input(self):
        self.make_data()
        self.says(1, r"absent\.yaml: cannot be opened: No such file or directory", "absent.yaml")
        for argument, message in (
                ("train.stepz=5", r"command line: train\.stepz: unknown key; did you mean train\.steps\?"),
                ("=5", r'command line: found "=5", expected key\.path=value'),
                ("train.steps=ten", r'command line: train\.steps: found "ten", expected an integer from 1 to \d+, or null'),
                ("train.steps=[", r"command line: train\.steps: not YAML: .+"),
                ("data.path=absent", r'command line: data\.path: cannot find "absent": No such file or directory; expected a folder of '
                                     r"data, as `dlrm_data convert` makes it"),
                ("data.path=.", r"\.: found neither feature_spec\.yaml nor model_size\.json in this folder; `dlrm_data convert` makes a "
                                r"folder of data out of Criteo's text files, docs/own-data\.md out of arrays"),
                ("data.path=config.yaml", r'command line: data\.path: found "config\.yaml", a file; expected a folder of data, as `dlrm_data convert` '
                                          r"makes it"),
                ("data={format: npy, path: config.yaml}", r'command line: data\.path: found "config\.yaml", a file; expected a folder of data, .+'),
                ("checkpoint.path=config.yaml", r"command line: checkpoint\.path: config\.yaml: not a folder"),
                ("checkpoint.export=config.yaml", r"command line: checkpoint\.export: config\.yaml: not a folder"),
                ("checkpoint.resume=config.yaml", r'command line: checkpoint\.resume: found "config\.yaml", which is no checkpoint: there is no '
                                                  r"manifest\.json in it; expected auto, never or a checkpoint's folder"),
                ("checkpoint.resume=data", r'command line: checkpoint\.resume: found "data", which is no checkpoint: .+'),
                ("checkpoint={init_from: data, name_map: absent}", r'command line: checkpoint\.name_map: cannot find "absent": No such file or '
                                                                   r"directory; expected a YAML file of names"),
                ("checkpoint.name_map=config.yaml", r'command line: checkpoint\.name_map: found "config\.yaml", but checkpoint\.init_from '
                                                    r"is not set: there are no names to map"),
                ("checkpoint.init_from=absent", r'command line: checkpoint\.init_from: cannot find "absent": No such file or directory; '
                                                r"expected a safetensors file, or a folder of them"),
                ("eval.every_steps=-1", r'command line: eval\.every_steps: found "-1", expected an integer from 0 to \d+, or null')):
            with self.subTest(argument=argument):
                self.says(1, message, "config.yaml", argument)
        self.assertFalse(os.path.exists(self.path("run.jsonl")))

    def test_name_that_is_not_utf8(self):
        """A file name may have any bytes; the log's lines are UTF-8 all the same."""
        self.make_data()
        name = os.fsdecode(b"caf\xe9.yaml")
        os.rename(self.path("config.yaml"), self.path(name))
        done = self.direct(name, "train.steps=2")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        log = events(self.path("run.jsonl"))
        self.assertEqual(log[0]["config"], "caf?.yaml")
        self.assertEqual(log[-1]["event"], "end")

    def test_missing_data_in_the_file(self):
        self.write("config.yaml", fixture.CONFIG)
        line = fixture.CONFIG.splitlines().index("data: {format: split_binary, path: data}") + 1
        self.says(1, r'config\.yaml:%d:\d+: data\.path: cannot find "data": No such file or directory; .+' % line, "config.yaml")

    def test_no_test_split(self):
        self.make_data()
        fixture.write_spec(self.path("data"), ["train"])
        self.says(1, r"--eval: data has no test split", "config.yaml", "--eval")
        self.says(1, r"--predict: data has no test split", "config.yaml", "--predict", "p.npy")
        self.says(1, r"command line: eval\.every_steps: is 5, but the data has no test split", "config.yaml", "eval.every_steps=5")
        self.says(1, r"command line: eval\.target_auc: is 0\.8, but the data has no test split", "config.yaml", "eval.target_auc=0.8")
        done = self.succeed(2, "config.yaml")
        self.assertEqual(done.stdout.count("no test split"), 1)
        self.assertEqual(events(self.path("run.jsonl"), "eval"), [])

    def test_no_weights(self):
        self.make_data()
        for mode in (["--eval"], ["--predict", "p.npy"]):
            self.says(1, r"%s: there is no checkpoint to resume, and checkpoint\.init_from is not set: there are no weights to evaluate" % mode[0], "config.yaml", *mode)
        self.assertFalse(os.path.exists(self.path("p.npy")))

    def test_threads(self):
        self.write("config.yaml", fixture.SYNTHETIC)
        for text in ("0", "-3", "many", "1025", "100000", "99999999999999999999", "2x"):
            with self.subTest(text):
                done = launch.train(self.trainer, 2, ["config.yaml"], self.folder, threads=text)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.one_message(done.stderr, r'^dlrm-train: OMP_NUM_THREADS: found "%s", expected a number of threads from 1 to 1024$' % re.escape(text))
        for text, threads in (("3", 3), ("2,4", 2)):
            self.assertEqual(launch.train(self.trainer, 1, ["config.yaml"], self.folder, threads=text).returncode, 0)
            self.assertEqual(events(self.path("run.jsonl"), "start")[0]["threads"], threads)

    def test_one_rank_speaks(self):
        self.make_data()
        self.refuse(3, 1, r"train\.stepz", "config.yaml", "train.stepz=5")
        self.refuse(3, 2, r"unknown option --chek", "config.yaml", "--chek")

    def test_launcher_mismatch(self):
        self.write("config.yaml", fixture.SYNTHETIC)
        for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"):
            self.says(2, r"dlrm-train: the launcher started 2 processes \(%s\) but MPI sees one: each would train alone\. .+" % name,
                      "config.yaml", "train.steps=1", **{name: "2"})
            self.assertEqual(self.direct("config.yaml", "train.steps=1", **{name: "1"}).returncode, 0)
        for size, number in (("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"), ("PMI_SIZE", "PMI_RANK"),
                             ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID")):  # the launcher's first process alone speaks
            done = self.direct("config.yaml", "train.steps=1", **{size: "2", number: "1"})
            self.assertEqual((done.returncode, done.stdout, done.stderr), (2, "", ""))

    def test_help(self):
        everything = self.direct("--help")
        self.assertEqual((everything.returncode, everything.stderr), (0, ""))
        for word in ("usage: mpirun -n RANKS dlrm-train CONFIG.yaml", "--check", "--eval", "--predict OUT.npy", "checkpoint  "):
            self.assertIn(word, everything.stdout)
        self.assertEqual(self.direct("-h").stdout, everything.stdout)
        for topic, words in (("train", ["train.batch_size", "train.seed"]), ("train.steps", ["train.steps\n"]),
                             ("batch_size", ["train.batch_size\n", "eval.batch_size\n"]), ("optimizer.schedule", ["decay_power"]),
                             ("markdown", ["| `model.top_mlp` |"])):
            done = self.direct("--help", topic)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            for word in words:
                self.assertIn(word, done.stdout)
        wrong = self.direct("--help", "trian")
        self.assertEqual((wrong.returncode, wrong.stderr), (2, 'dlrm-train: --help: no topic "trian"\n'))

    def test_version(self):
        done = self.direct("--version")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertRegex(done.stdout, r"\Adlrm-train \d+\.\d+\.\d+\n\Z")

    def test_answers_that_cannot_be_written(self):
        """--help markdown > docs/config.md on a full disk is no success."""
        self.write("config.yaml", fixture.SYNTHETIC)
        for args in (["--help"], ["--help", "markdown"], ["--version"], ["config.yaml", "--check"]):
            with open("/dev/full", "w") as full:
                done = subprocess.run([self.trainer] + args, cwd=self.folder, timeout=launch.PATIENCE, text=True, stdout=full, stderr=subprocess.PIPE)
            self.assertEqual((done.returncode, done.stderr), (3, "dlrm-train: stdout: could not be written in full\n"))

    def test_check(self):
        """Says all and makes nothing."""
        self.make_data()
        before = sorted(os.listdir(self.folder))
        done = self.succeed(2, "config.yaml", "--check", "checkpoint.export=out")
        self.assertEqual(done.stderr, "")
        self.assertEqual(sorted(os.listdir(self.folder)), before)
        for pattern in (r"3 tables, 4 inputs, 480 embedding parameters", r"120 rows, batch 16, 8 steps, adagrad / adagrad",
                        r"evaluation +70 rows, batch 16, 1 times", r"placement +auto, 2 ranks", r"table tags +30 rows x 4 +rank \d"):
            self.assertRegex(done.stdout, pattern)
        self.assertRegex(self.succeed(1, "config.yaml", "--check", "eval.max_samples=33").stdout, r"evaluation +33 rows, batch 16")


class Scores(fixture.RunTest):
    """--eval and --predict, against the exported weights in NumPy."""

    def predict(self, ranks, *args):
        self.succeed(ranks, "config.yaml", "checkpoint.init_from=out", "--predict", "p.npy", *args)
        p = np.load(self.path("p.npy"))
        self.assertEqual(p.dtype, np.float32)
        return p

    def test_against_numpy(self):
        cases = (1, 0, 16), (3, 0, 16), (2, 37, 64), (3, 2, 16), (1, 70, 9)  # ranks, eval.max_samples, eval.batch_size
        cases = cases[2:4] if fixture.SANITIZED else cases
        for interaction, more, cases in (("dot", [], cases), ("cat", ["train.deterministic=true"], cases[1:3])):
            rows = self.make_data()["test"]
            settings = ["model.interaction=" + interaction] + more
            self.succeed(2, "config.yaml", "checkpoint.export=out", "train.epochs=3", *settings)
            weights = self.weights("out")
            for ranks, max_samples, batch in cases:
                with self.subTest(interaction=interaction, ranks=ranks, max_samples=max_samples, batch=batch):
                    part = rows.first(max_samples) if max_samples else rows
                    args = settings + ["eval.max_samples=%d" % max_samples, "eval.batch_size=%d" % batch]
                    want = fixture.probabilities(weights, part, interaction)
                    got = self.predict(ranks, *args)
                    self.assertEqual(got.shape, want.shape)
                    self.assertLess(np.abs(got - want).max(), 1e-6)
                    os.remove(self.path("run.jsonl"))
                    self.succeed(ranks, "config.yaml", "checkpoint.init_from=out", "--eval", *args)
                    start, result = events(self.path("run.jsonl"))
                    self.assertEqual((start["event"], result["event"], result["samples"]), ("start", "eval", part.n))
                    y = part.labels.astype(np.float64)
                    self.assertAlmostEqual(result["loss"], -np.mean(y * np.log(want) + (1 - y) * np.log(1 - want)), delta=1e-6)
                    one_class = y.min() == y.max()
                    self.assertEqual(result["auc"] is None, one_class)
                    if not one_class:
                        self.assertAlmostEqual(result["auc"], fixture.auc(got, part.labels), delta=1e-8)

    def test_eval_keeps_the_log(self):
        self.make_data()
        self.succeed(1, "config.yaml", "checkpoint.export=out")
        before = self.file_bytes("run.jsonl")
        self.succeed(1, "config.yaml", "checkpoint.init_from=out", "--eval")
        self.assertTrue(self.file_bytes("run.jsonl").startswith(before))
        self.assertEqual([e["event"] for e in events(self.path("run.jsonl"))][-2:], ["start", "eval"])

    def test_refused(self):
        self.make_data()
        self.succeed(2, "config.yaml", "checkpoint.export=out")
        self.refuse(2, 1, r"^absent/p\.npy: cannot create: No such file or directory$", "config.yaml", "checkpoint.init_from=out",
                    "--predict", "absent/p.npy")
        np.save(self.path("dense.npy"), np.zeros((70, 3), "<f4"))
        np.save(self.path("labels.npy"), np.zeros(70, "<i4"))
        for name in ("config.yaml", "out/model.safetensors", "data/test/label.bin", "dense.npy", "labels.npy"):
            before = self.file_bytes(name)
            self.refuse(2, 1, r"^--predict: %s: found a file of something else; expected earlier predictions, an empty file, or a name for a new one$" %
                        re.escape(name), "config.yaml", "checkpoint.init_from=out", "--predict", name)
            self.assertEqual(self.file_bytes(name), before)
        self.write("p.npy", "")
        for more in ([], ["eval.max_samples=7"], []):
            self.succeed(2, "config.yaml", "checkpoint.init_from=out", "--predict", "p.npy", *more)
        self.assertEqual(np.load(self.path("p.npy")).shape, (70,))
        self.refuse(2, 3, r"^dlrm-train: /dev/full: cannot write 128 bytes at byte 0: No space left on device$", "config.yaml", "checkpoint.init_from=out",
                    "--predict", "/dev/full")


class Log(fixture.RunTest):
    def test_events(self):
        """The fields that scripts rely on, their types, and that they agree with each other."""
        self.make_data()
        self.succeed(2, "config.yaml", "train.epochs=2", "log.every_steps=3", "eval.every_steps=5")
        log = events(self.path("run.jsonl"))
        self.assertEqual(log[0]["event"], "start")
        self.assertEqual(log[-1]["event"], "end")
        self.assertEqual([e["step"] for e in log if e["event"] == "step"], [3, 6, 9, 12, 15, 16])
        self.assertEqual([e["step"] for e in log if e["event"] == "eval"], [5, 8, 10, 15, 16])
        whole = {"step": ["step"], "eval": ["step", "samples"], "end": ["steps", "samples"], "start": ["ranks", "batch_size", "steps"]}
        numbers = {"step": ["loss", "loss_mean", "step_ms", "step_ms_median", "step_ms_p95", "samples_per_s", "lr", "lr_embedding",
                            "data_wait_ms"],
                   "eval": ["auc", "loss"], "end": ["step_ms_median", "step_ms_p95", "samples_per_s"], "start": []}
        for e in log:
            for name in whole[e["event"]]:
                self.assertIsInstance(e[name], int, e)
            for name in numbers[e["event"]]:
                self.assertIsInstance(e[name], float, e)
        start, end = log[0], log[-1]
        for name in ("rank", "samples", "table_bytes", "file_bytes"):
            for r in start["per_rank"] + end["per_rank"]:
                self.assertIsInstance(r[name], int)
        for name in ("sent_bytes_per_step", "memory_bytes"):
            self.assertTrue(all(isinstance(r[name], int) for r in start["per_rank"]))
        for name in ("peak_bytes", "peak_resident_bytes"):
            self.assertTrue(all(r[name] > 0 for r in end["per_rank"]))
        self.assertEqual((end["steps"], end["samples"], end["why"]), (16, 240, "finished"))
        phases = {"data_wait", "lookup", "exchange", "mlp", "interaction", "update"}
        for e in [e for e in log if e["event"] == "step"] + [end]:
            self.assertLessEqual(e["step_ms_median"], e["step_ms_p95"])
            shares = e["time_shares"] if e is not end else e["per_rank"][0]["time_shares"]
            self.assertEqual(set(shares), phases)
            self.assertTrue(all(0 <= v <= 1 for v in shares.values()) and 0 < sum(shares.values()) < 1.05, e)
        self.assertEqual({(e["lr"], e["lr_embedding"]) for e in log if e["event"] == "step"}, {(0.05, 0.1)})

    def test_losses(self):
        """Nine digits, a step's own loss, and the mean of the window."""
        self.make_data()
        self.succeed(1, "config.yaml")
        each = [e["loss"] for e in events(self.path("run.jsonl"), "step")]
        self.assertEqual(len(each), 8)
        written = re.findall(r'"loss":([^,}]+)', self.file_bytes("run.jsonl").decode())
        self.assertEqual(len(written), 9)
        for text in written:
            self.assertEqual(float("%.9g" % float(text)), float(text))
        self.assertGreaterEqual(max(len(text.replace(".", "").lstrip("0")) for text in written), 8, written)
        self.succeed(1, "config.yaml", "log.every_steps=4")
        windows = events(self.path("run.jsonl"), "step")
        self.assertEqual([w["loss"] for w in windows], [each[3], each[7]])
        for k, w in enumerate(windows):
            self.assertAlmostEqual(w["loss_mean"], np.mean(each[4 * k:4 * k + 4]), delta=1e-8)

    def test_lines(self):
        """What a step's line says is what its event does, and how long the rest will take: seconds, minutes or hours."""
        self.write("config.yaml", fixture.SYNTHETIC)
        seen = set()
        for steps in (60, 300000, 10 ** 10):
            with subprocess.Popen([self.trainer, "config.yaml", "train.steps=%d" % steps, "log.every_steps=20"], cwd=self.folder, text=True,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as job:
                self.addCleanup(job.kill)
                text = next(line for line in job.stdout if line.startswith("step 20/"))
                job.send_signal(signal.SIGTERM)
                job.communicate(timeout=launch.PATIENCE)
            event = events(self.path("run.jsonl"), "step")[0]
            found = re.fullmatch(r"step 20/%d \| loss (\S+) \| (\S+) ms/step \| (\S+) ([kM]) samples/s \| lr 0\.01 \| eta (?:(\d+)h(\d\d)m|(\d+)m(\d\d)s|(\d+)s)\n"
                                 % steps, text)
            self.assertIsNotNone(found, text)
            loss, ms, rate, unit, hours, minutes, whole_minutes, seconds, only = found.groups()
            self.assertAlmostEqual(float(loss), event["loss_mean"], delta=1e-5)
            self.assertAlmostEqual(float(ms), event["step_ms"], delta=0.006)
            self.assertAlmostEqual(float(rate) * (1e6 if unit == "M" else 1e3) / event["samples_per_s"], 1, delta=1e-3)
            eta = 3600 * int(hours) + 60 * int(minutes) if hours else 60 * int(whole_minutes) + int(seconds) if whole_minutes else int(only)
            self.assertAlmostEqual(eta, 1e-3 * event["step_ms"] * (steps - 20), delta=61 if hours else 1)
            self.assertTrue(hours or eta < 3600 and (whole_minutes or eta < 60), text)
            seen.add("h" if hours else "m" if whole_minutes else "s")
        self.assertLessEqual({"h", "s"}, seen)

    def test_target_auc(self):
        """Training stops there, with a line for the steps since the last one."""
        self.make_data()
        done = self.succeed(2, "config.yaml", "eval.every_steps=3", "eval.target_auc=0.01", "checkpoint.export=out", "log.every_steps=2")
        self.assertEqual([(e["event"], e["step"]) for e in events(self.path("run.jsonl"))[1:-1]], [("step", 2), ("eval", 3), ("step", 3)])
        self.assertEqual(events(self.path("run.jsonl"), "end")[0]["why"], "target AUC reached")
        self.assertIn("target AUC reached after 3 steps", done.stdout)
        self.assertTrue(os.path.exists(self.path("out", "model.safetensors")))

    def test_one_class(self):
        rows = self.make_data()["test"]
        rows.labels[:] = 0
        rows.write(self.path("data", "test"))
        self.succeed(2, "config.yaml", "eval.target_auc=0.5")
        result = events(self.path("run.jsonl"), "eval")[0]
        self.assertIsNone(result["auc"])
        self.assertIsInstance(result["loss"], float)


class Terminal(fixture.RunTest):
    ARGS = ["config.yaml", "train.steps=40", "log.every_steps=20"]

    def on_terminal(self, command):
        """What the command prints on a terminal."""
        pid, fd = pty.fork()
        if pid == 0:
            os.chdir(self.folder)
            os.execvp(command[0], command)
        out = b""
        while True:
            try:
                some = os.read(fd, 1 << 16)
            except OSError:  # the other side is closed
                break
            if not some:
                break
            out += some
        os.close(fd)
        self.assertEqual(os.waitpid(pid, 0)[1], 0, out)
        return out.decode()

    def test_bar(self):
        """A bar that lines take the place of."""
        self.write("config.yaml", fixture.SYNTHETIC)
        for launcher in (["mpirun", "-n", "2"], []):
            out = self.on_terminal(launcher + [self.trainer] + self.ARGS)
            self.assertRegex(out, r"\[#*\.+\] \d+/40  eta \d+s\r\x1b\[K")
            shown = [line.rsplit("\x1b[K", 1)[-1].rstrip("\r") for line in out.split("\n")]
            self.assertFalse([line for line in shown if line.startswith("[")], "a bar was left standing")
            pattern = (r"step (20|40)/40 \| loss \d\.\d{5} \| [\d.]+ ms/step \| [\d.]+ [kM] samples/s \| lr 0\.01 \| "
                       r"eta \d+s$")
            self.assertEqual(sum(bool(re.match(pattern, line)) for line in shown), 2, shown)

    def test_no_bar(self):
        """Plain lines in a file, also where the launcher gives its ranks terminals; and on a terminal, if so wished."""
        self.write("config.yaml", fixture.SYNTHETIC)
        for launcher in (["mpirun", "-n", "2"], []):
            with open(self.path("out"), "w") as out:
                subprocess.run(launcher + [self.trainer] + self.ARGS, cwd=self.folder, timeout=launch.PATIENCE, stdin=subprocess.DEVNULL, stdout=out,
                               check=True)
            text = self.file_bytes("out").decode()
            self.assertNotRegex(text, r"[\r\x1b]")
            self.assertEqual(len(re.findall(r"^step \d+/", text, re.M)), 2)
        self.assertNotIn("\x1b", self.on_terminal([self.trainer] + self.ARGS + ["log.progress=false"]))


if __name__ == "__main__":
    fixture.main()
