#!/usr/bin/env python3
"""Runs that something happens to: a rank killed or stopped, bad rows that one rank alone reads, a loss that is no number, files
that cannot be written. The job ends as a whole, with one message and the right exit code.

  test_faults.py TRAINER STOP_AT.so"""
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import time

import fixture
import launch
from fixture import Rows, events, rank_processes

TRAINING = ["config.yaml", "train.steps=100000000"]  # until something happens


class Disturbed(fixture.RunTest):
    """A job of three ranks in mid-training."""
    ranks, args = 3, []

    def start(self, *more):
        self.write("config.yaml", fixture.SYNTHETIC)
        with open(self.path("out"), "w") as out, open(self.path("err"), "w") as err:
            job = subprocess.Popen(["mpirun", "-n", str(self.ranks), self.trainer] + TRAINING + self.args + list(more), cwd=self.folder, stdout=out, stderr=err,
                                   stdin=subprocess.DEVNULL, env=dict(os.environ, OMP_NUM_THREADS="1"))
        self.addCleanup(job.wait)
        self.addCleanup(job.terminate)
        deadline = time.monotonic() + launch.PATIENCE
        while not os.path.exists(self.path("run.jsonl")) or b'"step":20,' not in self.file_bytes("run.jsonl"):
            self.assertIsNone(job.poll(), self.file_bytes("err"))
            self.assertLess(time.monotonic(), deadline, "no training")
            time.sleep(0.05)
        ranks = rank_processes(job.pid)
        self.assertEqual(sorted(ranks), list(range(self.ranks)))
        return job, ranks

    def ends(self, job, ranks):
        """The exit status; no rank is left. How long that took depends on how busy the machine is: a few seconds."""
        end = time.monotonic() + launch.PATIENCE
        try:
            status = job.wait(timeout=launch.PATIENCE)
        except subprocess.TimeoutExpired:
            for pid in ranks.values():
                os.kill(pid, signal.SIGKILL)
            self.fail("still there:\n%s" % self.file_bytes("err").decode())
        for rank, pid in ranks.items():
            while os.path.exists("/proc/%d" % pid) and time.monotonic() < end:
                time.sleep(0.05)
            self.assertFalse(os.path.exists("/proc/%d" % pid), "rank %d is still there" % rank)
        return status

    def killed(self, rank):
        job, ranks = self.start()
        os.kill(ranks[rank], signal.SIGKILL)
        self.assertNotEqual(self.ends(job, ranks), 0)

    def test_killed_rank(self):
        self.killed(1)

    def test_killed_rank_0(self):
        self.killed(0)

    def test_killed_launcher(self):
        job, ranks = self.start()
        job.kill()
        self.ends(job, ranks)  # no rank is left to train on

    def test_stopped_rank(self):
        job, ranks = self.start("parallel.timeout_s=3")
        os.kill(ranks[1], signal.SIGSTOP)
        self.assertNotEqual(self.ends(job, ranks), 0)
        err = self.file_bytes("err").decode()
        self.one_message(err, r"timeout_s")
        self.one_message(err, r"^dlrm-train: rank 0: an? [a-z -]+ has waited longer than parallel\.timeout_s \(3 s\); another rank has "
                              r"stopped or died$|^dlrm-train: rank 0: the step's pulse has waited")


    def test_stopped_job(self):
        """All ranks at once, as by Ctrl-Z or a scheduler, for longer than the timeout: it goes on."""
        job, ranks = self.start("parallel.timeout_s=4")
        for pid in ranks.values():
            os.kill(pid, signal.SIGSTOP)
        time.sleep(8)
        before = self.file_bytes("run.jsonl").count(b"\n")
        for pid in ranks.values():
            os.kill(pid, signal.SIGCONT)
        deadline = time.monotonic() + launch.PATIENCE
        while self.file_bytes("run.jsonl").count(b"\n") < before + 5:
            self.assertIsNone(job.poll(), self.file_bytes("err"))
            self.assertLess(time.monotonic(), deadline, "no training")
            time.sleep(0.05)


