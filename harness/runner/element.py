"""The entry point of an array element: from SLURM's variables to one attempt of one run.

`python -P -m harness.runner.element`, with the submission's folder and the number of the array in
the environment (`HARNESS_SUBMISSION_DIR`, `HARNESS_ARRAY`). Which run that is stands in the
submission's intent, so that a batch script, once submitted, depends on nothing else.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.dispatch.environment import without_run_variables
from harness.errors import HarnessError
from harness.records.layout import (
    ARRAY_ENV,
    RUN_DIR_ENV,
    SUBMISSION_DIR_ENV,
    SUBMISSION_ENV,
    RunPaths,
    SubmissionPaths,
    SweepPaths,
)
from harness.records.model import ArrayPlan, Intent, PlannedRun, read_record
from harness.runner.machine import THREAD_VARIABLES
from harness.runner.main import run_attempt, say_error
from harness.runner.signals import block_signals
from harness.runner.slurm_job import own_job

_INDEX_ENV = "SLURM_ARRAY_TASK_ID"
_RANK_ENV = "SLURM_PROCID"


@dataclass(frozen=True)
class Element:
    """What one element of an array is for."""

    intent: Intent
    array: ArrayPlan
    run: PlannedRun
    paths: RunPaths

    @property
    def job_name(self) -> str:
        """`<sweep>/<arm>/<seed>@<nonce>.<array>`: ends as the array's name does."""
        suffix = f"@{self.intent.nonce}.{self.array.number}"
        return f"{self.paths.sweep.name}/{self.run.arm}/{self.run.seed}{suffix}"

    @property
    def may_rename(self) -> bool:
        """Whether the profile leaves the job's name to the harness."""
        options = self.array.settings.get("sbatch") or {}
        return "job-name" not in options


def main() -> int:
    """Run an attempt of this element's run and return the exit code.

    0: done, stopped by a rule, superseded, nothing to do, or SLURM starts the job again; 1: failed;
    143: cancelled.
    """
    signals = block_signals(with_warnings=True)
    if os.environ.get(_RANK_ENV, "0") != "0":
        return 0  # one runner per run; its trainer starts what it needs on other nodes
    try:
        element, job = find_element(os.environ), own_job(os.environ)
        if job is None:
            raise HarnessError("this is no SLURM job: array elements are started by `sbatch`")
        if element.may_rename:
            job.rename(element.job_name)
        _set_environment(element)
        return run_attempt(element.paths, element.intent.id, signals, job)
    except (HarnessError, OSError) as error:
        return say_error(error)


def find_element(env: Mapping[str, str]) -> Element:
    """Return what the element with these variables is for.

    Raises:
        HarnessError: a variable is missing, or the submission has no such element.
    """
    submission = SubmissionPaths(Path(_required(env, SUBMISSION_DIR_ENV)).absolute())
    intent = read_record(Intent, submission.intent)
    number, index = _required(env, ARRAY_ENV), _required(env, _INDEX_ENV)
    array = next((a for a in intent.arrays if str(a.number) == number), None)
    if array is None:
        raise HarnessError(f"`{ARRAY_ENV}`: submission {intent.id} has no array `{number}`")
    if not index.isdecimal() or int(index) >= len(array.run_ids):
        raise HarnessError(f"`{_INDEX_ENV}`: array {number} of {intent.id} has no run `{index}`")
    run_id = array.run_ids[int(index)]
    run = next((r for r in intent.runs if r.run_id == run_id), None)
    if run is None:
        raise HarnessError(f"submission {intent.id} doesn't list `{run_id}`")
    sweep = SweepPaths(submission.root.parent.parent)
    return Element(intent, array, run, sweep.run(run.arm, run.seed))


def runner_variables(
    env: Mapping[str, str], element: Element
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the variables that the runner's environment gains, and the names that it loses.

    Numbers of threads that the setup lines or the site chose stay as they are.
    """
    cpus = env.get("SLURM_CPUS_PER_TASK") or str(element.array.settings.get("cpus_per_task") or 1)
    threads = {name: cpus for name in THREAD_VARIABLES if not env.get(name)}
    lost = tuple(env.keys() - without_run_variables(env).keys())
    own = {RUN_DIR_ENV: str(element.paths.root), SUBMISSION_ENV: element.intent.id}
    return threads | own, lost


def _set_environment(element: Element) -> None:
    gained, lost = runner_variables(os.environ, element)
    for name in lost:
        del os.environ[name]
    os.environ.update(gained)


def _required(env: Mapping[str, str], name: str) -> str:
    value = env.get(name)
    if not value:
        raise HarnessError(f"`{name}` is not set: array elements are started by `sbatch`")
    return value


if __name__ == "__main__":
    sys.exit(main())
