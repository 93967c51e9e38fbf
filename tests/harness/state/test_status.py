"""States told from records that are written by hand, and from one real queue."""

from __future__ import annotations

import dataclasses
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from harness.dispatch.requests import write_cancel_request
from harness.dispatch.submission import write_receipt
from harness.errors import HarnessError
from harness.records.files import read_json, write_json
from harness.records.layout import SweepPaths
from harness.records.model import StopRule, to_record
from harness.runner.process import host_name, process_start
from harness.state.status import RunState, RunStatus, may_resubmit, read_states
from harness.sweep.finished import find_earlier
from tests.harness.state.records import (
    ELSEWHERE,
    NOW,
    TRAINS,
    rewrite_intent,
    state_of,
    write_claim,
    write_exit,
    write_heartbeat,
)

if TYPE_CHECKING:
    from tests.harness.conftest import DiskSweep

    MakeSweep = Callable[..., DiskSweep]
    WaitUntil = Callable[..., None]


def test_run_that_nobody_asked_for_is_planned(sweep: DiskSweep) -> None:
    assert state_of(sweep) == RunStatus("ok", 0, RunState.PLANNED, max_steps=100)


def test_run_of_a_live_queue_is_queued_since_its_intent(sweep: DiskSweep) -> None:
    submission = sweep.submit()
    status = state_of(sweep)
    assert (status.state, status.submission, status.since) == (
        RunState.QUEUED,
        submission.paths.id,
        submission.intent.time,
    )


def test_run_of_a_queue_on_another_machine_is_queued(sweep: DiskSweep) -> None:
    rewrite_intent(sweep.submit(), **ELSEWHERE)
    assert state_of(sweep).state is RunState.QUEUED


def test_run_of_a_dead_queue_is_planned_again(sweep: DiskSweep, dead: dict[str, Any]) -> None:
    rewrite_intent(sweep.submit(), **dead)
    status = state_of(sweep)
    assert (status.state, status.reason) == (
        RunState.PLANNED,
        "the queue that held it ended before it began",
    )


def test_run_with_a_fresh_heartbeat_is_running(sweep: DiskSweep) -> None:
    write_claim(sweep, sweep.submit())
    write_heartbeat(sweep, age_s=2)
    status = state_of(sweep)
    assert (status.state, status.since, status.elapsed_s) == (RunState.RUNNING, NOW - 100, 100)
    assert (status.step, status.tokens, status.mismatch_kl, status.solve_rate) == (
        40,
        400,
        0.01,
        0.6,
    )
    assert status.eta_s == 30.0


def test_claim_alone_is_a_sign_of_life(sweep: DiskSweep) -> None:
    write_claim(sweep, sweep.submit(), time=NOW - 3, **ELSEWHERE)
    assert state_of(sweep).state is RunState.RUNNING


def test_silent_runner_is_stalled_not_ended(sweep: DiskSweep) -> None:
    write_claim(sweep, sweep.submit())
    write_heartbeat(sweep, age_s=45)
    status = state_of(sweep)
    assert (status.state, status.since) == (RunState.STALLED, NOW - 45)
    assert status.reason == f"no sign of life from {host_name()} for 45 s"
    assert status.eta_s is None


def test_limit_of_silence_is_the_profile_s(sweep: DiskSweep) -> None:
    write_claim(sweep, sweep.submit(heartbeat_limit_s=60.0))
    write_heartbeat(sweep, age_s=45)
    assert state_of(sweep).state is RunState.RUNNING


def test_run_whose_runner_is_proven_dead_is_lost(sweep: DiskSweep, dead: dict[str, Any]) -> None:
    write_claim(sweep, sweep.submit(), **dead)
    write_heartbeat(sweep, age_s=2)
    status = state_of(sweep)
    assert (status.state, status.elapsed_s) == (RunState.LOST, 98)
    assert status.reason == f"its runner (pid {dead['pid']} on {host_name()}) is gone"


