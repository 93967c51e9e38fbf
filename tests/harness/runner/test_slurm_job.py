"""What a runner reads from SLURM's answers; the answers were taken from a real cluster (22.05)."""

from __future__ import annotations

from typing import Any

import pytest

from harness.runner.slurm_job import (
    SILENT,
    JobFacts,
    JobSign,
    SlurmJob,
    allowed_grace,
    is_passing,
    own_job,
    read_facts,
)
from harness.scheduler.commands import SlurmError

RUNNING = {
    "JobState": "RUNNING",
    "Reason": "None",
    "Restarts": "0",
    "EndTime": "1796013042",
    "PreemptTime": "None",
}
COMPLETING = {**RUNNING, "JobState": "COMPLETING"}


@pytest.mark.parametrize(
    ("pairs", "facts"),
    [
        pytest.param(RUNNING, JobFacts(JobSign.RUNNING, "", 1796013042.0), id="runs"),
        pytest.param(
            {**RUNNING, "EndTime": "Unknown"}, JobFacts(JobSign.RUNNING), id="runs without a limit"
        ),
        pytest.param(
            {**RUNNING, "PreemptTime": "1796012985"},
            JobFacts(JobSign.RUNNING, "", 1796013042.0, is_preempted=True),
            id="grace before a preemption",
        ),
        pytest.param(
            {**RUNNING, "JobState": "SUSPENDED"},
            JobFacts(JobSign.RUNNING, "", 1796013042.0),
            id="suspended is no end",
        ),
        pytest.param(COMPLETING, JobFacts(JobSign.CANCELLED), id="scancel"),
        pytest.param(
            {**RUNNING, "JobState": "CANCELLED"}, JobFacts(JobSign.CANCELLED), id="cancelled"
        ),
        pytest.param(
            {**COMPLETING, "Reason": "TimeLimit"},
            JobFacts(JobSign.TIMEOUT, "TimeLimit"),
            id="time limit",
        ),
        pytest.param(
            {**RUNNING, "JobState": "TIMEOUT", "Reason": "TimeLimit"},
            JobFacts(JobSign.TIMEOUT, "TimeLimit"),
            id="after the time limit",
        ),
        pytest.param(
            {**COMPLETING, "Restarts": "1"}, JobFacts(JobSign.RESTARTING), id="requeue or preempted"
        ),
        pytest.param(
            {**RUNNING, "Restarts": "1"}, JobFacts(JobSign.RESTARTING), id="runs elsewhere already"
        ),
        pytest.param(
            {**RUNNING, "JobState": "PENDING", "Reason": "BeginTime"},
            JobFacts(JobSign.RESTARTING, "BeginTime"),
            id="waits again",
        ),
        pytest.param(
            {**COMPLETING, "PreemptTime": "1796013988"},
            JobFacts(JobSign.PREEMPTED),
            id="preempted by cancelling",
        ),
        pytest.param(
            {**RUNNING, "JobState": "PREEMPTED"}, JobFacts(JobSign.PREEMPTED), id="preempted"
        ),
        pytest.param(
            {**RUNNING, "JobState": "FAILED", "Reason": "NonZeroExitCode"},
            JobFacts(JobSign.ENDED, "FAILED NonZeroExitCode"),
            id="failed",
        ),
        pytest.param(
            {**COMPLETING, "Reason": "NodeFail"},
            JobFacts(JobSign.ENDED, "COMPLETING NodeFail"),
            id="node failed",
        ),
        pytest.param(
            {**RUNNING, "JobState": "NOVEL"},
            JobFacts(JobSign.SILENT, "SLURM says `NOVEL`"),
            id="unknown word is no end",
        ),
        pytest.param({}, JobFacts(JobSign.SILENT, "SLURM says ``"), id="nothing"),
    ],
)
def test_facts_of_the_first_start(pairs: dict[str, str], facts: JobFacts) -> None:
    assert read_facts(pairs, restarts=0) == facts


