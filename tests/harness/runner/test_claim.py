from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.errors import HarnessError
from harness.records.layout import RunPaths
from harness.runner.claim import (
    NoWork,
    create_claim,
    find_assignment,
    newest_submission,
    wait_for_previous,
)

if TYPE_CHECKING:
    from tests.harness.conftest import DiskSweep

    MakeSweep = Callable[..., DiskSweep]

TRAINS = ("trains", "METRICS", "0")


def never(_seconds: float) -> None:
    raise AssertionError("nothing to wait for")


def test_assignment_holds_the_steps_and_settings_of_the_submission(make_sweep: MakeSweep) -> None:
    sweep = make_sweep({"a": TRAINS, "b": TRAINS}, seeds=[0, 4], max_steps=7)
    submission = sweep.submit(grace_s=2.5, heartbeat_limit_s=12.0)
    sweep.replan({"a": TRAINS}, max_steps=99)
    assignment = find_assignment(sweep.run("b", 4), submission.paths.id)
    assert (assignment.run.run_id, assignment.run.max_steps) == ("b/seed_4", 7)
    assert (assignment.grace_s, assignment.heartbeat_limit_s) == (2.5, 12.0)


@pytest.mark.parametrize("submission_id", ["0009-abcdef", "", "../../elsewhere"])
def test_submission_that_does_not_list_the_run_is_an_error(
    make_sweep: MakeSweep, submission_id: str
) -> None:
    sweep = make_sweep({"a": TRAINS, "b": TRAINS})
    sweep.submit(["b"])
    with pytest.raises(HarnessError, match="doesn't list"):
        find_assignment(sweep.run("a"), submission_id)
    sweep.submit(["a"])
    with pytest.raises(HarnessError, match="doesn't list"):
        find_assignment(sweep.run("a"), submission_id)


def test_newest_submission_is_the_newest_that_lists_the_run(make_sweep: MakeSweep) -> None:
    sweep = make_sweep({"a": TRAINS, "b": TRAINS})
    assert newest_submission(sweep.run("a")) is None
    sweep.submit()
    second = sweep.submit(["a"])
    sweep.submit(["b"])
    assert newest_submission(sweep.run("a")) == second.paths


def test_attempts_count_up_from_one(make_sweep: MakeSweep) -> None:
    sweep = make_sweep({"a": TRAINS})
    assignment = find_assignment(sweep.run("a"), sweep.submit().paths.id)
    assert wait_for_previous(sweep.run("a"), assignment, never) == 1
    create_claim(sweep.run("a"), assignment, 1)
    sweep.run("a").attempt(1).exit.write_text("{}")
    assert wait_for_previous(sweep.run("a"), assignment, never) == 2


def test_waiting_ends_when_a_newer_submission_appears(make_sweep: MakeSweep) -> None:
    sweep = make_sweep({"a": TRAINS})
    assignment = find_assignment(sweep.run("a"), sweep.submit().paths.id)
    create_claim(sweep.run("a"), assignment, 1)

    def submit_again(_seconds: float) -> None:
        sweep.submit()

    with pytest.raises(NoWork, match="appeared and lists this run"):
        wait_for_previous(sweep.run("a"), assignment, submit_again)


def _claim(root: str, submission_id: str, barrier: Barrier, results: Queue[bool]) -> None:
    paths = RunPaths(Path(root))
    assignment = find_assignment(paths, submission_id)
    number = wait_for_previous(paths, assignment, never)
    barrier.wait()
    try:
        create_claim(paths, assignment, number)
    except NoWork:
        results.put(False)
    else:
        results.put(True)


def test_of_many_claims_of_one_attempt_exactly_one_succeeds(make_sweep: MakeSweep) -> None:
    sweep = make_sweep({"a": TRAINS})
    submission = sweep.submit()
    context = multiprocessing.get_context("fork")
    results: Queue[bool] = context.Queue()
    barrier = context.Barrier(8)
    arguments = (str(sweep.run("a").root), submission.paths.id, barrier, results)
    processes = [context.Process(target=_claim, args=arguments) for _ in range(8)]
    for process in processes:
        process.start()
    won = [results.get(timeout=30) for _ in processes]
    for process in processes:
        process.join()
    assert sorted(won) == [False] * 7 + [True]
    assert sweep.claim("a").attempt == 1
