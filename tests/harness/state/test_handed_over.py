"""States of runs that were handed to SLURM, told from records that are written by hand.

What real clusters show is tested in tests/slurm/test_state.py.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness.state.status import (
    FINISHED_STATES,
    LIVE_STATES,
    RunState,
    RunStatus,
    may_be_at_work,
    may_resubmit,
)
from tests.harness.state.records import (
    ELSEWHERE,
    NOW,
    TRAINS,
    rewrite_intent,
    state_of,
    submit_to_slurm,
    write_claim,
    write_exit,
    write_heartbeat,
)

if TYPE_CHECKING:
    from tests.harness.conftest import DiskSweep


@pytest.fixture
def _no_slurm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without SLURM's commands: nothing in here has a reason to call one."""
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.usefixtures("_no_slurm")
def test_records_of_a_run_on_slurm_speak_without_slurm(sweep: DiskSweep) -> None:
    submission = submit_to_slurm(sweep, "accepted", job_id="12")
    on_node: dict[str, Any] = {"job_id": "12_0", "node": "gpu01", "gpus": ("0", "1")}
    write_claim(sweep, submission, **ELSEWHERE, **on_node)
    write_heartbeat(sweep, age_s=59)
    status = state_of(sweep)
    assert (status.state, status.node, status.job_id) == (RunState.RUNNING, "gpu01", "12_0")
    assert (status.limit_s, status.profile_type, status.gpus) == (5400.0, "slurm", ("0", "1"))
    assert status.gpu_hours == pytest.approx(41 * 2 / 3600)
    assert status.lost_gpu_hours == 0.0
    write_exit(sweep, "done")
    assert state_of(sweep).state is RunState.DONE
    sweep.replan({"ok": TRAINS}, max_steps=200)
    status = state_of(sweep)
    assert (status.state, status.reason) == (RunState.PLANNED, "done to 100 of 200")


@pytest.mark.usefixtures("_no_slurm")
def test_runner_that_says_that_its_trainer_stalls_is_believed(sweep: DiskSweep) -> None:
    write_claim(sweep, submit_to_slurm(sweep, "accepted", job_id="12"), **ELSEWHERE)
    write_heartbeat(sweep, age_s=2, stalled_since=NOW - 2_000)
    status = state_of(sweep)
    assert (status.state, status.since) == (RunState.STALLED, NOW - 2_000)
    assert status.reason == "its trainer logs no new step"


@pytest.mark.usefixtures("_no_slurm")
def test_slurm_that_is_not_there_leaves_a_silent_run_unknown(sweep: DiskSweep) -> None:
    write_claim(sweep, submit_to_slurm(sweep, "accepted", job_id="12"), **ELSEWHERE)
    write_heartbeat(sweep, age_s=61)
    status = state_of(sweep)
    assert (status.state, status.since, status.is_damaged) == (RunState.UNKNOWN, NOW - 61, False)
    assert status.reason == "SLURM doesn't answer: `squeue` is not on the PATH"
    assert (status.job_id, may_resubmit(status)) == ("12_0", False)


@pytest.mark.usefixtures("_no_slurm")
@pytest.mark.parametrize(
    ("state", "error", "reason"),
    [
        ("refused", "Invalid account", "Invalid account"),
        ("not_submitted", "", "its job was not submitted"),
    ],
)
def test_run_that_slurm_never_got_is_planned(
    sweep: DiskSweep, state: str, error: str, reason: str
) -> None:
    submit_to_slurm(sweep, state, error)
    status = state_of(sweep)
    assert (status.state, status.reason) == (RunState.PLANNED, reason)
    assert may_resubmit(status)


@pytest.mark.usefixtures("_no_slurm")
def test_refused_submission_leaves_a_run_as_it_was(sweep: DiskSweep) -> None:
    write_claim(sweep, sweep.submit())
    write_exit(sweep, "failed", error="ValueError: no")
    submit_to_slurm(sweep, "refused", "Invalid account")
    status = state_of(sweep)
    assert status.state is RunState.FAILED
    assert status.reason == "ValueError: no; not submitted again: Invalid account"


@pytest.mark.usefixtures("_no_slurm")
def test_attempt_on_slurm_that_a_newer_queue_has_taken_over_is_lost(
    sweep: DiskSweep, dead: dict[str, Any]
) -> None:
    write_claim(sweep, submit_to_slurm(sweep, "accepted", job_id="12"), **ELSEWHERE)
    write_heartbeat(sweep, age_s=61)
    newer = sweep.submit()
    assert state_of(sweep).state is RunState.QUEUED
    rewrite_intent(newer, **dead)
    status = state_of(sweep)
    assert (status.state, may_resubmit(status)) == (RunState.LOST, True)


@pytest.mark.parametrize("state", list(RunState))
@pytest.mark.parametrize("profile_type", ["local", "slurm", None])
def test_only_runs_that_nothing_can_be_at_work_on_are_handed_over_again(
    state: RunState, profile_type: str | None
) -> None:
    status = RunStatus("ok", 0, state, profile_type=profile_type)
    never = FINISHED_STATES | LIVE_STATES
    is_open = state is RunState.UNKNOWN and profile_type == "slurm"
    assert may_resubmit(status) is (state not in never and not is_open)
    assert may_be_at_work(status) is (state in LIVE_STATES or is_open)
    assert not may_resubmit(replace(status, is_damaged=True))
