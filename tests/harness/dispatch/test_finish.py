"""The finishing job on records alone: no run of these sweeps needs SLURM's word."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.dispatch.arrays import plan_arrays
from harness.dispatch.finish import Totals, finish, main, summarise
from harness.dispatch.interface import Order
from harness.dispatch.receipts import (
    ACCEPTED,
    cluster_of,
    clusters_of,
    find_jobs,
    job_names,
    write_job_receipt,
)
from harness.dispatch.submission import Submission, new_nonce, open_submission
from harness.profile import Profile
from harness.records.files import write_json
from harness.records.layout import FINISH_JOB, SUBMISSION_DIR_ENV, RunPaths
from harness.records.model import SCHEMA_VERSION, Claim, Exit, Heartbeat, read_record, to_record
from harness.runner.process import host_name
from harness.scheduler.jobs import Job
from harness.slurm_profile import SlurmProfile
from tests.harness.conftest import DiskSweep

TRAINS = ("trains", "METRICS", "0")


def submit(sweep: DiskSweep, **settings: Any) -> Submission:
    """Open a submission of all runs whose jobs SLURM has taken."""
    profile = Profile("lab", SlurmProfile(**{"gpus_per_node": 2, "time": 30, **settings}))
    order = Order(sweep.paths, sweep.plan.runs, profile, "0" * 64)
    nonce = new_nonce()
    arrays = tuple(array.plan for array in plan_arrays(order, nonce, 1001))
    submission = open_submission(order, nonce, arrays=arrays, user="root")
    for name, job_id in (("0", "12"), (FINISH_JOB, "13")):
        write_job_receipt(submission.paths, submission.intent, name, ACCEPTED, job_id=job_id)
    return submission


def write_attempt(
    run: RunPaths, submission: Submission, reason: str | None, *, hours: float = 1.0
) -> None:
    """Write the records of attempt 1: begun `hours` ago; with an end, or alive without one."""
    now = time.time()
    claim = Claim(
        schema_version=SCHEMA_VERSION,
        attempt=1,
        submission=submission.intent.id,
        nonce=submission.intent.nonce,
        host="elsewhere",
        pid=1,
        pid_started="",
        time=now - hours * 3600,
        max_steps=3,
        code_hash="0" * 64,
        machine={},
        job_id="12_0",
        gpus=("0", "1"),
    )
    beat = Heartbeat(
        schema_version=SCHEMA_VERSION,
        attempt=1,
        time=now,
        step=3,
        max_steps=3,
        tokens=None,
        mismatch_kl=None,
        solve_rate=None,
        steps_per_s=1.0,
        trainer_pid=None,
        first_step=1,
    )
    write_json(run.attempt(1).claim, to_record(claim))
    write_json(run.attempt(1).heartbeat, to_record(beat))
    if reason is not None:
        ended = Exit(
            schema_version=SCHEMA_VERSION,
            attempt=1,
            reason=reason,
            code=0,
            signal=None,
            error="",
            last_step=3,
            max_steps=3,
            nodes=("elsewhere",),
            gpus=("0", "1"),
            start=claim.time,
            end=now,
            first_step=1,
        )
        write_json(run.attempt(1).exit, to_record(ended))


@pytest.fixture
def sweep(make_sweep: Callable[..., DiskSweep]) -> DiskSweep:
    sweep: DiskSweep = make_sweep({"a": TRAINS, "b": TRAINS})
    return sweep


def totals_of(submission: Submission) -> Totals:
    return read_record(Totals, submission.paths.totals)


def test_report_and_totals(
    sweep: DiskSweep, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    submission = submit(sweep)
    for arm in ("a", "b"):
        write_attempt(sweep.run(arm), submission, "done", hours=1.5)
    monkeypatch.setenv(SUBMISSION_DIR_ENV, str(submission.paths.root))
    assert main() == 0
    totals = totals_of(submission)
    assert totals.gpu_hours == pytest.approx(6.0)
    assert dataclasses.replace(totals, time=0.0, gpu_hours=6.0) == Totals(
        schema_version=1,
        submission=submission.intent.id,
        sweep="toy",
        states={"done": 2},
        runs={"a/seed_0": "done", "b/seed_0": "done"},
        gpu_hours=6.0,
        lost_gpu_hours=0.0,
        planned_gpu_hours=2.0,
        report=str(sweep.paths.report_html),
        error="",
        notified="",
        time=0.0,
    )
    assert sweep.paths.report_html.is_file()
    assert capsys.readouterr().err == f"{summarise(totals)}\n"
    assert summarise(totals) == (
        f"toy: 2 done; 6.00 GPU-hours used; report: {sweep.paths.report_html}"
    )


def test_newer_submission_whose_runs_live_reports_instead(
    sweep: DiskSweep, capsys: pytest.CaptureFixture[str]
) -> None:
    older = submit(sweep)
    newer = submit(sweep)
    write_attempt(sweep.run("a"), older, "done")
    write_attempt(sweep.run("b"), newer, None)
    assert finish(older.paths) == 0
    assert capsys.readouterr().err == (
        f"nothing to do: submission {newer.intent.id} is newer, still has runs, and will report\n"
    )
    assert not older.paths.totals.exists()
    assert not sweep.paths.report_html.exists()


def test_newer_submission_without_a_finishing_job_does_not_report(sweep: DiskSweep) -> None:
    older = submit(sweep)
    newer = submit(sweep)
    newer.paths.job_receipt(FINISH_JOB).unlink()
    write_attempt(sweep.run("a"), older, "done")
    write_attempt(sweep.run("b"), newer, None)
    assert finish(older.paths) == 0
    assert totals_of(older).states == {"done": 1, "running": 1}


def test_older_submission_is_no_reason_to_wait(sweep: DiskSweep) -> None:
    older = submit(sweep)
    newer = submit(sweep)
    write_attempt(sweep.run("a"), older, None)
    write_attempt(sweep.run("b"), newer, "done")
    assert finish(newer.paths) == 0
    assert totals_of(newer).states == {"done": 1, "running": 1}


def test_notice_is_sent_once_however_often_the_job_starts(sweep: DiskSweep, tmp_path: Path) -> None:
    submission = submit(sweep, notify={"command": f"cat >> {tmp_path}/notices"})
    for arm in ("a", "b"):
        write_attempt(sweep.run(arm), submission, "done")
    assert finish(submission.paths) == finish(submission.paths) == 0
    assert json.loads((tmp_path / "notices").read_text())["states"] == {"done": 2}
    assert totals_of(submission).notified == "sent"


def test_notice_that_fails_fails_the_job_and_is_tried_again(
    sweep: DiskSweep, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    submission = submit(sweep, notify={"command": f"test -e {tmp_path}/mended"})
    for arm in ("a", "b"):
        write_attempt(sweep.run(arm), submission, "done")
    assert finish(submission.paths) == 1
    assert totals_of(submission).notified == "failed: its command exited 1"
    assert sweep.paths.report_html.is_file(), "the report does not depend on it"
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == "error: the notice was not sent: its command exited 1"
    (tmp_path / "mended").touch()
    assert finish(submission.paths) == 0
    assert totals_of(submission).notified == "sent"


def test_report_that_cannot_be_written_is_told_and_the_notice_is_sent_all_the_same(
    sweep: DiskSweep, tmp_path: Path
) -> None:
    submission = submit(sweep, notify={"command": f"cat > {tmp_path}/notice"})
    for arm in ("a", "b"):
        write_attempt(sweep.run(arm), submission, "done")
    sweep.paths.report.root.write_text("in the way")
    assert finish(submission.paths) == 1
    totals = totals_of(submission)
    assert totals.report is None
    assert "report" in totals.error
    assert json.loads((tmp_path / "notice").read_text())["error"] == totals.error


@pytest.mark.parametrize(
    ("folder", "words"), [(None, "is not set"), ("/no/such/submission", "is missing")]
)
def test_job_without_a_submission_says_so(
    folder: str | None,
    words: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(SUBMISSION_DIR_ENV, raising=False)
    if folder is not None:
        monkeypatch.setenv(SUBMISSION_DIR_ENV, folder)
    assert main() == 1
    [line] = capsys.readouterr().err.splitlines()
    assert words in line


def test_jobs_are_known_by_the_end_of_their_name_or_their_comment(sweep: DiskSweep) -> None:
    intent = submit(sweep).intent
    assert job_names(intent) == ("0", FINISH_JOB)
    own = [
        Job("12", 0, "RUNNING", name=f"toy/a/0@{intent.nonce}.0"),
        Job("12", 1, "PENDING", name=f"toy@{intent.nonce}.0"),
        Job("14", 2, "PENDING", name="renamed by hand", comment=f"harness {intent.id} 0"),
    ]
    finishing = Job("13", None, "PENDING", name=f"toy@{intent.nonce}.finish")
    others = [
        Job("15", 0, "RUNNING", name="toy@abcdef.0"),
        Job("16", 0, "RUNNING", name=f"toy@{intent.nonce}.1"),
        Job("17", 0, "RUNNING", name=f"toy@{intent.nonce}.00"),
        Job("18", 0, "RUNNING", name="0", comment="harness"),
        Job("19", None, "RUNNING", name=""),
    ]
    assert find_jobs([*own, finishing, *others], intent) == {"0": own, FINISH_JOB: [finishing]}
    assert host_name() != "elsewhere"


@pytest.mark.parametrize(
    ("profile", "answers", "clusters"),
    [
        (None, [None, None], set()),
        (None, ["north", "north"], {"north"}),
        (None, [None, "north"], {"all"}),
        ("north,south", [], {"north", "south"}),
        ("north,south", ["south"], {"north", "south"}),
    ],
)
def test_clusters_are_asked_only_where_some_are_named(
    sweep: DiskSweep, profile: str | None, answers: list[str | None], clusters: set[str]
) -> None:
    submission = submit(sweep, sbatch={"clusters": profile} if profile else {})
    receipts = [
        write_job_receipt(
            submission.paths, submission.intent, "0", ACCEPTED, job_id="1", cluster=answer
        )
        for answer in answers
    ]
    assert clusters_of([submission.intent], receipts) == clusters
    job = Job("1", 0, "RUNNING", cluster="south")
    assert cluster_of(job, clusters) == ("south" if clusters else None)