def test_silent_run_of_another_machine_is_lost_only_when_its_submission_is_over(
    sweep: DiskSweep,
) -> None:
    submission = sweep.submit()
    write_claim(sweep, submission, **ELSEWHERE)
    write_heartbeat(sweep, age_s=45)
    assert state_of(sweep).state is RunState.STALLED
    write_receipt(submission, {}, {})
    status = state_of(sweep)
    assert status.state is RunState.LOST
    assert status.reason == "no sign of life from another-node for 45 s, and its submission is over"


@pytest.mark.parametrize(
    ("reason", "state"),
    [
        ("done", RunState.DONE),
        ("failed", RunState.FAILED),
        ("cancelled", RunState.CANCELLED),
        ("stopped", RunState.STOPPED),
        ("superseded", RunState.UNKNOWN),
        ("a later version's", RunState.UNKNOWN),
    ],
)
def test_exit_record_decides(sweep: DiskSweep, reason: str, state: RunState) -> None:
    write_claim(sweep, sweep.submit())
    write_exit(sweep, reason)
    status = state_of(sweep)
    assert (status.state, status.since, status.elapsed_s) == (state, NOW - 20, 70)
    assert (status.step, status.gpus) == (100, ("3",))


def test_failed_run_carries_its_error(sweep: DiskSweep) -> None:
    write_claim(sweep, sweep.submit())
    write_exit(sweep, "failed", error="ValueError: no", last_step=12)
    assert (state_of(sweep).reason, state_of(sweep).step) == ("ValueError: no", 12)


def test_done_run_is_planned_again_when_max_steps_was_raised(sweep: DiskSweep) -> None:
    submission = sweep.submit()
    write_claim(sweep, submission)
    write_exit(sweep, "done")
    write_receipt(submission, {}, {"ok/seed_0": "done"})
    sweep.replan({"ok": TRAINS}, max_steps=200)
    status = state_of(sweep)
    assert (status.state, status.reason, status.max_steps) == (
        RunState.PLANNED,
        "done to 100 of 200",
        200,
    )
    sweep.submit()
    assert state_of(sweep).state is RunState.QUEUED


def test_lower_max_steps_leave_a_run_done(sweep: DiskSweep) -> None:
    write_claim(sweep, sweep.submit())
    write_exit(sweep, "done")
    sweep.replan({"ok": TRAINS}, max_steps=50)
    assert state_of(sweep).state is RunState.DONE


def test_done_run_in_a_new_live_submission_stays_done(sweep: DiskSweep) -> None:
    write_claim(sweep, sweep.submit())
    write_exit(sweep, "done")
    sweep.submit()
    assert state_of(sweep).state is RunState.DONE


def test_newest_attempt_decides(sweep: DiskSweep) -> None:
    submission = sweep.submit()
    write_claim(sweep, submission)
    write_exit(sweep, "failed")
    write_claim(sweep, submission, attempt=2)
    write_heartbeat(sweep, age_s=1, attempt=2)
    assert (state_of(sweep).state, state_of(sweep).attempt) == (RunState.RUNNING, 2)


def test_failed_run_is_queued_once_a_new_queue_holds_it(
    sweep: DiskSweep, dead: dict[str, Any]
) -> None:
    write_claim(sweep, sweep.submit())
    write_exit(sweep, "failed", error="no")
    newer = sweep.submit()
    assert (state_of(sweep).state, state_of(sweep).reason) == (RunState.QUEUED, "")
    rewrite_intent(newer, **dead)
    assert (state_of(sweep).state, state_of(sweep).reason) == (RunState.FAILED, "no")


def test_run_that_was_dropped_from_a_live_queue_is_cancelled(sweep: DiskSweep) -> None:
    submission = sweep.submit()
    write_cancel_request(submission.paths, ["ok/seed_0"])
    assert (state_of(sweep).state, state_of(sweep).reason) == (
        RunState.CANCELLED,
        "before it began",
    )


