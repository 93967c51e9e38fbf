"""A development cluster, as the tests hold it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COMMANDS_DIR = Path(__file__).parents[2] / "slurm" / "devcluster"
SYSTEM_DIRS = "/usr/local/sbin:/usr/sbin:/sbin"
"""SLURM's daemons lie here, not always on a user's PATH."""
DEADLINE_S = 120.0
"""Longer than the slowest thing to wait for: SLURM looks at time limits every 30 s."""
SLURM_VARIABLES = re.compile(r"(SLURM|SBATCH|SALLOC|SRUN|SQUEUE|SACCT|SCANCEL|SINFO)_")


def missing(*, accounting: bool = False) -> str | None:
    """Return why no cluster can be started on this machine; None where one can."""
    programs = ["munged", "slurmctld", "slurmd", "sbatch"]
    if accounting:
        programs += ["slurmdbd", "mariadbd"]
    path = f"{os.environ.get('PATH', '')}:{SYSTEM_DIRS}"
    lacking = [name for name in programs if shutil.which(name, path=path) is None]
    if lacking:
        return f"{', '.join(lacking)} not installed (slurm/devcluster/start installs them)"
    if os.geteuid() != 0:
        return "a development cluster needs root"
    return None


def wait_until(
    condition: Callable[[], Any], what: str = "the condition", deadline_s: float = DEADLINE_S
) -> None:
    """Poll until `condition` holds; fail after a generous deadline."""
    end = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"{what} did not come true within {deadline_s:.0f} s")
        time.sleep(0.1)


def devcluster(
    command: str, *arguments: str, check: bool = True, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run one of the commands of slurm/devcluster; `options` are those of subprocess.run."""
    return _run([str(COMMANDS_DIR / command), *arguments], check=check, **options)


@dataclass(frozen=True)
class Cluster:
    """A cluster that runs; `start` makes one, `stop` ends it.

    Attributes:
        env: this process's environment without its own SLURM variables, and SLURM_CONF.
    """

    name: str
    options: tuple[str, ...]
    slurm_conf: Path
    env: Mapping[str, str]

    @classmethod
    def start(cls, name: str, *options: str) -> Cluster:
        """Start a cluster (`--accounting`, `--nodes`, `2`, …) or take a running one."""
        line = devcluster("start", "--name", name, *options).stdout
        found = re.fullmatch(r"export SLURM_CONF=(\S+)\n", line)
        assert found, f"not a line to eval: {line!r}"
        env = {k: v for k, v in os.environ.items() if not SLURM_VARIABLES.match(k)}
        env["SLURM_CONF"] = found[1]
        return cls(name, options, Path(found[1]), env)

    def stop(self) -> None:
        """End the cluster, its jobs without much grace."""
        devcluster("fault", "clear-jobs", "--name", self.name, check=False)
        devcluster("stop", "--name", self.name)

    @property
    def accounting(self) -> bool:
        return "--accounting" in self.options

    @property
    def dir(self) -> Path:
        """The folder that holds all of the cluster's files."""
        return self.slurm_conf.parents[1]

    def run(
        self, *argv: str, check: bool = True, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run a program with the cluster as its SLURM; fails on a nonzero exit code if `check`."""
        env = {**self.env, **options.pop("env", {})}
        return _run([*map(str, argv)], check=check, env=env, **options)

    def sbatch(self, *options: str, script: str = "sleep 1000", output: str = "/dev/null") -> str:
        """Submit lines of bash; returns the job id."""
        text = f"#!/bin/bash\n{script}\n"
        argv = ("sbatch", "--parsable", "-o", output, *options)
        return self.run(*argv, input=text).stdout.strip().partition(";")[0]

    def job(self, job_id: str) -> dict[str, str]:
        """Return what `scontrol show job` says of a job or one element; {} for an unknown one."""
        shown = self.run("scontrol", "show", "job", "-o", job_id, check=False)
        if shown.returncode != 0:
            return {}
        return dict(re.findall(r"(?:^| )([A-Za-z/:]+)=(\S*)", shown.stdout.splitlines()[0]))

    def job_state(self, job_id: str) -> str:
        """Return SLURM's word for a job or one element of an array; "" for an unknown one."""
        return self.job(job_id).get("JobState", "")

    def wait_for_job_state(
        self, job_id: str, *states: str, deadline_s: float = DEADLINE_S
    ) -> dict[str, str]:
        """Wait until a job is in one of the states; returns `job(job_id)` of that moment."""
        seen: dict[str, str] = {}

        def is_there() -> bool:
            seen.clear()
            seen.update(self.job(job_id))
            return seen.get("JobState") in states

        try:
            wait_until(is_there, f"{' or '.join(states)} of job {job_id}", deadline_s)
        except AssertionError as error:
            raise AssertionError(f"{error}; it is {seen or 'unknown to SLURM'}") from None
        return seen

    def fault(self, *arguments: str) -> None:
        devcluster("fault", *arguments, "--name", self.name)

    def kill_node(self, node: str, *, with_jobs: bool = False) -> None:
        """Kill a node's slurmd; `with_jobs`: all its processes, as a machine that dies."""
        self.fault("kill-node", node, *(["--with-jobs"] if with_jobs else []))

    def start_node(self, node: str) -> None:
        self.fault("start-node", node)

    def kill_controller(self) -> None:
        self.fault("kill-controller")

    def stop_controller(self) -> None:
        self.fault("stop-controller")

    def start_controller(self) -> None:
        self.fault("start-controller")

    def kill_dbd(self) -> None:
        self.fault("kill-dbd")

    def start_dbd(self) -> None:
        self.fault("start-dbd")

    def reset(self) -> None:
        """Mend what is down, end all jobs and wait until the nodes are idle."""
        devcluster("start", "--name", self.name, *self.options)
        self.fault("clear-jobs")
        wait_until(self._is_idle, f"idle nodes of cluster `{self.name}`")

    def _is_idle(self) -> bool:
        states = self.run("sinfo", "-h", "-N", "-p", "gpu", "-o", "%T").stdout.split()
        return set(states) == {"idle"}


def _run(argv: list[str], *, check: bool, **options: Any) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        argv,
        **{"capture_output": True, "text": True, "timeout": DEADLINE_S, "check": False, **options},
    )
    if check and done.returncode != 0:
        raise AssertionError(
            f"`{' '.join(argv)}` ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
        )
    return done
