#!/usr/bin/env python3
"""log.tensorboard: event files, read here without TensorBoard, with the numbers of log.jsonl."""
import os
import struct
import subprocess
import time

import numpy as np

import fixture
from fixture import events


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def varint(data, at):
    value, shift = 0, 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def fields(data):
    """[(field, value)] of a message."""
    out, at = [], 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        else:
            size = {1: 8, 5: 4}.get(key & 7)
            if size is None:
                size, at = varint(data, at)
            value, at = data[at:at + size], at + size
            assert len(value) == size
        out.append((key >> 3, value))
    return out


def read(path):
    """[(step, {tag: value})] of an event file, its first record apart."""
    with open(path, "rb") as f:
        data = f.read()
    out, at = [], 0
    while at < len(data):
        (length, head), at = struct.unpack_from("<QI", data, at), at + 12
        assert head == masked(data[at - 12:at - 4])
        record, tail = data[at:at + length], struct.unpack_from("<I", data, at + length)[0]
        assert tail == masked(record)
        at += length + 4
        event = dict(fields(record))
        assert abs(struct.unpack("<d", event[1])[0] - time.time()) < 3600
        scalars = {}
        for field, value in fields(event.get(5, b"")):
            assert field == 1
            scalar = dict(fields(value))
            scalars[scalar[1].decode()] = struct.unpack("<f", scalar[2])[0]
        out.append((event.get(2), event.get(3), scalars))
    assert out[0] == (None, b"brain.Event:2", {})
    return [(step, scalars) for step, _, scalars in out[1:]]


class TensorBoard(fixture.RunTest):
    def numbers(self, event, prefix):
        """As they should be there."""
        out = {}
        for key, value in event.items():
            if isinstance(value, dict):
                out.update(self.numbers(value, prefix + "/" + key))
            elif isinstance(value, list):
                for entry in value:
                    out.update(self.numbers(entry, "%s/%s/%s" % (prefix, key, entry["table"])))
            elif isinstance(value, (int, float)) and key != "step":
                out[prefix + "/" + key] = value
        return out

    def compare(self, file, from_event=0):
        said = [e for e in events(self.path("run.jsonl")) if e["event"] in ("step", "eval")][from_event:]
        got = read(self.path("tb", file))
        self.assertEqual([step for step, _ in got], [e["step"] for e in said])
        for (_, scalars), event in zip(got, said):
            want = self.numbers(event, event["event"])
            self.assertEqual(sorted(scalars), sorted(want))
            for tag, value in want.items():
                np.testing.assert_allclose(scalars[tag], value, rtol=1e-6, err_msg=tag)
        return len(said), got

    def test_events(self):
        """Steps, evaluations, a resumed run in a file of its own."""
        self.assertEqual(crc32c(b"123456789"), 0xE3069283)  # as published
        self.make_data()
        run = ["config.yaml", "log.tensorboard=tb", "log.every_steps=50", "checkpoint.path=ckpt", "model.interaction=cat"]
        self.succeed(2, *run, "train.epochs=30", "eval.every_steps=60")
        first, = os.listdir(self.path("tb"))
        self.assertTrue(first.startswith("events.out.tfevents."))
        n, got = self.compare(first)
        self.assertGreater(n, 6)
        tags = {tag for _, scalars in got for tag in scalars}
        self.assertLessEqual({"step/loss", "step/loss_mean", "step/lr", "step/time_shares/lookup", "eval/auc", "eval/loss"}, tags)
        self.assertIn(200, [step for step, _ in got])  # takes two bytes
        self.succeed(1, *run, "train.epochs=40")
        second, = set(os.listdir(self.path("tb"))) - {first}
        self.compare(second, n)

    def test_vocabularies(self):
        """Of each table with dynamic rows by its name."""
        self.write("config.yaml", fixture.SYNTHETIC.replace("{count: 4, rows: 500}", "{count: 3, rows: 500}\n    - {name: seen, rows: dynamic, capacity: 99}"))
        self.succeed(1, "config.yaml", "log.tensorboard=made/tb")
        os.rename(self.path("made", "tb"), self.path("tb"))
        _, got = self.compare(os.listdir(self.path("tb"))[0])
        self.assertEqual(got[-1][1]["step/vocabularies/seen/keys"], 99)

    def test_many_numbers(self):
        """All of them, however many: here 4 of each of 1500 tables, with names as long as may be."""
        tables = "\n    - {name: %s, count: 1500, rows: dynamic, capacity: 2}" % ("n" * 190)
        self.write("config.yaml", fixture.SYNTHETIC.replace("interaction: dot", "interaction: cat").replace("\n    - {count: 4, rows: 500}", tables))
        self.succeed(1, "config.yaml", "log.tensorboard=tb", "train.steps=2", "train.batch_size=2")
        _, got = self.compare(os.listdir(self.path("tb"))[0])
        self.assertGreater(len(got[-1][1]), 6000)

    def test_full_disk(self):
        """Training is worth more than its log, which ends with a warning."""
        self.write("config.yaml", fixture.SYNTHETIC)
        os.mkdir(self.path("tb"))
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8k", "tmpfs", self.path("tb")], stderr=subprocess.DEVNULL).returncode != 0:
            self.skipTest("a file system cannot be mounted here")
        self.addCleanup(subprocess.run, ["umount", self.path("tb")])
        done = self.succeed(2, "config.yaml", "log.tensorboard=tb", "train.epochs=30")
        self.one_message(done.stderr, r"^dlrm-train: warning: tb/events\.out\.\S+: cannot write \(No space left on device\); the log for TensorBoard ends here$")
        self.assertEqual(events(self.path("run.jsonl"), "end")[0]["steps"], 150)

    def test_refused(self):
        self.write("config.yaml", fixture.SYNTHETIC)
        self.write("file", "")
        self.refuse(2, 1, "log.tensorboard: .*file", "config.yaml", "log.tensorboard=file")


fixture.main()
