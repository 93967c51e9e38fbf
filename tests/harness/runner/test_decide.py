"""The table of ends: what an attempt is called and whether its job is started again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from harness.records.model import SCHEMA_VERSION, Exit
from harness.runner.decide import Case, Decision, Policy, Stop, decide, num_requeues
from harness.runner.slurm_job import SILENT, JobFacts, JobSign

POLICY = Policy()
RUNS = JobFacts(JobSign.RUNNING, end_time=1e9)
DAYS_S = 200_000.0
CRASH = "ValueError: the batch is empty"


def make_exit(reason: str = "failed", *, took_s: float = 3600.0, **values: Any) -> Exit:
    plain: dict[str, Any] = {
        "code": 1,
        "signal": None,
        "error": "",
        "last_step": 50,
        "max_steps": 100,
        "nodes": ("gpu01",),
        "gpus": (),
    }
    return Exit(SCHEMA_VERSION, 1, reason=reason, start=0.0, end=took_s, **(plain | values))


def make_case(stop: Stop, facts: JobFacts | JobSign = RUNS, **values: Any) -> Case:
    facts = JobFacts(facts) if isinstance(facts, JobSign) else facts
    plain: dict[str, Any] = {
        "is_done": False,
        "time_left_s": DAYS_S if facts.end_time is not None else None,
        "duration_s": 3600.0,
        "last_step": 80,
    }
    return Case(stop=stop, facts=facts, **(plain | values))


def failure(**values: Any) -> Case:
    return make_case(Stop.ITSELF, **({"error": CRASH} | values))


@pytest.mark.parametrize("stop", list(Stop))
@pytest.mark.parametrize("sign", list(JobSign))
def test_run_that_reached_its_last_step_is_done_whatever_came(stop: Stop, sign: JobSign) -> None:
    case = make_case(stop, sign, is_done=True, is_cancel_requested=True)
    assert decide(case, POLICY) == Decision("done")


@pytest.mark.parametrize("sign", list(JobSign))
def test_superseded_attempt_leaves_the_job_alone(sign: JobSign) -> None:
    assert decide(make_case(Stop.SUPERSEDED, sign), POLICY) == Decision("superseded")


@pytest.mark.parametrize("stop", [s for s in Stop if s is not Stop.SUPERSEDED])
@pytest.mark.parametrize("sign", list(JobSign))
def test_requested_cancel_always_holds(stop: Stop, sign: JobSign) -> None:
    case = make_case(stop, sign, is_cancel_requested=True, is_out_of_memory=True)
    assert decide(case, POLICY) == Decision("cancelled")


@pytest.mark.parametrize("stop", [s for s in Stop if s is not Stop.SUPERSEDED])
def test_scancel_is_never_undone(stop: Stop) -> None:
    assert decide(make_case(stop, JobSign.CANCELLED), POLICY) == Decision("cancelled")


@pytest.mark.parametrize("stop", [s for s in Stop if s not in (Stop.SUPERSEDED, Stop.RULE)])
def test_job_that_slurm_restarts_is_preempted_and_needs_no_requeue(stop: Stop) -> None:
    case = make_case(stop, JobSign.RESTARTING)
    expected = "cancelled" if stop in (Stop.ASKED, Stop.INTERRUPTED) else "preempted"
    assert decide(case, POLICY) == Decision(expected)


S, J = Stop, JobSign
NEAR: dict[str, Any] = {"time_left_s": 100.0}
GRACE = JobFacts(J.RUNNING, end_time=1e9, is_preempted=True)


@pytest.mark.parametrize(
    ("case", "decision"),
    [
        # A warning ahead of the time limit, and what looks like one.
        (make_case(S.WARNED, **NEAR), Decision("timeout", True)),
        (make_case(S.WARNED, time_left_s=-3.0), Decision("timeout", True)),
        (make_case(S.WARNED), Decision("preempted", True)),
        (make_case(S.WARNED, GRACE, **NEAR), Decision("preempted", True)),
        (make_case(S.WARNED, SILENT), Decision("timeout", True)),
        (make_case(S.WARNED, J.TIMEOUT), Decision("timeout", True)),
        (make_case(S.WARNED, J.PREEMPTED), Decision("preempted", True)),
        # SIGTERM.
        (make_case(S.TERMINATED), Decision("preempted", True)),
        (make_case(S.TERMINATED, GRACE, **NEAR), Decision("preempted", True)),
        (make_case(S.TERMINATED, **NEAR), Decision("timeout", True)),
        (make_case(S.TERMINATED, J.TIMEOUT), Decision("timeout", True)),
        (make_case(S.TERMINATED, J.PREEMPTED), Decision("preempted", True)),
        (
            make_case(S.TERMINATED, JobFacts(J.SILENT, "`scontrol` is not on the PATH")),
            Decision(
                "cancelled",
                error="SIGTERM came, and SLURM doesn't say why: `scontrol` is not on the PATH",
            ),
        ),
        (
            make_case(S.TERMINATED, JobFacts(J.ENDED, "NODE_FAIL")),
            Decision("failed", error="SLURM ended the job: NODE_FAIL"),
        ),
        # Stopped by hand or on request.
        (make_case(S.INTERRUPTED), Decision("cancelled")),
        (make_case(S.ASKED), Decision("cancelled")),
        # Ended by itself.
        (failure(), Decision("failed", True, CRASH)),
        (failure(facts=SILENT), Decision("failed", True, CRASH)),
        (
            failure(facts=JobFacts(J.ENDED, "FAILED")),
            Decision("failed", error=f"SLURM ended the job: FAILED; {CRASH}"),
        ),
        (failure(facts=JobFacts(J.TIMEOUT)), Decision("timeout", True)),
        (
            failure(is_out_of_memory=True, error="killed by SIGKILL: step 3"),
            Decision(
                "out_of_memory",
                error="killed by SIGKILL: step 3; the kernel's out-of-memory killer struck:"
                " raise `mem`",
            ),
        ),
        # A child that ran out of memory while the trainer was being stopped changes nothing.
        (make_case(S.WARNED, is_out_of_memory=True, **NEAR), Decision("timeout", True)),
        (make_case(S.STALLED, error="stalled"), Decision("failed", True, "stalled")),
    ],
)
def test_table(case: Case, decision: Decision) -> None:
    assert decide(case, POLICY) == decision


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        (make_case(S.WARNED, **NEAR), "timeout"),
        (make_case(S.TERMINATED, GRACE), "preempted"),
        (make_case(S.TERMINATED, J.PREEMPTED), "preempted"),
    ],
)
def test_requeue_false_is_obeyed_and_said(case: Case, reason: str) -> None:
    assert decide(case, replace(POLICY, requeue=False)) == Decision(
        reason, error="not started again, as the profile says `requeue: false`"
    )


def test_failure_without_requeue_names_both() -> None:
    assert decide(failure(), replace(POLICY, requeue=False)) == Decision(
        "failed", error=f"{CRASH}; not started again, as the profile says `requeue: false`"
    )


def test_failures_are_final_where_the_profile_says_so() -> None:
    assert decide(failure(), replace(POLICY, retry_failures=False)) == Decision(
        "failed", error=CRASH
    )
    case = make_case(S.WARNED, **NEAR)
    assert decide(case, replace(POLICY, retry_failures=False)).requeue


def test_budget_counts_the_restarts_that_runners_asked_for() -> None:
    past = [make_exit("timeout", requeue=True, last_step=s) for s in (10, 20, 30)]
    past.insert(1, None)  # type: ignore[arg-type]
    past.insert(1, make_exit("preempted"))
    assert num_requeues(past) == 3
    case = make_case(S.WARNED, past=past, **NEAR)
    assert decide(case, replace(POLICY, max_requeues=4)) == Decision("timeout", True)
    assert decide(case, replace(POLICY, max_requeues=3)) == Decision(
        "timeout",
        error="all 3 restarts are used up: raise `max_requeues`, or `harness retry`",
    )
    assert decide(failure(past=past), replace(POLICY, max_requeues=0)).error == (
        f"{CRASH}; all 3 restarts are used up: raise `max_requeues`, or `harness retry`"
    )


QUICK = make_exit(took_s=20.0, last_step=None, requeue=True)
AT_50 = make_exit(last_step=50, requeue=True)


@pytest.mark.parametrize(
    ("past", "case", "error"),
    [
        pytest.param(
            [QUICK],
            failure(duration_s=30.0, last_step=None),
            f"failed twice in a row within 60 s: {CRASH}",
            id="two quick ones",
        ),
        pytest.param(
            [AT_50, AT_50],
            failure(last_step=50),
            f"failed twice in a row without a step beyond 50: {CRASH}",
            id="twice no further",
        ),
        pytest.param(
            [AT_50, AT_50],
            failure(duration_s=5.0, last_step=50),
            f"failed twice in a row without a step beyond 50: {CRASH}",
            id="no further, then quick",
        ),
        pytest.param(
            [QUICK],
            failure(last_step=None),
            f"failed twice in a row without a step beyond 0: {CRASH}",
            id="quick, then no further",
        ),
        pytest.param(
            [make_exit("timeout", last_step=50), make_exit("failed", last_step=40)],
            failure(last_step=40),
            f"failed twice in a row without a step beyond 40: {CRASH}",
            id="behind a time limit",
        ),
    ],
)
def test_crash_loop_ends_with_its_reason(past: list[Exit | None], case: Case, error: str) -> None:
    assert decide(replace(case, past=past), POLICY) == Decision("failed", error=error)


@pytest.mark.parametrize(
    ("past", "case"),
    [
        pytest.param([], failure(duration_s=5.0, last_step=None), id="first quick failure"),
        pytest.param([QUICK], failure(last_step=10), id="quick, then progress"),
        pytest.param([AT_50], failure(last_step=50), id="no further once"),
        pytest.param([AT_50], failure(duration_s=5.0, last_step=50), id="quick once"),
        pytest.param([QUICK, AT_50], failure(last_step=51), id="further than before"),
        pytest.param(
            [QUICK, make_exit("preempted")], failure(duration_s=5.0), id="a preemption between"
        ),
        pytest.param([QUICK, None], failure(duration_s=5.0), id="a lost attempt between"),
    ],
)
def test_crash_loop_guard_lets_others_go_on(past: list[Exit | None], case: Case) -> None:
    assert decide(replace(case, past=past), POLICY) == Decision("failed", True, CRASH)


def test_time_limits_that_lead_nowhere_end_the_run() -> None:
    past = [make_exit("timeout", last_step=step, requeue=True) for step in (40, 40)]
    case = make_case(S.WARNED, past=past, last_step=40, **NEAR)
    assert decide(case, POLICY) == Decision(
        "timeout",
        error="ended at its time limit twice in a row without a step beyond 40: raise `time`, or"
        " let the trainer write checkpoints more often",
    )
    assert decide(replace(case, last_step=41), POLICY) == Decision("timeout", True)
    assert decide(replace(case, past=past[:1]), POLICY) == Decision("timeout", True)


def test_policy_is_read_from_the_settings_of_a_profile() -> None:
    settings = {"type": "slurm", "max_requeues": 3, "retry_failures": False, "grace_s": 5.0}
    assert Policy.of(settings) == Policy(max_requeues=3, retry_failures=False)
    assert Policy.of({}) == Policy()
