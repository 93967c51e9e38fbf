"""Records of a run `ok/seed_0`, written by hand, and the state that they tell."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from harness.dispatch.submission import Submission
from harness.records.files import write_json
from harness.records.model import (
    SCHEMA_VERSION,
    ArrayPlan,
    Claim,
    Exit,
    Heartbeat,
    JobReceipt,
    to_record,
)
from harness.runner.process import host_name, process_start
from harness.state.status import RunStatus, read_state, read_states

if TYPE_CHECKING:
    from tests.harness.conftest import DiskSweep

TRAINS = ("trains", "METRICS", "0")
NOW = 1_000_000.0
ELSEWHERE: dict[str, Any] = {"host": "another-node"}


def write_claim(sweep: DiskSweep, submission: Submission, attempt: int = 1, **values: Any) -> Claim:
    claim = Claim(
        schema_version=SCHEMA_VERSION,
        attempt=attempt,
        submission=submission.paths.id,
        nonce=submission.intent.nonce,
        host=host_name(),
        pid=os.getpid(),
        pid_started=process_start(os.getpid()),
        time=NOW - 100,
        max_steps=100,
        code_hash="0" * 64,
        machine={},
    )
    claim = replace(claim, **values)
    write_json(sweep.run("ok").attempt(attempt).claim, to_record(claim))
    return claim


def write_heartbeat(sweep: DiskSweep, age_s: float, attempt: int = 1, **values: Any) -> None:
    beat = Heartbeat(SCHEMA_VERSION, attempt, NOW - age_s, 40, 100, 400, 0.01, 0.6, 2.0, 1)
    beat = replace(beat, **values)
    write_json(sweep.run("ok").attempt(attempt).heartbeat, to_record(beat))


def write_exit(sweep: DiskSweep, reason: str, attempt: int = 1, **values: Any) -> None:
    ended = Exit(
        SCHEMA_VERSION, attempt, reason, 0, None, "", 100, 100, ("n",), ("3",), NOW - 90, NOW - 20
    )
    ended = replace(ended, **values)
    write_json(sweep.run("ok").attempt(attempt).exit, to_record(ended))


def rewrite_intent(submission: Submission, **values: Any) -> None:
    write_json(submission.paths.intent, to_record(submission.intent) | values)


def submit_to_slurm(
    sweep: DiskSweep, state: str | None = None, error: str = "", job_id: str | None = None
) -> Submission:
    """Write the intent of a submission to SLURM, and the receipt of its only array."""
    submission = sweep.submit()
    settings = {"type": "slurm", "time": 90, "heartbeat_limit_s": 60.0}
    array = ArrayPlan(0, f"toy@{submission.intent.nonce}.0", ("ok/seed_0",), settings)
    rewrite_intent(
        submission, settings=settings, arrays=[to_record(array)], user="root", time=NOW - 300
    )
    if state is not None:
        receipt = JobReceipt(
            SCHEMA_VERSION,
            submission.paths.id,
            "0",
            array.job_name,
            state,
            job_id,
            None,
            error,
            False,
            NOW - 299,
        )
        write_json(submission.paths.job_receipt("0"), to_record(receipt))
    return submission


def state_of(sweep: DiskSweep) -> RunStatus:
    [status] = read_states(sweep.paths, now=NOW)
    assert status == read_state(sweep.paths, "ok", 0, now=NOW)
    return status