class StoppedEarlyOrLate(fixture.RunTest):
    """One of three ranks stands still outside of the training."""
    stop_at = None

    def stopped(self, rank, at, pattern, *args, **more):
        if fixture.SANITIZED:
            self.skipTest("a preloaded library")
        self.write("config.yaml", fixture.SYNTHETIC)
        env = dict(os.environ, OMP_NUM_THREADS="1", STOP_AT=at, STOP_RANK=str(rank), STOP_SIGNAL="STOP", **more)  # Open MPI 4 can hang as it ends them with launch.AT_ONCE
        start = time.monotonic()
        job = subprocess.Popen(["mpirun", "-n", "3", "env", "LD_PRELOAD=" + self.stop_at, self.trainer, "config.yaml", "train.steps=5"] + list(args),
                               cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=env)
        self.addCleanup(job.kill)
        _, err = job.communicate(timeout=launch.PATIENCE)
        self.assertNotEqual(job.returncode, 0)
        self.one_message(err, pattern)
        self.assertEqual(rank_processes(job.pid), {})
        return time.monotonic() - start

    def test_before_mpi(self):
        self.stopped(1, "MPI_Init_thread", r"^dlrm-train: rank 0: the start of MPI has waited longer than DLRM_START_TIMEOUT_S \(4 s\)",
                     DLRM_START_TIMEOUT_S="4")

    def test_before_the_config_is_read(self):
        """The others have read it, and know its timeout."""
        took = self.stopped(1, "config.yaml", r"^dlrm-train: rank 0: an agreement has waited longer than parallel\.timeout_s \(3 s\)",
                            "parallel.timeout_s=3")
        self.assertLess(took, 200)  # not the 300 s that hold before

    def test_at_the_end(self):
        self.stopped(2, "MPI_Finalize", r"^dlrm-train: rank 0: the end of MPI has waited longer than parallel\.timeout_s \(3 s\)", "parallel.timeout_s=3")

    def test_bad_setting(self):
        self.write("config.yaml", fixture.SYNTHETIC)
        for text in ("", "soon", "0", "nan", "1e10"):
            with self.subTest(text):
                done = subprocess.run([self.trainer, "config.yaml"], cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                      env=dict(os.environ, DLRM_START_TIMEOUT_S=text))
                self.assertEqual(done.returncode, 2, done.stderr)
                self.one_message(done.stderr, r'^dlrm-train: DLRM_START_TIMEOUT_S: found "%s", expected a number of seconds from 0\.001 to 1e\+09$' % text)


