"""The programs that a cluster needs, and the Debian packages that hold them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from devcluster.errors import ClusterError, UsageError
from devcluster.talk import say

SLURM = {
    "munged": "munge",
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "squeue": "slurm-client",
}
ACCOUNTING = {"slurmdbd": "slurmdbd", "mariadbd": "mariadb-server"}
SYSTEM_DIRS = ("/usr/local/sbin", "/usr/sbin", "/sbin")
"""Daemons lie here; a user's PATH often lacks these."""
POLICY = Path("/usr/sbin/policy-rc.d")
"""Where it exits 101, a package starts no service when it is installed."""


def add_system_dirs() -> None:
    """Let this process and its daemons find programs for the administrator."""
    path = os.environ.get("PATH", os.defpath).split(os.pathsep)
    os.environ["PATH"] = os.pathsep.join([*path, *(d for d in SYSTEM_DIRS if d not in path)])


def ensure_programs(*, accounting: bool) -> None:
    """Install what is missing, as root; UsageError that names the packages where that can't be."""
    missing = _missing_packages({**SLURM, **(ACCOUNTING if accounting else {})})
    if missing:
        command = f"apt-get install {' '.join(missing)}"
        if shutil.which("apt-get") is None:
            raise UsageError(
                f"SLURM is not whole on this machine: no {_listed(missing)}",
                f"install what Debian has in `{command}`",
            )
        if os.geteuid() != 0:
            raise UsageError(
                f"SLURM is not whole on this machine: no {_listed(missing)}",
                f"run `sudo {command}`, or this command as root, which installs them",
            )
        _install(missing)
    if os.geteuid() != 0:
        raise UsageError(
            "a development cluster needs root: its GPUs are device nodes, its daemons run as root",
            "run this command by sudo; any user may use the cluster",
        )


def _missing_packages(packages: Mapping[str, str]) -> list[str]:
    return [package for program, package in packages.items() if shutil.which(program) is None]


def _listed(words: list[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)


def _install(packages: list[str]) -> None:
    say(f"installing {' '.join(packages)}")
    with _no_services():
        _apt_get("update", "-qq")
        _apt_get("install", "-y", "-qq", "--no-install-recommends", *packages)
    still = [
        package for package in packages if package in _missing_packages({**SLURM, **ACCOUNTING})
    ]
    if still:
        raise ClusterError(f"installed, but still without the programs of {_listed(still)}")


def _apt_get(*arguments: str) -> None:
    argv = ["apt-get", "-o", "DPkg::Lock::Timeout=300", *arguments]
    done = subprocess.run(
        argv,
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode != 0:
        words = (done.stderr or done.stdout).strip().splitlines()[-3:]
        raise ClusterError(
            f"`{' '.join(argv)}` ended with {done.returncode}: {' / '.join(words)}",
            "install the packages by hand, then start again",
        )


@contextmanager
def _no_services() -> Iterator[None]:
    """Keep the packages from starting a munge, MariaDB or SLURM of the machine's own."""
    if POLICY.exists():  # The machine has a rule for this already; containers often do.
        yield
        return
    POLICY.write_text("#!/bin/sh\nexit 101\n")
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink(missing_ok=True)
