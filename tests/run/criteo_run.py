"""From Criteo's text to a trained model, for tests: runs of dlrm_data, and one small model on what it converts."""
import os
import subprocess
import sys

import fixture
import launch

# All but the optimizer and the limits of training, which a test gives.
CONFIG = """\
model:
  dense_features: 13
  embedding_dim: 16
  bottom_mlp: [32, 16, 16]
  interaction: dot
  top_mlp: [32, 32, 16, 8, 1]
  tables: from_dataset
optimizer:
  dense: {%(optimizer)s}
  embedding: {%(optimizer)s}
train: {%(train)s}
data: {format: split_binary, path: data}
log: {every_steps: 1, jsonl: run.jsonl}
"""


class CriteoTest(fixture.RunTest):
    """Starts programs in self.folder, which is new for each test."""
    dlrm_data = None

    def tool(self, *args):
        done = subprocess.run([self.dlrm_data] + [str(a) for a in args], cwd=self.folder, stdin=subprocess.DEVNULL, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=launch.PATIENCE)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def write_config(self, optimizer, train):
        self.write("config.yaml", CONFIG % {"optimizer": optimizer, "train": train})

    def events(self, kind):
        return fixture.events(self.path("run.jsonl"), kind)


def main():
    """test_X.py TRAINER DLRM_DATA [unittest's arguments]"""
    if len(sys.argv) < 3:
        sys.exit("usage: %s TRAINER DLRM_DATA [unittest's arguments]" % sys.argv[0])
    CriteoTest.dlrm_data = os.path.abspath(sys.argv.pop(2))
    fixture.main()
