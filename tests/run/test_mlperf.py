#!/usr/bin/env python3
"""log.mlperf: MLPerf's lines, held to the rules of its training benchmarks on keys, their number and order."""
import json
import os
import signal
import subprocess
import time
import unittest

import fixture
import launch
from fixture import events

PREFIX = ":::MLLOG "
FIELDS = ["namespace", "time_ms", "event_type", "key", "value", "metadata"]
# of DLRM-DCNv2, each exactly once
ONCE = ["init_stop", "run_start", "run_stop", "submission_benchmark", "train_samples", "eval_samples", "global_batch_size",
        "gradient_accumulation_steps", "opt_name", "opt_base_learning_rate", "opt_adagrad_learning_rate_decay", "opt_weight_decay",
        "opt_adagrad_initial_accumulator_value", "opt_adagrad_epsilon", "opt_learning_rate_warmup_steps",
        "opt_learning_rate_decay_start_step", "opt_learning_rate_decay_steps"]
DCN = ("model.interaction=dcn", "model.cross={layers: 1, rank: 2}")


class MLPerf(fixture.RunTest):
    def lines(self, name="m.log"):
        with open(self.path(name)) as f:
            text = f.read().splitlines()
        self.assertTrue(text and all(line.startswith(PREFIX) for line in text), text)
        out = [json.loads(line[len(PREFIX):]) for line in text]
        for line in out:
            self.assertEqual(list(line), FIELDS)
            start, end = line["key"].endswith("_start"), line["key"].endswith("_stop")
            self.assertEqual(line["event_type"], "INTERVAL_START" if start else "INTERVAL_END" if end else "POINT_IN_TIME")
            self.assertLess(abs(line["time_ms"] - 1e3 * time.time()), 3600e3)
            self.assertIsInstance(line["time_ms"], int)
        times = [line["time_ms"] for line in out]
        self.assertEqual(times, sorted(times))
        return out

    def train(self, ranks, *args, code=0):
        done = self.run_trainer(ranks, "config.yaml", "log.mlperf=m.log", *args)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return self.lines()

    @staticmethod
    def spans(lines):
        """The keys of intervals and evaluations, in order."""
        return [line["key"] for line in lines if line["event_type"] != "POINT_IN_TIME" or line["key"] == "eval_accuracy"]

    def status(self, lines):
        stop, = [line for line in lines if line["key"] == "run_stop"]
        self.assertIs(stop, lines[-1])
        return stop["metadata"]["status"]

    def test_a_run(self):
        self.make_data()  # 120 rows: 8 batches
        begun = 1e3 * time.time() - 1
        lines = self.train(2, "train.epochs=2", "eval.every_steps=4", "log.every_steps=5", "optimizer.embedding.learning_rate=0.05", *DCN)
        keys = [line["key"] for line in lines]
        value = {line["key"]: line["value"] for line in lines}
        for key in ONCE:
            self.assertEqual(keys.count(key), 1, key)
        for key, expected in (("submission_benchmark", "dlrm_dcnv2"), ("train_samples", 120), ("eval_samples", 70), ("global_batch_size", 16),
                              ("gradient_accumulation_steps", 1), ("seed", 1), ("opt_name", "adagrad"), ("opt_base_learning_rate", 0.05),
                              ("opt_adagrad_initial_accumulator_value", 0), ("opt_adagrad_epsilon", 1e-10), ("opt_weight_decay", 0),
                              ("opt_adagrad_learning_rate_decay", 0), ("opt_learning_rate_warmup_steps", 0)):
            self.assertEqual(value[key], expected, key)
        self.assertTrue(all(line["metadata"] == {} for line in lines if line["key"].startswith("opt_")))
        self.assertGreaterEqual(lines[0]["time_ms"], begun)
        one = ["eval_start", "eval_accuracy", "eval_stop"]
        self.assertEqual(self.spans(lines), ["init_start", "init_stop", "run_start"] + 2 * (["epoch_start"] + one + ["epoch_stop"] + one) + ["run_stop"])
        self.assertEqual([line["metadata"]["epoch_num"] for line in lines if line["key"] in ("epoch_start", "epoch_stop")], [1, 1, 2, 2])
        said = events(self.path("run.jsonl"), "eval")
        for key in one:
            self.assertEqual([line["metadata"] for line in lines if line["key"] == key],
                             [{"epoch_num": n / 2, "samples_count": s, "step_num": 4 * n} for n, s in zip((1, 2, 3, 4), (64, 120, 184, 240))])
        self.assertEqual([line["value"] for line in lines if line["key"] == "eval_accuracy"], [e["auc"] for e in said])
        self.assertEqual([(line["metadata"]["step_num"], line["value"]["throughput"]) for line in lines if line["key"] == "tracked_stats"],
                         [(e["step"], e["samples_per_s"]) for e in events(self.path("run.jsonl"), "step")])
        self.assertEqual(self.status(lines), "success")

    def test_settings(self):
        """Other rules and schedules, tables with a rule of their own, and models that are no benchmark."""
        self.make_data()
        lines = self.train(1, "train.steps=3", "optimizer={dense: {name: sgd, learning_rate: 2, momentum: 0.5}, embedding: {name: adam, learning_rate: 0.1}, "
                           "schedule: {warmup_steps: 2, decay_start_step: 3, decay_steps: 4, decay_power: 1}}", "model.interaction=cat", "eval.max_samples=20")
        got = {line["key"]: (line["value"], line["metadata"]) for line in lines}
        for key, expected in (("opt_name", ("sgd", {"embedding": "adam"})), ("opt_base_learning_rate", (2, {"embedding": 0.1})),
                              ("sgd_opt_base_learning_rate", (2, {})), ("sgd_opt_momentum", (0.5, {})),
                              ("sgd_opt_learning_rate_decay_poly_power", (1, {})), ("sgd_opt_learning_rate_decay_steps", (4, {})),
                              ("lr_decay_start_steps", (3, {})), ("opt_learning_rate_warmup_steps", (2, {})),
                              ("opt_learning_rate_decay_start_step", (3, {})), ("opt_learning_rate_decay_steps", (4, {})), ("eval_samples", (20, {}))):
            self.assertEqual(got[key], expected, key)
        self.assertNotIn("submission_benchmark", got)
        # the training ends within its first epoch
        self.assertEqual(self.spans(lines)[-6:], ["epoch_start", "eval_start", "eval_accuracy", "eval_stop", "epoch_stop", "run_stop"])
        lines = self.train(1, "train.steps=1", "optimizer={dense: {name: adam, learning_rate: 0.1}, embedding: {name: adam, learning_rate: 0.1, beta2: 0.9}}")
        got = {line["key"]: (line["value"], line["metadata"]) for line in lines}
        self.assertEqual([got["opt_adam_" + key] for key in ("beta_1", "beta_2", "epsilon")], [(0.9, {}), (0.999, {"embedding": 0.9}), (1e-8, {})])
        self.assertEqual(got["submission_benchmark"], ("dlrm", {}))

    def test_status(self):
        self.make_data()
        self.assertEqual(self.status(self.train(2, "eval.target_auc=0.001", "eval.every_steps=2", "train.epochs=9")), "success")
        self.assertEqual(self.status(self.train(2, "eval.target_auc=1")), "aborted")
        lines = self.train(2, "optimizer={dense: {name: sgd, learning_rate: 1e6}, embedding: {name: sgd, learning_rate: 1e6}}", "train.epochs=50",
                           "eval.every_epoch=false", code=3)
        self.assertEqual(self.status(lines), "aborted")
        self.assertEqual(self.spans(lines).count("epoch_start"), self.spans(lines).count("epoch_stop"))

    def test_signal(self):
        self.write("config.yaml", fixture.SYNTHETIC)
        with subprocess.Popen([self.trainer, "config.yaml", "log.mlperf=m.log", "train.steps=1000000000"], cwd=self.folder, stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as job:
            self.addCleanup(job.kill)
            deadline = time.monotonic() + launch.PATIENCE
            while not os.path.exists(self.path("m.log")) or b"tracked_stats" not in self.file_bytes("m.log"):
                self.assertLess(time.monotonic(), deadline, "no training")
                time.sleep(0.02)
            job.send_signal(signal.SIGTERM)
            self.assertEqual(job.wait(timeout=launch.PATIENCE), 128 + signal.SIGTERM)
        self.assertEqual(self.status(self.lines()), "aborted")

    def test_goes_on(self):
        """A resumed run's lines come behind those of the run before, an evaluation alone adds none, a fresh run replaces all."""
        self.make_data()
        first = self.train(2, "checkpoint.path=ckpt", "train.steps=3")
        self.assertEqual(self.status(first), "success")
        lines = self.train(1, "checkpoint.path=ckpt", "train.epochs=1")
        self.assertEqual(lines[:len(first)], first)
        self.assertEqual(self.spans(lines[len(first):]), ["init_start", "init_stop", "run_start", "epoch_start", "epoch_stop", "eval_start", "eval_accuracy",
                                                         "eval_stop", "run_stop"])
        self.assertEqual(self.train(1, "checkpoint.path=ckpt", "--eval"), lines)
        self.assertEqual([line["key"] for line in self.train(1)].count("run_start"), 1)

    def test_refused(self):
        """Nothing is lost: neither a file of something else nor the logs of a run before."""
        self.make_data()
        self.train(1)
        logs = [self.file_bytes(name) for name in ("run.jsonl", "m.log")]
        for name in ("config.yaml", "data/feature_spec.yaml"):
            before = self.file_bytes(name)
            self.refuse(2, 1, r'^command line: log\.mlperf: found "%s", a file that is no log; expected a log of MLPerf\'s lines, an empty file, or a name '
                        r"for a new one$" % name, "config.yaml", "log.mlperf=" + name)
            self.assertEqual(self.file_bytes(name), before)
        self.refuse(1, 1, r'log\.mlperf: found "run\.jsonl", a file that is no log', "config.yaml", "log.mlperf=run.jsonl")
        self.refuse(1, 1, r'log\.jsonl: found "m\.log", a file that is no log; expected a log of events', "config.yaml", "log.jsonl=m.log")
        self.refuse(1, 1, r'log\.mlperf: found "\./new", the file of log\.jsonl, expected another one$', "config.yaml", "log.jsonl=new", "log.mlperf=./new")
        self.refuse(1, 1, r'log\.mlperf: cannot create "absent/m": No such file or directory$', "config.yaml", "log.mlperf=absent/m")
        self.refuse(1, 1, r"log\.tensorboard: ", "config.yaml", "log.mlperf=m.log", "log.tensorboard=config.yaml")
        self.assertEqual([self.file_bytes(name) for name in ("run.jsonl", "m.log")], logs)

    @unittest.skipUnless(os.path.exists("/dev/full"), "no /dev/full")
    def test_disk_full(self):
        self.make_data()
        done = self.succeed(2, "config.yaml", "log.mlperf=/dev/full")
        self.one_message(done.stderr, r"warning: /dev/full: cannot write \(No space left on device\); the log ends here")
        self.assertEqual(events(self.path("run.jsonl"))[-1]["event"], "end")

    def test_both_into_stdout(self):
        self.make_data()
        text = self.succeed(1, "config.yaml", "log.jsonl=/dev/stdout", "log.mlperf=/dev/stdout").stdout.splitlines()
        self.assertEqual([sum(line.startswith(start) for line in text) > 5 for start in (PREFIX, '{"event":')], [True, True])


fixture.main()
