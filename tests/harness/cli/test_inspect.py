"""`harness why` and `harness logs` over records on disk."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.cli import run_command
from harness.cli.inspect import render_explanation
from harness.records.files import write_json
from harness.records.model import SCHEMA_VERSION, Exit, to_record
from harness.scheduler.jobs import Job
from harness.state.explain import Explanation
from harness.state.model import RunState, RunStatus
from tests.harness.cli.shell import Shell, sweep_text, wait_until

if TYPE_CHECKING:
    from tests.harness.conftest import DiskSweep

    MakeSweep = Callable[..., DiskSweep]

NOW = 1_000_000.0
FAILED = RunStatus(
    "ipo",
    0,
    RunState.FAILED,
    reason="ValueError: the batch is empty",
    since=NOW - 187,
    gpu_hours=12.0,
    lost_gpu_hours=0.5,
)
EXIT = Exit(
    SCHEMA_VERSION, 2, "failed", 3, None, "", 40, 100, ("gpu01",), ("0",), NOW - 300, NOW - 187
)
JOB = Job("12", 3, "FAILED", nodes="gpu01", exit_code="3:0", restarts=1)
TRACEBACK = "Traceback (most recent call last):\nValueError: the batch is empty"


def test_everything_that_is_known_of_a_failure_is_on_one_screen() -> None:
    found = Explanation(FAILED, EXIT, "", TRACEBACK, ("last",), Path("/logs/log"), JOB)
    assert render_explanation("study", found, NOW) == [
        "study ipo/seed_0: failed for 3:07",
        "reason: ValueError: the batch is empty",
        "attempt 2: exit code 3 after 1:53 at step 40 of 100 on gpu01",
        "SLURM: 12_3 FAILED, exit code 3, on gpu01, restarts: 1",
        "GPU-hours: 12.0, 0.50 of them lost",
        "",
        TRACEBACK,
        "",
        "log: /logs/log",
    ]


def test_without_a_traceback_the_last_lines_of_the_log_are_shown() -> None:
    lost = RunStatus("ipo", 0, RunState.LOST, reason="job 12_3: NODE_FAIL", hint="look there")
    found = Explanation(lost, None, "", "", ("step 1", "step \x1b[1m2\x07"), Path("log"))
    assert render_explanation("study", found, NOW) == [
        "study ipo/seed_0: lost",
        "reason: job 12_3: NODE_FAIL",
        "hint: look there",
        "",
        "last lines of the log:",
        "  step 1",
        "  step 2\\x07",
        "",
        "log: log",
    ]


def test_a_done_run_needs_no_lines_of_its_log() -> None:
    done = RunStatus("ipo", 0, RunState.DONE)
    found = Explanation(done, None, "", "", ("step 1",), Path("log"))
    assert render_explanation("study", found, NOW) == ["study ipo/seed_0: done", "", "log: log"]


@pytest.fixture
def sweep(make_sweep: MakeSweep, monkeypatch: pytest.MonkeyPatch) -> DiskSweep:
    sweep = make_sweep({"ipo": ("trains", "METRICS", "0")})
    monkeypatch.setenv("HARNESS_OUTPUTS", str(sweep.paths.root.parent))
    return sweep


def test_json_of_a_run_that_never_began(
    sweep: DiskSweep, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["why", "toy", "ipo/0", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["status"]["state"] == "planned"
    del found["status"]
    assert found == {"ending": "", "job": None, "traceback": "", "tail": [], "log": None}


def test_a_run_without_a_log_is_named_with_what_helps(
    sweep: DiskSweep, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["logs", "toy", "ipo/0"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "error: run `ipo/0` was never started, so it has no log",
        "hint: `harness run toy` starts what is missing",
    ]
    sweep.submit()
    assert run_command(["logs", "toy", "ipo/0"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "error: run `ipo/0` is queued and has no log yet",
        "hint: --follow waits for it",
    ]


def test_the_tail_of_a_log_is_as_long_as_asked(
    sweep: DiskSweep, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep.start_runner("ipo", sweep.submit()).wait()
    assert run_command(["logs", "toy", "ipo/0", "-n", "2"]) == 0
    assert capsys.readouterr().out == "step 2\nstep 3\n"
    assert run_command(["logs", "toy", "ipo/0", "--follow"]) == 0
    assert capsys.readouterr().out == "step 1\nstep 2\nstep 3\n"


def test_a_run_that_begins_only_now_is_followed_to_its_end(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    gate = tmp_path / "gate"
    shell.write(sweep_text("waits", str(gate)))
    queue = shell.start("run", "study", "--no-report", "--slots", "1")
    metrics = tmp_path / "outputs/study/runs/ipo/seed_0/trainer/metrics.jsonl"
    wait_until(lambda: metrics.is_file() and metrics.stat().st_size > 0)
    logs = shell.start("logs", "study", "icepop/1", "-f")
    assert logs.stderr is not None
    assert logs.stderr.readline() == "waiting for icepop/1 to begin\n"
    gate.touch()
    out, err = logs.communicate(timeout=60)
    assert (logs.returncode, err) == (0, "")
    log = tmp_path / "outputs/study/runs/icepop/seed_1/attempts/1/log"
    assert out == log.read_text()
    queue.communicate(timeout=60)


def test_an_exit_record_that_is_damaged_is_named(
    sweep: DiskSweep, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep.start_runner("ipo", sweep.submit()).wait()
    exit_path = sweep.run("ipo").attempt(1).exit
    write_json(exit_path, {k: v for k, v in to_record(EXIT).items() if k != "reason"})
    assert run_command(["why", "toy", "ipo/0"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "toy ipo/seed_0: unknown"
    assert lines[1].startswith(f"reason: `{exit_path}`")
    assert lines[2].startswith("hint: restore it, or delete it")