@pytest.mark.parametrize(
    ("outcome", "state"),
    [
        ("cancelled", RunState.CANCELLED),
        ("failed", RunState.FAILED),
        ("unknown", RunState.PLANNED),
    ],
)
def test_receipt_speaks_for_a_run_that_never_began(
    sweep: DiskSweep, outcome: str, state: RunState
) -> None:
    write_receipt(sweep.submit(), {}, {"ok/seed_0": outcome})
    assert state_of(sweep).state is state


@pytest.mark.parametrize("name", ["claim", "heartbeat", "exit"])
def test_damaged_record_makes_its_run_unknown_and_nothing_else(
    make_sweep: MakeSweep, name: str
) -> None:
    sweep = make_sweep({"ok": TRAINS, "other": TRAINS}, max_steps=100)
    write_claim(sweep, sweep.submit())
    write_heartbeat(sweep, age_s=2)
    write_exit(sweep, "done")
    path = getattr(sweep.run("ok").attempt(1), name)
    path.write_text('{"schema_version": 1')
    states = {status.run_id: status for status in read_states(sweep.paths, now=NOW)}
    assert states["ok/seed_0"].state is RunState.UNKNOWN
    assert str(path) in states["ok/seed_0"].reason
    assert states["ok/seed_0"].is_damaged
    assert "delete" in states["ok/seed_0"].hint
    assert states["other/seed_0"].state is RunState.QUEUED


def test_damaged_intent_leaves_a_done_run_done(sweep: DiskSweep) -> None:
    submission = sweep.submit()
    write_claim(sweep, submission)
    write_exit(sweep, "done")
    submission.paths.intent.write_text("{")
    assert state_of(sweep).state is RunState.DONE
    write_exit(sweep, "failed")
    status = state_of(sweep)
    assert (status.state, status.is_damaged) == (RunState.UNKNOWN, True)
    assert str(submission.paths.root) in status.hint


def test_runs_that_left_the_plan_come_last_and_are_marked(make_sweep: MakeSweep) -> None:
    sweep = make_sweep({"b": TRAINS, "a": TRAINS}, seeds=[1, 0])
    sweep.replan({"b": TRAINS}, seeds=[1])
    found = [(s.run_id, s.is_planned) for s in read_states(sweep.paths)]
    assert found == [
        ("b/seed_1", True),
        ("a/seed_0", False),
        ("a/seed_1", False),
        ("b/seed_0", False),
    ]


def test_sweep_without_a_plan_is_an_error(sweep: DiskSweep) -> None:
    sweep.paths.plan.unlink()
    with pytest.raises(HarnessError, match=r"plan\.json` is missing"):
        read_states(sweep.paths)


def test_reading_states_writes_nothing(sweep: DiskSweep) -> None:
    write_claim(sweep, sweep.submit())
    before = snapshot(sweep.paths)
    read_states(sweep.paths)
    assert snapshot(sweep.paths) == before


def snapshot(paths: SweepPaths) -> dict[str, Any]:
    return {str(p): read_json(p) for p in paths.root.rglob("*.json")}


def test_states_of_a_real_queue_from_another_process(
    make_sweep: MakeSweep, wait_until: WaitUntil
) -> None:
    sweep = make_sweep(
        {"a": ("trains", "METRICS", "0.02"), "b": TRAINS, "c": ("raises", "METRICS")}, max_steps=150
    )
    queue = sweep.start_queue({"slots": 1})
    seen: dict[str, list[RunState]] = {arm: [] for arm in "abc"}

    def has_ended() -> bool:
        for status in read_states(sweep.paths):
            if not seen[status.arm] or seen[status.arm][-1] is not status.state:
                seen[status.arm].append(status.state)
        return queue.process.poll() is not None

    wait_until(has_ended)
    has_ended()
    queue.wait()
    possible = {
        "a": [RunState.PLANNED, RunState.QUEUED, RunState.RUNNING, RunState.DONE],
        "b": [RunState.PLANNED, RunState.QUEUED, RunState.RUNNING, RunState.DONE],
        "c": [RunState.PLANNED, RunState.QUEUED, RunState.RUNNING, RunState.FAILED],
    }
    for arm, states in seen.items():
        assert [s for s in possible[arm] if s in states] == states
        assert states[-1] is possible[arm][-1]
    assert RunState.RUNNING in seen["a"]
    assert RunState.QUEUED in seen["b"]