class DifferentFiles(fixture.RunTest):
    """Two ranks whose working folders, as on two hosts, have files of the same names."""

    def setUp(self):
        super().setUp()
        self.make_data()
        self.rank_0, self.rank_1 = self.folder, self.path("other")
        os.mkdir(self.rank_1)
        for name in ("config.yaml", "data"):
            (shutil.copytree if name == "data" else shutil.copy)(self.path(name), self.path("other", name))

    def run_both(self, *args):
        command = [self.trainer, "config.yaml"] + list(args)
        return subprocess.run(["mpirun", "-n", "1", "-wdir", self.rank_0] + command + [":", "-n", "1", "-wdir", self.rank_1] + command,
                              cwd=self.folder, timeout=launch.PATIENCE, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, env=dict(os.environ, OMP_NUM_THREADS="1", **launch.AT_ONCE))

    def refused(self, pattern, *args):
        done = self.run_both(*args)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.one_message(done.stderr, pattern)
        self.assertNotIn("step 1/", done.stdout)

    def edit(self, name, before, after):
        with open(self.path("other", name)) as f:
            text = f.read()
        self.assertIn(before, text)
        self.write(os.path.join("other", name), text.replace(before, after))

    def test_same(self):
        done = self.run_both()
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_config(self):
        """Every rank's config is rank 0's."""
        original = self.file_bytes("config.yaml").decode()
        for before, after, message in (
                ("{batch_size: 16}", "{batch_size: 16, seed: 2}", r"^config\.yaml:\d+:\d+: train\.seed: is 2 on rank 1, but 1 on rank 0; expected the same config on all$"),
                ("rows: 50}", "rows: 51}", r'^config\.yaml:\d+:\d+: model\.tables: number 0 is \["user",51,4\] on rank 1, but \["user",50,4\] on rank 0; expected the '
                                           r"same on all$"),
                ("history, user]", "history, {table: user, combiner: mean}]", r"model\.features: number 3 is .+ on rank 1, but .+ on rank 0; expected the same on all$")):
            self.edit("config.yaml", before, after)
            self.refused(message)
            self.refused(message, "--check")
            self.write("other/config.yaml", original)

    def test_data(self):
        for split, n in (("train", 119), ("test", 71)):
            shutil.rmtree(self.path("other", "data", split))
            Rows(n, 1).write(self.path("other", "data", split))
            self.refused(r"^config\.yaml:\d+:\d+: data\.path: has %d %s rows on rank 1, but %d on rank 0; expected the same data on all$" %
                         ((n, "training", 120) if split == "train" else (n, "test", 70)))
            shutil.rmtree(self.path("other", "data", split))
            shutil.copytree(self.path("data", split), self.path("other", "data", split))

    def test_written_folders(self):
        """Said before a step is trained, be the other rank's folder there or not."""
        for key in ("checkpoint.path", "checkpoint.export"):
            message = r"^%s: rank 1 cannot see what rank 0 writes to out, or not write there itself \(No such file or directory\); all ranks need the same file " \
                      r"system$" % re.escape(key)
            self.refused(message, key + "=out")
            os.mkdir(self.path("other", "out"))
            self.refused(message, key + "=out")
            self.assertEqual([name for folder in ("out", "other/out") for name in os.listdir(self.path(folder)) if name != ".lock"], [])
            shutil.rmtree(self.path("out"))
            shutil.rmtree(self.path("other", "out"))

    def test_weights(self):
        """Of two trainings, exported or saved under the same name: neither is scored, let alone a mixture."""
        train = ["config.yaml", "checkpoint.export=weights", "checkpoint.path=ckpt"]
        self.succeed(1, *train)
        for name in ("weights", "ckpt"):
            shutil.copytree(self.path(name), self.path("other", name))
        for args in (["checkpoint.init_from=weights"], ["checkpoint.path=ckpt"]):
            self.assertEqual(self.run_both("--eval", *args).returncode, 0)
        for name in ("weights", "ckpt"):
            shutil.rmtree(self.path(name))
        self.succeed(1, *train, "train.seed=2")
        message = r"^%s: rank 1 read other weights there than rank 0; expected the same files on all$"
        self.refused(message % "weights", "checkpoint.init_from=weights", "--eval")
        self.refused(message % "ckpt/step_000000008", "checkpoint.path=ckpt", "--eval")
        self.refused(message % "weights", "checkpoint.init_from=weights")

    def test_predictions(self):
        self.succeed(1, "config.yaml", "checkpoint.export=weights")
        shutil.copytree(self.path("weights"), self.path("other", "weights"))
        args = ["train.deterministic=true", "checkpoint.init_from=weights", "--predict", "p.npy"]
        self.refused(r"^--predict: p\.npy: cannot open what rank 0 made \(not a shared file system\?\): No such file or directory$", *args)
        self.succeed(1, "config.yaml", *args)
        shutil.copy(self.path("p.npy"), self.path("other"))
        self.refused(r"^--predict: p\.npy: found another file than rank 0 made; expected a folder on a shared file system$", *args)
        self.assertEqual(self.run_both(*args[:-1], self.path("p.npy")).returncode, 0)
        self.assertEqual(self.file_bytes("p.npy"), self.file_bytes("other", "p.npy"))


