"""Calls of SLURM's own commands and other programs, with their errors told."""

from __future__ import annotations

import os
import subprocess

from devcluster.errors import ClusterError
from devcluster.layout import Cluster

TIMEOUT_S = 60


def slurm(
    cluster: Cluster, *argv: str, check: bool = True, timeout_s: float = TIMEOUT_S
) -> subprocess.CompletedProcess[str]:
    """Run one of SLURM's commands against a cluster, whatever cluster the shell belongs to."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("SLURM")}
    env["SLURM_CONF"] = str(cluster.slurm_conf)
    return call(list(argv), env=env, check=check, timeout_s=timeout_s)


def call(
    argv: list[str],
    *,
    env: dict[str, str] | None = None,
    stdin: str = "",
    check: bool = True,
    timeout_s: float = TIMEOUT_S,
) -> subprocess.CompletedProcess[str]:
    """Run a program; ClusterError with its last words where `check` and it fails.

    Without `check`, no answer within `timeout_s` is the exit code 124.
    """
    try:
        done = subprocess.run(
            argv,
            env=env,
            input=stdin,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        if check:
            raise ClusterError(f"`{argv[0]}` gave no answer in {timeout_s:.0f} s") from None
        return subprocess.CompletedProcess(argv, 124, "", "")
    if check and done.returncode != 0:
        words = (done.stderr or done.stdout).strip().splitlines()[-3:]
        raise ClusterError(f"`{' '.join(argv)}` ended with {done.returncode}: {' / '.join(words)}")
    return done