def test_lost_run_after_a_killed_queue_and_runner(
    make_sweep: MakeSweep, wait_until: WaitUntil
) -> None:
    sweep = make_sweep({"a": ("trains", "METRICS", "0.02"), "b": TRAINS}, max_steps=10_000)
    queue = sweep.start_queue({"slots": 1})
    wait_until(sweep.run("a").metrics.exists)
    queue.process.send_signal(signal.SIGSTOP)
    runner_pid = sweep.claim("a").pid
    os.kill(runner_pid, signal.SIGKILL)
    queue.process.kill()
    queue.wait()
    wait_until(lambda: process_start(runner_pid) == "")
    states = {status.arm: status.state for status in read_states(sweep.paths)}
    assert states == {"a": RunState.LOST, "b": RunState.PLANNED}


def test_every_field_of_a_status_has_a_plain_value(sweep: DiskSweep) -> None:
    write_claim(sweep, sweep.submit())
    write_exit(sweep, "done")
    values = dataclasses.asdict(state_of(sweep)).values()
    assert all(isinstance(v, (str, int, float, bool, tuple, type(None))) for v in values)


RULE = StopRule("collapsed", hold_steps=40)


def set_rules(sweep: DiskSweep, *rules: StopRule) -> None:
    write_json(sweep.paths.plan, to_record(replace(sweep.plan, stop_when=rules)))


def test_a_stopped_run_says_by_what_and_stays_so_when_max_steps_is_raised(
    sweep: DiskSweep,
) -> None:
    write_claim(sweep, sweep.submit())
    write_exit(sweep, "stopped", rule=RULE.text, rule_step=57, unspent_gpu_hours=12.34)
    sweep.replan({"ok": TRAINS}, max_steps=200)
    set_rules(sweep, RULE)
    status = state_of(sweep)
    assert (status.state, status.reason) == (
        RunState.STOPPED,
        "by `collapsed:hold_steps=40` at step 57, 12.3 GPU-hours not spent",
    )
    assert not may_resubmit(status)


def test_a_stopped_run_is_planned_again_once_its_rule_is_gone(sweep: DiskSweep) -> None:
    write_claim(sweep, sweep.submit())
    write_exit(sweep, "stopped", rule=RULE.text, rule_step=57)
    set_rules(sweep, StopRule("collapsed", hold_steps=80))
    status = state_of(sweep)
    assert (status.state, status.reason) == (
        RunState.PLANNED,
        "stopped by `collapsed:hold_steps=40`, which is no rule of the sweep any more",
    )
    assert may_resubmit(status)
    run = sweep.plan.runs[0]
    sweep.run("ok").metrics.parent.mkdir(parents=True, exist_ok=True)
    sweep.run("ok").metrics.write_text('{"step": 1}\n')
    assert [e.is_done for e in find_earlier(sweep.paths, [run], [RULE])] == [True]
    assert [e.is_done for e in find_earlier(sweep.paths, [run])] == [False]


def test_a_stopped_run_that_is_handed_over_again_is_queued(
    sweep: DiskSweep, dead: dict[str, Any]
) -> None:
    write_claim(sweep, sweep.submit())
    write_exit(sweep, "stopped", rule=RULE.text, rule_step=57)
    set_rules(sweep, RULE)
    again = sweep.submit()
    assert state_of(sweep).state is RunState.QUEUED
    rewrite_intent(again, **dead)
    assert state_of(sweep).state is RunState.STOPPED