class BadRows(fixture.RunTest):
    """120 rows in batches of 45 on three ranks: the third batch is rows 90 to 119, ten for each rank."""
    ranks, args = 3, ["config.yaml", "train.batch_size=45", "checkpoint.export=out"]

    def spoil(self, rows):
        rows.write(self.path("data", "train"))

    def refused(self, pattern):
        done = self.refuse(self.ranks, 1, pattern, *self.args)
        self.assertEqual([e["step"] for e in events(self.path("run.jsonl"), "step")], [1, 2])
        self.assertEqual(events(self.path("run.jsonl"), "end"), [])
        self.assertFalse(os.path.exists(self.path("out", "model.safetensors")))
        self.assertEqual(sum("train/" in line for line in done.stderr.splitlines()), 1, done.stderr)

    def test_label(self):
        rows = self.make_data()["train"]
        rows.labels[118] = 2
        self.spoil(rows)
        self.refused(r"^data/train/label\.bin: row 118: label 2 is neither 0 nor 1$")

    def test_dense(self):
        rows = self.make_data()["train"]
        rows.dense[101, 2] = float("nan")
        self.spoil(rows)
        self.refused(r"^data/train/dense\.bin: row 101: value -?nan in column 2 is not finite$")

    def test_id(self):
        for feature, bad in ((1, 30), (2, -1)):
            rows = self.make_data()["train"]
            name, table = fixture.FEATURES[feature][:2]
            at = rows.offsets[feature]
            row = next(r for r in range(93, 120) if at[r + 1] > at[r])
            rows.ids[feature][at[row]] = bad
            self.spoil(rows)
            self.refused(r"^data/train/%s\.bin: row %d: id %d is outside \[0, %d\) of table %s$" %
                         (name, row, bad, fixture.TABLES[table], table))

    def test_save_under_way(self):
        """The checkpoint of the step before, which a thread is writing, becomes complete all the same."""
        rows = self.make_data()["train"]
        rows.labels[118] = 2
        self.spoil(rows)
        self.args = self.args + ["checkpoint.path=ckpt", "checkpoint.every_steps=1"]
        self.refused(r"^data/train/label\.bin: row 118: label 2 is neither 0 nor 1$")
        self.assertEqual(sorted(os.listdir(self.path("ckpt"))), [".lock", "step_000000001", "step_000000002"])

    def test_two_ranks_at_once(self):
        """Each of two ranks has a bad row of the same batch: one message all the same."""
        rows = self.make_data()["train"]
        rows.labels[[101, 118]] = 2
        self.spoil(rows)
        self.refused(r"^data/train/label\.bin: row 101: label 2 is neither 0 nor 1$")

    def test_evaluation(self):
        rows = self.make_data()["test"]
        rows.labels[69] = 7
        rows.write(self.path("data", "test"))
        self.refuse(3, 1, r"^data/test/label\.bin: row 69: label 7 is neither 0 nor 1$", *self.args)
        self.assertFalse(os.path.exists(self.path("out", "model.safetensors")))

    def test_clamp(self):
        """Ids outside are row 0, and are counted."""
        rows = self.make_data()["train"]
        rows.ids[1][[5, 90, 300]] = 0
        self.spoil(rows)
        self.succeed(3, *self.args)
        wanted = self.file_bytes("out", "model.safetensors")
        rows.ids[1][[5, 90, 300]] = [30, -1, 32767]
        self.spoil(rows)
        done = self.succeed(3, *self.args, "data.index_check=clamp")
        self.assertEqual(self.file_bytes("out", "model.safetensors"), wanted)
        self.one_message(done.stderr, r"warning: 3 ids were outside their tables and read row 0 \(data\.index_check: clamp\)")
        end = events(self.path("run.jsonl"), "end")[0]
        self.assertEqual(sum(r["clamped_ids"] for r in end["per_rank"]), 3)
        self.assertEqual(max(r["clamped_ids"] for r in end["per_rank"]), 3)  # the rank that has the table


