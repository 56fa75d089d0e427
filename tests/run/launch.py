"""Starting dlrm-train under mpirun from a test. The launcher's settings (root, oversubscription) come with the environment."""
import os
import subprocess


def train(trainer, ranks, args, cwd, threads=1, timeout=120):
    """Runs the trainer; the result has returncode, stdout and stderr as text."""
    return subprocess.run(["mpirun", "-n", str(ranks), trainer] + args, cwd=cwd, timeout=timeout, text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(os.environ, OMP_NUM_THREADS=str(threads)))
