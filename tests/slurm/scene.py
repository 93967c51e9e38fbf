"""Runs in real jobs whose batch scripts are written by hand, for tests of the runner alone."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.dispatch.submission import Submission
from harness.records.files import write_json
from harness.records.layout import RUN_DIR_ENV, SUBMISSION_DIR_ENV, RunPaths, SweepPaths
from harness.records.model import ArrayPlan, Exit, to_record
from harness.runner.claim import create_claim, find_assignment
from harness.runner.process import pids_with
from tests.harness.conftest import DiskSweep, write_sweep
from tests.slurm.cluster import Cluster, wait_until

MAX_STEPS = 2000
PACES = ("paces", "METRICS", "GATE", "0.2")
HEARTBEAT_LIMIT_S = 6.0
SETTINGS: dict[str, Any] = {
    "type": "slurm",
    "grace_s": 10.0,
    "heartbeat_limit_s": HEARTBEAT_LIMIT_S,
    "requeue": True,
    "max_requeues": 20,
    "retry_failures": True,
    "quick_failure_s": 60.0,
    "signal_delay_s": 60,
}
PYTHON = f"{shlex.quote(sys.executable)} -u -P -m harness.runner.element"
STEP = f"""
trap : TERM USR2
srun --unbuffered {PYTHON} &
while true; do wait $!; code=$?; kill -0 $! 2>/dev/null || exit $code; done
"""
CHILD = f"""
{PYTHON} &
trap "kill -USR2 $!" USR2
trap "kill -TERM $!" TERM
while true; do wait $!; code=$?; kill -0 $! 2>/dev/null || exit $code; done
"""


@dataclass
class Scenario:
    """One run in one job.

    Attributes:
        program: of tests/harness/programs, with GATE and PID_FILE for files of its own.
        node: that it is bound to; None for any, also when it is started again.
        is_step: whether the runner is a step of the job, or a child of the batch shell.
    """

    arm: str
    program: tuple[str, ...] = PACES
    partition: str = "gpu"
    node: str | None = "gpu05"
    gpus: int = 0
    minutes: int = 60
    mem: str = "100M"
    is_step: bool = True
    settings: dict[str, Any] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    job_id: str = ""


class Scene:
    """Scenarios on one cluster: a sweep on disk with an arm for each.

    Args:
        mounted: arms whose run folder is a small file system of its own.
    """

    def __init__(
        self,
        cluster: Cluster,
        folder: Path,
        scenarios: Sequence[Scenario],
        mounted: Sequence[str] = (),
    ) -> None:
        self.cluster = cluster
        self.folder = folder
        self.scenarios = {scenario.arm: scenario for scenario in scenarios}
        self.sweep = DiskSweep(SweepPaths(folder / "outputs" / "toy sweep"))
        self.mounted = [self.run(arm).root for arm in mounted]
        for path in self.mounted:
            path.mkdir(parents=True)
            mount(path, "size=256k")
        programs = {s.arm: [self._word(s.arm, w) for w in s.program] for s in scenarios}
        write_sweep(self.sweep.paths, programs, max_steps=MAX_STEPS)
        self.submissions: dict[str, Submission] = {}

    def _word(self, arm: str, word: str) -> str:
        names = {"GATE": f"{arm}.gate", "PID_FILE": f"{arm}.pid"}
        return str(self.folder / names[word]) if word in names else word

    def close(self) -> None:
        for path in self.mounted:
            subprocess.run(["umount", str(path)], check=True)

    def run(self, arm: str) -> RunPaths:
        return self.sweep.run(arm)

    def log(self, arm: str) -> str:
        path = self.folder / f"{arm}.log"
        return path.read_text() if path.exists() else ""

    def open_gate(self, arm: str) -> None:
        (self.folder / f"{arm}.gate").touch()

    def submit(self, scenario: Scenario) -> None:
        """Write the intent of a submission of one array of one element, and hand it over."""
        arm = scenario.arm
        submission = self.sweep.submit([arm])
        settings = SETTINGS | scenario.settings
        array = ArrayPlan(0, f"toy@{submission.intent.nonce}.0", (f"{arm}/seed_0",), settings)
        intent = replace(submission.intent, settings=settings, arrays=(array,))
        write_json(submission.paths.intent, to_record(intent))
        self.submissions[arm] = submission
        if arm.startswith("waits"):
            self.leave_claim(arm)
        exports = f"export HARNESS_SUBMISSION_DIR={shlex.quote(str(submission.paths.root))}\n"
        exports += "export HARNESS_ARRAY=0\n"
        options = [
            "--array=0-0%1",
            f"--job-name={array.job_name}",
            f"--partition={scenario.partition}",
            f"--time={scenario.minutes}",
            f"--signal={'' if scenario.is_step else 'B:'}USR2@60",
            "--requeue",
            "--open-mode=append",
            f"--mem={scenario.mem}",
            *([f"--nodelist={scenario.node}"] if scenario.node else []),
            *([f"--gres=gpu:{scenario.gpus}"] if scenario.gpus else []),
            *scenario.options,
        ]
        script = exports + (STEP if scenario.is_step else CHILD)
        job_id = self.cluster.sbatch(
            *options, script=script, output=str(self.folder / f"{arm}.log")
        )
        scenario.job_id = f"{job_id}_0"

    def leave_claim(self, arm: str) -> None:
        """Leave an attempt that may still be at work on another machine."""
        assignment = find_assignment(self.run(arm), self.submissions[arm].paths.id)
        claim = create_claim(self.run(arm), assignment, 1)
        write_json(self.run(arm).attempt(1).claim, to_record(claim) | {"host": "elsewhere"})

    def wait_for_trainer(self, arm: str, attempt: int = 1) -> None:
        """Wait until an attempt has logged a step."""

        def has_logged() -> bool:
            beat = self.sweep.heartbeat(arm, attempt)
            return beat is not None and beat.first_step is not None

        wait_until(has_logged, f"the first step of attempt {attempt} of {arm}\n{self.log(arm)}")

    def exit(self, arm: str, attempt: int = 1) -> Exit:
        """Wait for the end of an attempt and return it."""
        path = self.run(arm).attempt(attempt).exit
        wait_until(path.is_file, f"the end of attempt {attempt} of {arm}\n{self.log(arm)}")
        return self.sweep.exit(arm, attempt)

    def wait_for_job(self, arm: str, *states: str) -> dict[str, str]:
        return self.cluster.wait_for_job_state(self.scenarios[arm].job_id, *states)

    def wait_for_restart(self, arm: str) -> None:
        """Wait until SLURM has started the job again."""

        def runs_again() -> bool:
            job = self.cluster.job(self.scenarios[arm].job_id)
            return job["JobState"] == "RUNNING" and int(job["Restarts"]) > 0

        wait_until(runs_again, f"the second start of {arm}\n{self.log(arm)}")

    def rows(self, arm: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.run(arm).metrics.read_text().splitlines()]

    def check_whole(self, arm: str, attempts: Sequence[int]) -> None:
        """Each step stands there once, and no attempt wrote before an earlier one had ended."""
        rows = self.rows(arm)
        assert [row["step"] for row in rows] == list(range(1, MAX_STEPS + 1))
        assert list(dict.fromkeys(row["attempt"] for row in rows)) == list(attempts)
        assert [row["time"] for row in rows] == sorted(row["time"] for row in rows)

    def processes_of(self, arm: str) -> list[int]:
        """Return what lives of the run's runners, guardians, trainers and their children."""
        submission = str(self.submissions[arm].paths.root)
        own = pids_with({SUBMISSION_DIR_ENV: submission})
        return own + pids_with({RUN_DIR_ENV: str(self.run(arm).root)})


def mount(folder: Path, options: str) -> None:
    """Mount a file system in memory, or mount it anew with other options."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], check=True)