class NotANumber(fixture.RunTest):
    def check(self, every, *more):
        self.make_data()
        self.refuse(2, 3, r"^dlrm-train: step \d+: the loss is -?(nan|inf)( \(first in rank \d's samples\))?; nothing is saved\. ", "config.yaml", "train.steps=400",
                    "optimizer={dense: {name: sgd, learning_rate: 1e6}, embedding: {name: sgd, learning_rate: 1e6}}",
                    "log.every_steps=%d" % every, "checkpoint.export=out", "eval.every_epoch=false", *more)
        self.assertFalse(os.path.exists(self.path("out", "model.safetensors")))
        text = self.file_bytes("run.jsonl")
        self.assertNotIn(b"nan", text.lower())
        steps = events(self.path("run.jsonl"), "step")
        self.assertIsNone(steps[-1]["loss"])
        self.assertIsNone(steps[-1]["loss_mean"])
        self.assertEqual(events(self.path("run.jsonl"), "end"), [])
        return steps

    def test_seen_at_once(self):
        steps = self.check(1)
        self.assertTrue(all(isinstance(s["loss"], float) for s in steps[:-1]))

    def test_seen_within_every_steps(self):
        self.assertEqual(self.check(10)[-1]["step"] % 10, 0)

    def test_seen_without_lines(self):
        self.assertLessEqual(self.check(0)[-1]["step"], 256)