def test_count_of_restarts_is_that_of_this_start() -> None:
    assert read_facts({**RUNNING, "Restarts": "2"}, restarts=2).sign is JobSign.RUNNING
    assert read_facts({**COMPLETING, "Restarts": "2"}, restarts=2).sign is JobSign.CANCELLED
    assert read_facts({**RUNNING, "Restarts": "3"}, restarts=2).sign is JobSign.RESTARTING


@pytest.mark.parametrize(
    ("facts", "kill_wait_s", "allowed_s"),
    [
        (JobFacts(JobSign.RUNNING), 30.0, 60.0),
        (JobFacts(JobSign.RUNNING, end_time=1000.0 + 3600), 30.0, 60.0),
        (JobFacts(JobSign.RUNNING, end_time=1000.0 + 65), 30.0, 55.0),
        (JobFacts(JobSign.RUNNING, end_time=1000.0 + 10), 30.0, 7.0),
        (JobFacts(JobSign.RUNNING, end_time=1000.0 - 5), 30.0, 1.0),
        (JobFacts(JobSign.CANCELLED), 30.0, 21.0),
        (JobFacts(JobSign.RESTARTING), 5.0, 3.5),
        (JobFacts(JobSign.TIMEOUT), 600.0, 60.0),
        (JobFacts(JobSign.CANCELLED), 0.0, 1.0),
        (SILENT, 30.0, 21.0),
    ],
)
def test_grace_leaves_time_for_the_record(
    facts: JobFacts, kill_wait_s: float, allowed_s: float
) -> None:
    assert allowed_grace(facts, 60.0, kill_wait_s, now=1000.0) == pytest.approx(allowed_s)


def test_short_grace_is_kept() -> None:
    assert allowed_grace(JobFacts(JobSign.CANCELLED), 0.5, 30.0, now=0.0) == 0.5


@pytest.mark.parametrize(
    ("env", "job"),
    [
        ({}, None),
        ({"SLURM_JOB_ID": "12"}, SlurmJob("12")),
        (
            {
                "SLURM_JOB_ID": "15",
                "SLURM_ARRAY_JOB_ID": "12",
                "SLURM_ARRAY_TASK_ID": "3",
                "SLURM_RESTART_COUNT": "2",
                "SLURMD_NODENAME": "gpu01",
                "SLURM_JOB_NUM_NODES": "4",
                "SLURM_JOB_GPUS": "0,1,2",
                "SLURM_JOB_NAME": "toy@abc.0",
            },
            SlurmJob("12_3", 2, "gpu01", 4, ("0", "1", "2"), "toy@abc.0"),
        ),
        (
            {"SLURM_JOB_ID": "12", "SLURM_JOB_GPUS": "0,1", "SLURM_STEP_GPUS": "1"},
            SlurmJob("12", gpus=("1",)),
        ),
        ({"SLURM_JOB_ID": "12", "SLURM_RESTART_COUNT": "x"}, SlurmJob("12")),
    ],
)
def test_job_is_named_by_its_environment(env: dict[str, str], job: SlurmJob | None) -> None:
    assert own_job(env) == job


@pytest.mark.parametrize(
    ("message", "passing"),
    [
        ("`scontrol` gave no answer within 5 s", True),
        ("`scontrol` failed: Unable to contact slurm controller (connect failure)", True),
        ("`scontrol` failed: Socket timed out on send/recv operation", True),
        ("`scontrol` failed: Zero Bytes were transmitted or received", True),
        ("`scontrol` failed: Invalid job id specified", False),
        ("`scontrol` failed: Requested operation is presently disabled", False),
        ("`scontrol` is not on the PATH", False),
    ],
)
def test_failures_that_may_pass_are_told_from_refusals(message: str, passing: bool) -> None:
    assert is_passing(SlurmError(message)) is passing


def test_slurm_that_is_not_there_is_silent(monkeypatch: Any) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    facts = SlurmJob("12_3").ask()
    assert facts == JobFacts(JobSign.SILENT, "`scontrol` is not on the PATH")
    SlurmJob("12_3").rename("another")  # best effort
    with pytest.raises(SlurmError):
        SlurmJob("12_3").requeue()
