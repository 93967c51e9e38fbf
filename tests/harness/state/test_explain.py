from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from harness.scheduler.jobs import Job
from harness.state.explain import describe_job, explain, find_log, read_last_lines
from harness.state.status import RunState
from tests.harness.state.records import submit_to_slurm, write_claim

if TYPE_CHECKING:
    from tests.harness.conftest import DiskSweep

    MakeSweep = Callable[..., DiskSweep]


def test_failed_run_is_explained_by_its_traceback_and_exit_code(make_sweep: MakeSweep) -> None:
    sweep = make_sweep({"bad": ("raises", "METRICS")})
    sweep.start_runner("bad", sweep.submit()).wait()
    told = explain(sweep.run("bad"))
    assert told.status.state is RunState.FAILED
    assert told.status.reason == "ValueError: the batch is empty"
    assert told.ending == "exit code 3"
    assert told.exit is not None
    assert told.exit.last_step == 2
    assert told.traceback.splitlines()[0] == "Traceback (most recent call last):"
    assert told.traceback.splitlines()[-1] == "ValueError: the batch is empty"
    assert told.tail[-1] == "wandb: You can sync this run to the cloud"
    assert told.log == sweep.run("bad").attempt(1).log


def test_killed_run_is_explained_by_its_signal(make_sweep: MakeSweep) -> None:
    sweep = make_sweep({"oom": ("kills_itself",)})
    sweep.start_runner("oom", sweep.submit()).wait()
    told = explain(sweep.run("oom"))
    assert (told.ending, told.traceback, told.tail) == ("SIGKILL", "", ("allocating",))


def test_run_that_never_started_has_no_log(make_sweep: MakeSweep) -> None:
    sweep = make_sweep({"ok": ("trains", "METRICS", "0")})
    told = explain(sweep.run("ok"))
    assert (told.status.state, told.exit, told.ending, told.log) == (
        RunState.PLANNED,
        None,
        "",
        None,
    )
    assert find_log(sweep.run("ok")) is None


@pytest.mark.parametrize("num_lines", [0, 1, 3, 100_000])
def test_last_lines_of_a_log(make_sweep: MakeSweep, num_lines: int) -> None:
    sweep = make_sweep({"ok": ("trains", "METRICS", "0")})
    sweep.start_runner("ok", sweep.submit()).wait()
    log = sweep.run("ok").attempt(1).log
    lines = [f"{i} {'x' * 40}" for i in range(5_000)]
    log.write_text("\n".join(lines) + "\n")
    assert read_last_lines(log, num_lines) == (lines[-num_lines:] if num_lines else [])
    log.write_text("\n".join([*lines, "unfinished"]))
    assert read_last_lines(log, 1) == ["unfinished"]


def test_log_is_the_newest_attempt_s(make_sweep: MakeSweep) -> None:
    sweep = make_sweep({"oom": ("kills_itself",)})
    for _ in range(2):
        sweep.start_runner("oom", sweep.submit()).wait()
    newest = sweep.run("oom").attempt(2).log
    assert find_log(sweep.run("oom")) == newest
    newest.unlink()
    assert find_log(sweep.run("oom")) == newest
    assert read_last_lines(newest, 5) == []


def test_batch_script_s_output_stands_in_for_a_log_that_says_nothing(sweep: DiskSweep) -> None:
    submission = submit_to_slurm(sweep, "accepted", job_id="12")
    assert find_log(sweep.run("ok")) is None
    batch_log = submission.paths.element_log("12", 0)
    batch_log.parent.mkdir()
    batch_log.write_text("python: command not found\n")
    assert find_log(sweep.run("ok")) == batch_log
    write_claim(sweep, submission)
    assert find_log(sweep.run("ok")) == batch_log
    own = sweep.run("ok").attempt(1).log
    own.write_text("step 1\n")
    assert find_log(sweep.run("ok")) == own
    batch_log.unlink()
    own.unlink()
    assert find_log(sweep.run("ok")) == own


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"state": "PENDING", "reason": "Priority", "exit_code": "0:0"}, "12_3 PENDING, Priority"),
        (
            {"state": "FAILED", "exit_code": "127:0", "nodes": "n1"},
            "12_3 FAILED, exit code 127, on n1",
        ),
        ({"state": "CANCELLED", "exit_code": "0:15"}, "12_3 CANCELLED, SIGTERM"),
        ({"state": "RUNNING", "nodes": "n1", "restarts": 2}, "12_3 RUNNING, on n1, restarts: 2"),
    ],
)
def test_job_on_one_line(values: dict[str, Any], line: str) -> None:
    assert describe_job(Job("12", 3, **values)) == line
