"""`harness status` over sweeps on disk, as whole commands."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from harness.cli import run_command
from harness.cli.reading import Placement, Reading
from harness.cli.status import summarize, tell_stale
from harness.records.files import write_json
from harness.records.model import to_record
from harness.state.model import RunState, RunStatus

if TYPE_CHECKING:
    from tests.harness.conftest import DiskSweep

    MakeSweep = Callable[..., DiskSweep]

TRAINS = ("trains", "METRICS", "0")
SLURM = {"type": "slurm", "gpus_per_node": 8, "time": 90, "nodes": 2}


@pytest.fixture
def sweep(make_sweep: MakeSweep, monkeypatch: pytest.MonkeyPatch) -> DiskSweep:
    sweep = make_sweep({"ipo": TRAINS, "icepop": TRAINS}, seeds=(0, 1), max_steps=100)
    monkeypatch.setenv("HARNESS_OUTPUTS", str(sweep.paths.root.parent))
    return sweep


def test_a_planned_sweep_has_a_row_for_each_run_and_a_line_for_all(
    sweep: DiskSweep, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["status", "toy"]) == 0
    output = capsys.readouterr()
    assert output.out.splitlines() == [
        "arm     seed  state    age   step  ETA  KL  solve rate",
        "ipo        0  planned       0/100",
        "icepop     0  planned       0/100",
        "ipo        1  planned       0/100",
        "icepop     1  planned       0/100",
        "toy: 4 runs: 4 planned",
    ]
    assert output.err == ""


def test_one_arm_is_shown_alone(sweep: DiskSweep, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["status", "toy", "icepop"]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        "icepop     0  planned       0/100",
        "icepop     1  planned       0/100",
        "toy: 2 runs: 2 planned",
    ]


def test_states_filter_the_rows_and_may_leave_none(
    sweep: DiskSweep, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep.submit(["ipo"])  # by this process, which lives: its runs are queued
    assert run_command(["status", "toy", "--state", "failed,Queued"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in lines[1:-1]] == [
        ["ipo", "0", "queued"],
        ["ipo", "1", "queued"],
    ]
    assert lines[-1] == "toy: 2 runs: 2 queued"
    assert run_command(["status", "toy", "--state", "lost"]) == 0
    assert capsys.readouterr().out == "toy: 0 runs\n"


def test_json_holds_all_that_is_known(sweep: DiskSweep, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["status", "toy", "ipo/1", "--json"]) == 0
    [status] = json.loads(capsys.readouterr().out)
    names = {field.name for field in dataclasses.fields(RunStatus)}
    assert set(status) == names | {"eta_s"}
    assert (status["arm"], status["seed"], status["state"]) == ("ipo", 1, "planned")


@pytest.mark.parametrize(
    ("arguments", "error", "hint"),
    [
        (["--state", "fialed"], "--state: there is no state `fialed`", "did you mean `failed`?"),
        (["--watch"], "--watch needs a terminal", "`harness status toy` prints the table once"),
        (["--watch", "--json"], "--watch and --json don't go together", "leave one of them out"),
        (["kpop"], "sweep `toy` has no arm `kpop`", "did you mean `icepop`?"),
        (["ipo/7"], "arm `ipo` of `toy` has no seed 7", "seeds: 0, 1"),
        (["--wacth"], "there is no option `--wacth`", "did you mean `--watch`?"),
    ],
)
def test_what_cannot_be_shown_is_refused(
    sweep: DiskSweep,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    error: str,
    hint: str,
) -> None:
    assert run_command(["status", "toy", *arguments]) == 2
    assert capsys.readouterr().err.splitlines() == [f"error: {error}", f"hint: {hint}"]


def test_planned_gpu_hours_are_those_of_the_newest_submission(
    sweep: DiskSweep, capsys: pytest.CaptureFixture[str]
) -> None:
    submission = sweep.submit()
    record = to_record(submission.intent) | {"settings": SLURM, "user": "nobody"}
    write_json(submission.paths.intent, record)
    assert run_command(["status", "toy"]) == 0
    # Such a submission names no job for its runs.
    assert capsys.readouterr().out.splitlines()[-1] == "toy: 4 runs: 4 unknown; 96.0 planned"
    assert run_command(["status", "toy", "ipo"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "toy: 2 runs: 2 unknown"


def test_the_summary_counts_states_in_their_order_and_adds_gpu_hours() -> None:
    states = [
        RunStatus("ipo", 0, RunState.FAILED, gpu_hours=1.5, lost_gpu_hours=0.25),
        RunStatus("ipo", 1, RunState.DONE, gpu_hours=2.0),
        RunStatus("ipo", 2, RunState.DONE, gpu_hours=8.0, lost_gpu_hours=0.5),
        RunStatus("ipo", 3, RunState.QUEUED),
    ]
    assert summarize("toy", states, Placement(planned_gpu_hours=96.0)) == (
        "toy: 4 runs: 1 queued, 2 done, 1 failed;"
        " 11.5 GPU-hours used, 0.75 of them lost, 96.0 planned"
    )
    assert summarize("toy", [], Placement()) == "toy: 0 runs"


def test_a_stale_answer_is_marked_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    tell_stale(Reading([], 0.0, "`squeue` failed:\nno \x1b[1mcontroller"))
    assert capsys.readouterr().err == (
        "warning: SLURM doesn't answer: `squeue` failed: no controller; the states are from the"
        " runs' own records\n"
    )
    tell_stale(Reading([], 0.0))
    assert capsys.readouterr().err == ""
