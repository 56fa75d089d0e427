#!/usr/bin/env python3
"""--plan N: one process says what N ranks would hold, send and take; and N ranks agree."""
import os
import re
import subprocess
import threading
import time

import fixture
import launch
import test_work
from fixture import events

CONFIG = test_work.SYNTHETIC.replace("{batch_size: 1001}", "{batch_size: 1001, steps: 2}") + "eval: {every_epoch: false}\n"


class Plan(fixture.RunTest):
    def setUp(self):
        super().setUp()
        self.write("config.yaml", CONFIG)

    def plan(self, ranks, *args, status=0):
        done = subprocess.run([self.trainer, "config.yaml", "--plan", str(ranks), *args], cwd=self.folder, timeout=launch.PATIENCE, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, status, done.stderr)
        return done

    def bounded_plan(self, ranks, *args, seconds, mib):
        """The text, of a process that took at most so long and so much memory (with sanitizers ten times that)."""
        slower = 10 if fixture.SANITIZED else 1
        start = time.monotonic()
        with open(self.path("planned"), "w") as out:
            process = subprocess.Popen([self.trainer, "config.yaml", "--plan", str(ranks), *args], cwd=self.folder, stdout=out)
            timer = threading.Timer(slower * seconds, process.kill)
            timer.start()
            _, process.returncode, used = os.wait4(process.pid, 0)
            timer.cancel()
        self.assertEqual(process.returncode, 0, "after %.0f s" % (time.monotonic() - start))
        self.assertLess(used.ru_maxrss / 1024, slower * mib)
        return self.file_bytes("planned").decode()

    def predicted(self, out):
        """Of each rank: tables, MLPs, their sums; and the line that adds them up."""
        lines = out[out.index("\npredicted, ms of a step, "):].splitlines()[3:]
        rows = [[float(x) for x in line.split()[1:]] for line in lines if re.match(r" +\d", line)]
        step = [float(x) for x in re.search(r"\nstep +([\d.]+) ms: the slowest rank's tables ([\d.]+), MLPs and interaction ([\d.]+), their sums ([\d.]+),",
                                            out).groups()]
        self.assertAlmostEqual(step[0], sum(step[1:]), delta=0.003)
        for k in range(3):
            self.assertEqual(step[1 + k], max(row[k] for row in rows))
        return rows, step

    def gpu_memory(self, out):
        """Of each rank: MiB on the GPU, of these the cache, and in the host's memory."""
        lines = out[out.index("\nmemory of tables and optimizer state, MiB\n"):out.index("\npredicted, ")].splitlines()[3:]
        return [[float(x) for x in line.split()[1:]] for line in lines]

    def test_agrees(self):
        """Word for word with --check on as many ranks, and with what a run on them says at its start."""
        cases = [(1, []), (2, ["train.deterministic=true", "optimizer.embedding.name=rowwise_adagrad"]),
                 (3, ["parallel.strategy=memory_optimized", "parallel.row_slice_threshold=400000"]),
                 (4, ["parallel.data_parallel_threshold=8000", "parallel.column_slice_threshold=300000"])]
        for ranks, more in cases[1::2] if fixture.SANITIZED else cases:
            with self.subTest(ranks=ranks, more=more):
                planned = self.plan(ranks, *more).stdout
                checked = self.succeed(ranks, "config.yaml", "--check", *more).stdout
                self.assertTrue(planned.startswith(checked), planned + checked)
                rows, _ = self.predicted(planned)
                self.succeed(ranks, "config.yaml", *more)
                start = events(self.path("run.jsonl"), "start")[0]
                self.assertEqual(len(rows), ranks)
                for row, said in zip(rows, start["per_rank"]):
                    self.assertAlmostEqual(row[0], said["tables_ms"], delta=0.001)

    def test_any_number(self):
        """Far more ranks than this machine could start, in seconds and the memory of a small process; nothing is made or left."""
        before = self.file_bytes("config.yaml")
        for ranks in (100, 4096):
            rows, step = self.predicted(self.bounded_plan(ranks, "checkpoint.path=out", seconds=60, mib=200))
            self.assertEqual(len(rows), ranks)
            self.assertGreater(step[0], 0)
        self.assertEqual(self.file_bytes("config.yaml"), before)
        self.assertRaises(OSError, self.file_bytes, "out")
        self.write("config.yaml", CONFIG.replace("count: 3,", "count: 97,"))  # what is tried has up to 100 slices a rank
        budget = ["device=cuda", "parallel.strategy=auto", "parallel.device_embedding_elements=20000"]
        self.assertEqual(len(self.gpu_memory(self.bounded_plan(4096, *budget, seconds=60, mib=200))), 4096)

    def test_gpus(self):
        """By any build: precisions and devices of another one, too."""
        out = self.plan(2, "device=cuda", "train.precision=bf16").stdout
        self.assertIn("\npredicted, ms of a step, for ranks with an H200 each\n", out)
        on_gpu, on_cpu = self.predicted(out)[1], self.predicted(self.plan(2, "device=cpu").stdout)[1]
        self.assertLess(on_gpu[0], on_cpu[0] / 10)
        small = ["device=cuda", "parallel.device_embedding_elements=%d" % (60000 * 16 + 40000)]
        whole, parted = (self.gpu_memory(self.plan(1, *args).stdout) for args in (["device=cuda"], small))
        self.assertEqual(whole[0][1:], [0, 0])
        gpu, cache, host = parted[0]
        self.assertGreaterEqual(host, 2 * 60000 * 16 * 4 / 2 ** 20 - 0.01)  # the largest table and its state, at least
        self.assertAlmostEqual(gpu - cache + host, whole[0][0], delta=0.03)
        self.assertLessEqual(gpu, 2 * 4 * (60000 * 16 + 40000) / 2 ** 20 + 0.1)  # the MLPs' state besides
        self.assertGreater(self.predicted(self.plan(1, *small).stdout)[1][1], self.predicted(self.plan(1, "device=cuda").stdout)[1][1])

    def test_budget_too_small(self):
        """Refused in a run's words, by the rank that needs most; with as much as they name there is a plan."""
        message = (r"\Acommand line: parallel\.device_embedding_elements: is %d elements a rank; the tables that have to stay on the device, and a "
                   r"cache of the rows that two batches may list, take (\d+)\n\Z")
        for ranks in (1, 2):
            for strategy in ("auto", "memory_balanced"):
                args = ["device=cuda", "parallel.strategy=" + strategy]
                with self.subTest(ranks=ranks, strategy=strategy):
                    done = self.plan(ranks, *args, "parallel.device_embedding_elements=1000", status=1)
                    need = int(re.match(message % 1000, done.stderr).group(1))
                    self.assertEqual(done.stdout, "")
                    if strategy == "auto":
                        continue  # which places tables anew
                    self.assertLess(self.predicted(self.plan(ranks, *args, "parallel.device_embedding_elements=%d" % need).stdout)[1][0], 1000)

    def test_cluster(self):
        """A file says how fast and how large the ranks' machines are."""
        self.write("slow.yaml", "device: cuda\nnetwork_gb_s: 10\n")
        self.write("fast.yaml", "device: cuda\nnetwork_gb_s: 1000\nmemory_gb_s: 8000\ntflops: 2000\n")
        slow, fast = (self.predicted(self.plan(2, "--cluster", name).stdout)[1] for name in ("slow.yaml", "fast.yaml"))
        for k in range(4):
            self.assertGreater(slow[k], fast[k])
        self.assertIn("for ranks as slow.yaml says\n", self.plan(2, "--cluster", "slow.yaml").stdout)
        self.write("tight.yaml", "device: cuda\nmemory_gib: 0.001\n")
        done = self.plan(2, "--cluster", "tight.yaml")
        self.assertRegex(done.stderr, r"\Adlrm-train: warning: no placement of the tables fits 2 ranks of 0\.00 GiB: .* ranks with as much memory each would do")
        self.assertIn("\npredicted, ", done.stdout)
        enough = re.search(r"(\d+) ranks with as much", done.stderr).group(1)
        self.assertEqual(self.plan(enough, "--cluster", "tight.yaml").stderr, "")
        done = self.plan(2, "device=cpu", "--cluster", "slow.yaml", status=1)
        self.assertRegex(done.stderr, r"device: is cpu, but slow\.yaml has device: cuda")

    def test_each_rate(self):
        """Each number of a profile alone, and what it slows down: tables, MLPs or their sums."""
        in_host = "parallel.device_embedding_elements=300000"  # less than the large tables have
        for key, slowed, args in (("memory_gb_s", (True, True, False), []), ("network_gb_s", (True, False, True), ["parallel.strategy=basic"]),
                                  ("network_gb_s", (True, False, True), ["parallel.data_parallel_threshold=1e9"]),  # sums of gradients alone
                                  ("link_gb_s", (True, False, False), [in_host, "parallel.strategy=memory_balanced"]), ("tflops", (False, True, False), [])):
            with self.subTest(key=key, args=args):
                steps = []
                for rate in (1, 100):
                    self.write("rate.yaml", "device: cuda\n%s: %d\n" % (key, rate))
                    steps.append(self.predicted(self.plan(2, "--cluster", "rate.yaml", *args).stdout)[1][1:])
                self.assertEqual(tuple(slow > fast for slow, fast in zip(*steps)), slowed, steps)
                self.assertEqual([same for same, was in zip(steps[1], slowed) if not was], [same for same, was in zip(steps[0], slowed) if not was])
        self.write("small.yaml", "device: cuda\nmemory_gib: 1000\nhost_memory_gib: 0.001\n")
        self.assertEqual(self.plan(1, "--cluster", "small.yaml").stderr, "")
        self.assertRegex(self.plan(1, "--cluster", "small.yaml", in_host, status=1).stderr, r"\(the host has room for 1\d{5} of all\)")

    def test_dense_by_hand(self):
        """MLPs and dot at so many FLOP/s, memory aside; the sums of their gradients, of which a rank sends and gets (R-1)/R each way."""
        self.write("machine.yaml", "device: cpu\nmemory_gb_s: 1e9\nnetwork_gb_s: 1e-3\ntflops: 1e-3\n")
        flop = 4 * 13 * 64 + 6 * (64 * 16 + 37 * 64 + 64) + 3 * 7 * 7 * 16  # no gradient of the input; 7 vectors
        weights = 14 * 64 + 65 * 16 + 38 * 64 + 65
        rows, _ = self.predicted(self.plan(3, "--cluster", "machine.yaml").stdout)
        for row, own in zip(rows, (333, 334, 334)):
            self.assertAlmostEqual(row[1], 1e3 * own * flop / 1e9, delta=0.001)
            self.assertAlmostEqual(row[2], 1e3 * 8 * weights * 2 / 3 / 1e6, delta=0.001)

    def test_bad_profiles(self):
        for text, message in (("network_gb_s: 3\n", "m.yaml:1:1: device: missing, expected cpu or cuda"),
                              ("device: tpu\n", 'm.yaml:1:9: device: found "tpu", expected cpu or cuda'),
                              ("device: cpu\ntflops: -1\n", 'm.yaml:2:9: tflops: found "-1", expected a number from 1e-6 to 1e9'),
                              ("device: cuda\nmemory_gib: 1e-300\n", 'm.yaml:2:13: memory_gib: found "1e-300", expected a number from 1e-6 to 1e9'),
                              ("device: cpu\nlink_gb_s: [1]\n", 'm.yaml:2:12: link_gb_s: found "list", expected a number from 1e-6 to 1e9'),
                              ("device: cpu\nmemory: 3\n", "m.yaml:2:1: memory: unknown key; expected device, memory_gib, host_memory_gib, "
                                                           "memory_gb_s, network_gb_s, link_gb_s or tflops"),
                              ("- 1\n", "m.yaml:1:1: expected a map of a rank's device, memory and rates")):
            self.write("m.yaml", text)
            done = self.plan(2, "--cluster", "m.yaml", status=1)
            self.assertEqual(done.stderr, message + "\n")
        self.assertRegex(self.plan(2, "--cluster", "none.yaml", status=1).stderr, r"none\.yaml")

    def test_usage(self):
        for args, message in ((["--plan"], "--plan: found nothing, expected a number of ranks from 1 to 4096 after it"),
                              (["--plan", "0"], '--plan: found "0", expected a number of ranks from 1 to 4096 after it'),
                              (["--plan", "2x"], '--plan: found "2x", expected'), (["--plan", "4097"], '--plan: found "4097", expected'),
                              (["--check", "--plan", "2"], "only one of --check, --plan, --eval and --predict can be given"),
                              (["--cluster", "m.yaml"], "--cluster: only --plan takes it"), (["--plan", "2", "--cluster"], "--cluster: expected a file name")):
            self.refuse(1, 2, re.escape(message), "config.yaml", *args)
        self.refuse(2, 2, "--plan: found 2 ranks, expected one process", "config.yaml", "--plan", "2")
        done = self.plan(5, "train.deterministic=true", "train.deterministic_chunks=4", status=1)
        self.assertRegex(done.stderr, "train.deterministic_chunks: is 4, expected at least the number of ranks, 5")


fixture.main()
