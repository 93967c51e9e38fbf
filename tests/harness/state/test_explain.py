from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from harness.errors import UsageError
from harness.state.explain import explain, tail_log
from harness.state.status import RunState

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
    with pytest.raises(UsageError, match="run `ok/seed_0` was never started") as error:
        tail_log(sweep.run("ok"), 5)
    assert error.value.hint == "start it with `harness run toy`"


@pytest.mark.parametrize("num_lines", [0, 1, 3, 100_000])
def test_tail_log_returns_the_last_lines(make_sweep: MakeSweep, num_lines: int) -> None:
    sweep = make_sweep({"ok": ("trains", "METRICS", "0")})
    sweep.start_runner("ok", sweep.submit()).wait()
    log = sweep.run("ok").attempt(1).log
    lines = [f"{i} {'x' * 40}" for i in range(5_000)]
    log.write_text("\n".join(lines) + "\n")
    assert tail_log(sweep.run("ok"), num_lines) == (lines[-num_lines:] if num_lines else [])
    log.write_text("\n".join([*lines, "unfinished"]))
    assert tail_log(sweep.run("ok"), 1) == ["unfinished"]


def test_tail_log_of_an_earlier_attempt(make_sweep: MakeSweep) -> None:
    sweep = make_sweep({"oom": ("kills_itself",)})
    for _ in range(2):
        sweep.start_runner("oom", sweep.submit()).wait()
    sweep.run("oom").attempt(2).log.write_text("second\n")
    assert tail_log(sweep.run("oom"), 9, attempt=1) == ["allocating"]
    assert tail_log(sweep.run("oom"), 9) == ["second"]
    with pytest.raises(UsageError, match="no attempt 3") as error:
        tail_log(sweep.run("oom"), 9, attempt=3)
    assert error.value.hint == "attempts: 1, 2"