class Unwritable(fixture.RunTest):
    """Refused before a step is trained, and nothing that was there is lost. (A path below a file fails for root, too.)"""

    def refused(self, pattern, *args):
        done = self.refuse(2, 1, pattern, "config.yaml", *args)
        self.assertNotIn("step ", done.stdout)

    def test_log(self):
        self.make_data()
        self.succeed(2, "config.yaml", "checkpoint.export=out")
        before = self.file_bytes("out", "model.safetensors")
        self.refused(r'^command line: log\.jsonl: cannot create "absent/run\.jsonl": No such file or directory$',
                     "log.jsonl=absent/run.jsonl", "checkpoint.export=out", "train.seed=2")
        self.refused(r"log\.jsonl: cannot create \"config\.yaml/x\": Not a directory", "log.jsonl=config.yaml/x")
        self.assertEqual(self.file_bytes("out", "model.safetensors"), before)

    def test_export(self):
        self.make_data()
        self.succeed(2, "config.yaml")
        before = self.file_bytes("run.jsonl")
        self.refused(r"config\.yaml/out.*Not a directory", "checkpoint.export=config.yaml/out")
        self.assertEqual(self.file_bytes("run.jsonl"), before)

    def test_log_over_something_else(self):
        """A file that is no log is not replaced, nor appended to; an empty one and one that was cut off are."""
        self.make_data()
        self.succeed(2, "config.yaml", "checkpoint.path=ckpt", "train.steps=3")
        files = ["config.yaml", "data/train/label.bin", "data/feature_spec.yaml", "ckpt/step_000000003/../../config.yaml"]
        self.write("other.jsonl", '{"name":"not of this program"}\n')
        for name in files + ["other.jsonl"]:
            for args in ([], ["checkpoint.path=ckpt"], ["checkpoint.path=ckpt", "--eval"]):
                before = self.file_bytes(name)
                self.refuse(2, 1, r'^command line: log\.jsonl: found "%s", a file that is no log; expected a log of events, an empty file, or a name '
                            r"for a new one$" % re.escape(name), "config.yaml", "log.jsonl=" + name, *args)
                self.assertEqual(self.file_bytes(name), before)
        for text in ("", '{"ev', '{"event":"start"'):
            self.write("cut.jsonl", text)
            self.succeed(1, "config.yaml", "log.jsonl=cut.jsonl")
            self.assertEqual(events(self.path("cut.jsonl"))[-1]["event"], "end")

    def test_log_into_a_pipe(self):
        """Which somebody reads; a reader that leaves ends the log alone."""
        self.make_data()
        os.mkfifo(self.path("pipe"))
        self.refused(r'^command line: log\.jsonl: found "pipe", a pipe that nobody reads; expected a file, or a reader first$', "log.jsonl=pipe")
        for reads in (["cat"], ["head", "-n", "1"]):
            with open(self.path("copy"), "w") as copy:
                reader = subprocess.Popen(reads + [self.path("pipe")], stdout=copy)
            self.addCleanup(reader.kill)
            writer = None
            while writer is None:
                try:
                    writer = os.open(self.path("pipe"), os.O_WRONLY | os.O_NONBLOCK)
                except OSError:
                    time.sleep(0.02)  # it is about to
            done = self.succeed(2, "config.yaml", "log.jsonl=pipe", "train.epochs=30")
            os.close(writer)
            reader.wait(timeout=launch.PATIENCE)
            kinds = [e["event"] for e in events(self.path("copy"))]
            self.assertEqual((kinds[0], kinds[-1]), ("start", "end" if reads == ["cat"] else "start"))
            self.assertEqual("pipe: cannot write (Broken pipe); the log ends here" in done.stderr, reads != ["cat"], done.stderr)

    def test_log_into_what_is_open(self):
        """A file that stdout, stderr or another descriptor was redirected to has all events, and keeps what else is written there."""
        self.make_data()
        for redirection, path in ((">> all", "/dev/stdout"), ("2>> all", "/dev/stderr"), ("3>> all", "/dev/fd/3"), ("3>> all", "/proc/self/fd/3"),
                                  ("> all", "/dev/stdout")):
            with self.subTest(path=path, redirection=redirection):
                self.write("all", "before\n")
                done = subprocess.run(["bash", "-c", '"$@" ' + redirection, "-", self.trainer, "config.yaml", "log.jsonl=" + path], cwd=self.folder,
                                      timeout=launch.PATIENCE, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                lines = self.file_bytes("all").decode().splitlines()
                kinds = [json.loads(line)["event"] for line in lines if line.startswith("{")]
                self.assertEqual((kinds[0], kinds[-1], "step" in kinds), ("start", "end", True))
                self.assertEqual(lines[0] == "before", ">>" in redirection)
                text = "\n".join(line for line in lines if not line.startswith("{")) if path == "/dev/stdout" else done.stdout
                self.assertRegex(text, r"(?m)^step ")
                self.assertRegex(text, r"(?m)^peak memory of a rank: ")
        self.write("open", "as it was\n")
        done = subprocess.run(["bash", "-c", '"$@" 3< open', "-", self.trainer, "config.yaml", "log.jsonl=/dev/fd/3"], cwd=self.folder,
                              timeout=launch.PATIENCE, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.assertEqual((done.returncode, done.stderr), (1, 'command line: log.jsonl: found "/dev/fd/3", which is open to be read; expected one to '
                                                             'be written\n'))
        self.assertEqual(self.file_bytes("open"), b"as it was\n")

    def test_log_onto_a_disk(self):
        self.make_data()
        try:
            os.mknod(self.path("disk"), 0o600 | stat.S_IFBLK, os.makedev(7, 250))  # a loop device that is not there
        except PermissionError:
            self.skipTest("only root makes devices")
        self.refused(r'log\.jsonl: found "disk", a disk; expected a file on one$', "log.jsonl=disk")

    def test_nobody_reads_stdout(self):
        self.make_data()
        job = subprocess.Popen([self.trainer, "config.yaml", "train.epochs=200", "checkpoint.export=out"], cwd=self.folder, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        job.stdout.readline()
        job.stdout.close()
        _, err = job.stderr.read(), job.stderr.close()
        self.assertEqual(job.wait(timeout=launch.PATIENCE), 0, err)
        self.assertEqual(events(self.path("run.jsonl"))[-1]["why"], "finished")

    def test_closed_stdout(self):
        """And stdin, and stderr, from the start: nothing that is opened comes in their place, to be written into."""
        self.write("config.yaml", fixture.SYNTHETIC)
        job = subprocess.Popen(["bash", "-c", 'exec "$@" <&- >&- 2>&-', "-", self.trainer] + TRAINING, cwd=self.folder)
        self.addCleanup(job.kill)
        deadline = time.monotonic() + launch.PATIENCE
        while not os.path.exists(self.path("run.jsonl")) or b'"step":20,' not in self.file_bytes("run.jsonl"):
            self.assertIsNone(job.poll())
            self.assertLess(time.monotonic(), deadline, "no training")
            time.sleep(0.05)
        self.assertEqual([os.readlink("/proc/%d/fd/%d" % (job.pid, fd)) for fd in range(3)], 3 * ["/dev/null"])
        job.send_signal(signal.SIGUSR1)
        self.assertEqual(job.wait(timeout=launch.PATIENCE), 128 + signal.SIGUSR1)
        done = subprocess.run(["bash", "-c", 'exec "$@" <&- >&-', "-", self.trainer, "--version"], stderr=subprocess.PIPE, text=True)
        self.assertEqual((done.returncode, done.stderr), (3, "dlrm-train: stdout: could not be written in full\n"))

    def test_pipes_in_the_place_of_files(self):
        """Are refused, not waited for."""
        self.make_data()
        self.succeed(2, "config.yaml", "checkpoint.export=out", "checkpoint.path=ckpt")
        os.mkfifo(self.path("pipe"))
        for args in (["pipe"], ["pipe", "--check"], ["config.yaml", "checkpoint.init_from=out", "checkpoint.name_map=pipe"]):
            self.refuse(2, 1, r"^pipe: found a pipe, expected a file$", *args)
        self.refuse(2, 1, r"^--predict: pipe: found a pipe, expected a file, or a name for a new one$", "config.yaml", "checkpoint.init_from=out",
                    "--predict", "pipe")
        self.refuse(2, 1, r"^pipe: not a regular file$", "config.yaml", "checkpoint.init_from=pipe")
        self.refuse(2, 1, r'checkpoint\.resume: found "pipe", which is no checkpoint', "config.yaml", "checkpoint.resume=pipe")
        for key in ("checkpoint.path", "checkpoint.export"):
            self.refuse(2, 1, r"^command line: %s: pipe: not a folder$" % re.escape(key), "config.yaml", key + "=pipe")
        self.refuse(2, 1, r'data\.path: found "pipe", a file; expected a folder of data', "config.yaml", "data.path=pipe")
        for name in ("ckpt/step_000000008/manifest.json", "ckpt/step_000000008/rank_00001.safetensors", "data/feature_spec.yaml", "data/train/label.bin",
                     "data/train/tags.bin", "data/train/history.offsets.bin"):
            os.rename(self.path(name), self.path("kept"))
            os.mkfifo(self.path(name))
            self.refuse(2, 1, "^%s: (not a file of|found a pipe, expected a file|has 0 bytes, expected \\d+ by)" % re.escape(name), "config.yaml", "checkpoint.path=ckpt")
            os.rename(self.path("kept"), self.path(name))

    def test_full_disk_under_the_log(self):
        """Training is worth more than its log."""
        self.make_data()
        done = self.succeed(2, "config.yaml", "log.jsonl=/dev/full", "checkpoint.export=out")
        self.one_message(done.stderr, r"warning: /dev/full: cannot write \(No space left on device\); the log ends here")
        self.assertTrue(os.path.exists(self.path("out", "model.safetensors")))


if __name__ == "__main__":
    StoppedEarlyOrLate.stop_at = os.path.abspath(sys.argv.pop(2))
    fixture.main()
