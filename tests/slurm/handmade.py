"""A sweep on a cluster whose records a test writes by hand: no dispatcher and no runner."""

from __future__ import annotations

import getpass
import os
import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.dispatch.interface import Order
from harness.dispatch.submission import Submission, open_submission
from harness.profile import LocalProfile, Profile
from harness.records.files import write_json
from harness.records.layout import SweepPaths
from harness.records.model import (
    SCHEMA_VERSION,
    ArrayPlan,
    Claim,
    Exit,
    Heartbeat,
    JobReceipt,
    to_record,
)
from harness.runner.process import process_start
from harness.state.jobs import JobTable
from harness.state.status import RunStatus, read_states
from tests.harness.conftest import DiskSweep, write_sweep
from tests.slurm.cluster import Cluster, wait_until

LIMIT_S = 60.0
LATER_S = 100.0
"""So long after now every heartbeat of a test is old."""
SLEEP = "exec sleep 1000"


@dataclass
class SlurmSweep:
    """A sweep whose runs are elements 0, 1, … of one job array on a cluster."""

    disk: DiskSweep
    cluster: Cluster
    shims_dir: Path
    submission: Submission
    array: ArrayPlan
    job_id: str = ""

    def sbatch(self, script: str = SLEEP, *options: str, receipt: bool = True) -> None:
        """Hand the array over with one sbatch; the receipt follows."""
        paths = self.submission.paths
        last = len(self.array.run_ids) - 1
        paths.slurm_dir.mkdir(exist_ok=True)
        self.job_id = self.cluster.sbatch(
            f"--job-name={self.array.job_name}",
            f"--comment=harness {paths.id} 0",
            f"--array=0-{last}",
            "--requeue",
            *options,
            script=script,
            output=f"{paths.slurm_dir}/%A_%a_0_log.out",
        )
        if receipt:
            self.write_receipt("accepted", self.job_id)

    def write_receipt(self, state: str, job_id: str | None = None, error: str = "") -> None:
        paths = self.submission.paths
        receipt = JobReceipt(
            schema_version=SCHEMA_VERSION,
            submission=paths.id,
            name="0",
            job_name=self.array.job_name,
            state=state,
            job_id=job_id,
            cluster=None,
            error=error,
            is_adopted=False,
            time=time.time(),
        )
        write_json(paths.job_receipt("0"), to_record(receipt))

    def element(self, index: int) -> str:
        return f"{self.job_id}_{index}"

    def scancel(self, *indices: int) -> None:
        self.cluster.run("scancel", *map(self.element, indices))

    def claim(self, index: int, **values: Any) -> None:
        """Let the newest attempt of a run show life now."""
        arm = f"a{index}"
        claim = Claim(
            schema_version=SCHEMA_VERSION,
            attempt=1,
            submission=self.submission.paths.id,
            nonce=self.submission.intent.nonce,
            host="gpu01",
            pid=1,
            pid_started="",
            time=time.time(),
            max_steps=100,
            code_hash="0" * 64,
            machine={},
            job_id=self.element(index),
            node="gpu01",
        )
        attempt = self.disk.run(arm).attempt(1)
        write_json(attempt.claim, to_record(replace(claim, **values)))
        beat = Heartbeat(SCHEMA_VERSION, 1, time.time(), 4, 100, None, None, None, None, None)
        write_json(attempt.heartbeat, to_record(beat))

    def end(self, index: int, reason: str, **values: Any) -> None:
        """Let a run's attempt end."""
        self.claim(index)
        now = time.time()
        ended = Exit(
            SCHEMA_VERSION, 1, reason, 1, None, "said", 4, 100, ("gpu01",), (), now - 1, now
        )
        exit_path = self.disk.run(f"a{index}").attempt(1).exit
        write_json(exit_path, to_record(replace(ended, **values)))

    def statuses(self, *, later_s: float = 0.0, jobs: JobTable | None = None) -> list[RunStatus]:
        return read_states(self.disk.paths, now=time.time() + later_s, jobs=jobs)

    def states(self, *, later_s: float = 0.0) -> list[str]:
        return [str(status.state) for status in self.statuses(later_s=later_s)]

    def reasons(self, *, later_s: float = 0.0) -> list[str]:
        return [status.reason for status in self.statuses(later_s=later_s)]

    def wait(self, *states: str, later_s: float = 0.0) -> None:
        """Wait until the runs are in these states."""
        seen: list[str] = []

        def is_there() -> bool:
            seen[:] = self.states(later_s=later_s)
            return seen == list(states)

        try:
            wait_until(is_there, f"states {states}")
        except AssertionError as error:
            raise AssertionError(f"{error}; they are {seen}") from None

    def shim(self, name: str, body: str) -> None:
        """Put a script on the PATH before SLURM's command."""
        self.shims_dir.mkdir(exist_ok=True)
        path = self.shims_dir / name
        path.write_text(f"#!/bin/bash\n# A shim of a test, not SLURM's {name}.\n{body}\n")
        path.chmod(0o755)

    def forget(self) -> None:
        """Shim: let squeue list nothing, as once MinJobAge has passed (300 s on this cluster)."""
        self.shim("squeue", "exit 0")

    def count_calls(self) -> Path:
        """Log each call of squeue and sacct to a file; SLURM's own answer them."""
        log = self.shims_dir / "calls"
        for name in ("squeue", "sacct"):
            self.shim(name, f'echo {name} >> "{log}"; exec {shutil.which(name)} "$@"')
        log.touch()
        return log


def make_slurm_sweep(root: Path, cluster: Cluster, num_runs: int, shims_dir: Path) -> SlurmSweep:
    """Write a sweep of so many runs, and the intent of a submission whose process has ended."""
    disk = DiskSweep(SweepPaths(root))
    arms = {f"a{i}": ("trains", "METRICS", "0") for i in range(num_runs)}
    write_sweep(disk.paths, arms, max_steps=100)
    order = Order(disk.paths, disk.plan.runs, Profile("test", LocalProfile()), "0" * 64)
    opened = open_submission(order)
    array = ArrayPlan(
        number=0,
        job_name=f"{root.name}@{opened.intent.nonce}.0",
        run_ids=tuple(run.run_id for run in disk.plan.runs),
        settings={"type": "slurm", "heartbeat_limit_s": LIMIT_S, "time": 90},
    )
    intent = replace(
        opened.intent,
        settings=array.settings,
        arrays=(array,),
        user=getpass.getuser(),
        pid_started=process_start(os.getpid()).rpartition("/")[0] + "/0",  # an earlier process
    )
    write_json(opened.paths.intent, to_record(intent))
    return SlurmSweep(disk, cluster, shims_dir, Submission(opened.paths, intent), array)
