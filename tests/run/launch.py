"""Starting dlrm-train from a test: several ranks under mpirun, one by itself, which starts sooner. The launcher's settings (root,
oversubscription) come with the environment."""
import os
import subprocess

# Seconds: longer than anything takes that does not hang, on a machine many times slower or busier than usual.
PATIENCE = 300
# A launcher with a rank that ended with an error gives the others a second to end, and once more: these have ended already.
AT_ONCE = {"OMPI_MCA_odls_base_sigkill_timeout": "0", "PRTE_MCA_odls_base_sigkill_timeout": "0"}


def train(trainer, ranks, args, cwd, threads=1, timeout=PATIENCE):
    """Runs the trainer; the result has returncode, stdout and stderr as text."""
    launcher = ["mpirun", "-n", str(ranks)] if ranks > 1 else []
    return subprocess.run(launcher + [trainer] + args, cwd=cwd, timeout=timeout, text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(os.environ, OMP_NUM_THREADS=str(threads), **AT_ONCE))
