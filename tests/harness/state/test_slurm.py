"""The table of states: what the records say against every word that SLURM has for a job."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from harness.records.model import SCHEMA_VERSION, Claim, Exit, Heartbeat, JobReceipt
from harness.runner.process import Liveness
from harness.scheduler.jobs import Job
from harness.scheduler.words import KNOWN_WORDS, Phase, phase_of
from harness.state.facts import Attempt, Verdict
from harness.state.jobs import Answer
from harness.state.model import RunState
from harness.state.slurm import SUBMIT_LIMIT_S, Handover, judge_slurm, needs_end

NOW = 1_000_000.0
LIMIT_S = 60.0
SUBMITTED = NOW - 10_000
STARTED = NOW - 5_000
SILENT_S = 500.0
EXITED = NOW - 400

RECEIPT = JobReceipt(
    SCHEMA_VERSION, "1", "0", "s@1.0", "accepted", "12", None, "", False, SUBMITTED
)
HANDOVER = Handover("s", "12_3", SUBMITTED, RECEIPT, Liveness.DEAD, LIMIT_S)
ABSENT = Answer()
SILENT_SLURM = Answer(error="`squeue` failed: no answer")


def attempt(reason: str | None = None, *, age_s: float = SILENT_S, **values: Any) -> Attempt:
    """A silent attempt, or one that ended with a reason."""
    claim = Claim(
        SCHEMA_VERSION, 1, "1", "n", "node", 1, "", STARTED + 10, 100, "", {}, job_id="12_3"
    )
    beat = Heartbeat(SCHEMA_VERSION, 1, NOW - age_s, 4, 100, None, None, None, None, None)
    ended = None
    if reason is not None:
        start = STARTED + 10
        ended = Exit(
            SCHEMA_VERSION, 1, reason, 1, None, "said", 4, 100, ("node",), (), start, EXITED
        )
        ended = replace(ended, **values)
    return Attempt(claim, beat, ended, None, LIMIT_S)


def job(word: str, **values: Any) -> Job:
    has_nodes = phase_of(word) not in (Phase.WAITING, Phase.UNKNOWN)
    plain = Job(
        "12",
        3,
        word,
        nodes="gpu01" if has_nodes else "",
        elapsed_s=4_700.0,
        exit_code="0:0",
        submit_time=SUBMITTED,
        start_time=STARTED if has_nodes else None,
    )
    return replace(plain, **values)


def judge(
    answer: Answer | Job,
    own: Attempt | None = None,
    *,
    earlier: Attempt | None = None,
    now: float = NOW,
    **handover: Any,
) -> Verdict:
    if isinstance(answer, Job):
        answer = Answer(answer)
    return judge_slurm(replace(HANDOVER, **handover), own, earlier, answer, now)


def state(*arguments: Any, **options: Any) -> RunState:
    return judge(*arguments, **options).state


INVENTED = "HIBERNATING"
WORDS = sorted(KNOWN_WORDS | {INVENTED})
OWN = {
    "none": None,
    "silent": attempt(),
    "failed": attempt("failed"),
    "failed, comes back": attempt("failed", requeue=True),
    "timeout": attempt("timeout"),
    "timeout, comes back": attempt("timeout", requeue=True),
    "preempted": attempt("preempted"),
    "cancelled": attempt("cancelled"),
    "out of memory": attempt("out_of_memory"),
    "superseded": attempt("superseded"),
}
BY_SLURM = {
    "BOOT_FAIL": "lost",
    "CANCELLED": "cancelled",
    "COMPLETED": "lost",
    "DEADLINE": "timeout",
    "FAILED": "failed",
    "NODE_FAIL": "lost",
    "OUT_OF_MEMORY": "out_of_memory",
    "PREEMPTED": "preempted",
    "REVOKED": "lost",
    "TIMEOUT": "timeout",
}
SUSPENDED, ENDED = "SUSPENDED", "any other end"


def row(waiting: str, running: str, suspended: str, ending: str, **ends: str) -> dict[str, str]:
    return {"waiting": waiting, "running": running, SUSPENDED: suspended, "ending": ending, **ends}


def settled(state: str, **ends: str) -> dict[str, str]:
    return row("requeued", state, state, state, **{ENDED: state}, **ends)


def comes_back(state: str, **ends: str) -> dict[str, str]:
    ends |= {ENDED: state, "CANCELLED": "cancelled"}
    return row("requeued", "requeued", "stalled", "requeued", **ends)


TABLE: dict[str, dict[str, str]] = {
    "none": row("queued", "stalled", "stalled", "queued", **BY_SLURM),
    "silent": row("requeued", "stalled", "stalled", "stalled", **BY_SLURM),
    "failed": settled("failed", OUT_OF_MEMORY="out_of_memory"),
    "failed, comes back": comes_back("failed", OUT_OF_MEMORY="out_of_memory"),
    "timeout": settled("timeout"),
    "timeout, comes back": comes_back("timeout"),
    "preempted": comes_back("preempted"),
    "cancelled": settled("cancelled"),
    "out of memory": settled("out_of_memory"),
    "superseded": row("requeued", "stalled", "stalled", "stalled", **BY_SLURM),
}


def expected(own: str, word: str) -> str:
    phase = phase_of(word)
    if phase is Phase.UNKNOWN:
        return "unknown"
    if word in TABLE[own]:
        return TABLE[own][word]
    return TABLE[own][ENDED if phase is Phase.ENDED else phase.value]


@pytest.mark.parametrize("own", OWN)
@pytest.mark.parametrize("word", WORDS)
def test_state_by_records_and_word(own: str, word: str) -> None:
    verdict = judge(job(word), OWN[own])
    assert verdict.state == expected(own, word)
    assert verdict.since is not None


@pytest.mark.parametrize(
    ("own", "by_absence", "without_answer"),
    [
        ("none", "lost", "unknown"),
        ("silent", "lost", "unknown"),
        ("failed", "failed", "failed"),
        ("failed, comes back", "failed", "unknown"),
        ("timeout", "timeout", "timeout"),
        ("timeout, comes back", "timeout", "unknown"),
        ("preempted", "preempted", "unknown"),
        ("cancelled", "cancelled", "cancelled"),
        ("out of memory", "out_of_memory", "out_of_memory"),
        ("superseded", "lost", "unknown"),
    ],
)
def test_state_where_slurm_knows_no_job_or_says_nothing(
    own: str, by_absence: str, without_answer: str
) -> None:
    assert own in TABLE
    assert state(ABSENT, OWN[own]) == by_absence
    assert state(SILENT_SLURM, OWN[own]) == without_answer


def test_invented_word_is_named() -> None:
    verdict = judge(job(INVENTED), attempt())
    assert verdict.reason == f"SLURM says `{INVENTED}` of job 12_3"
    assert verdict.since == NOW - SILENT_S


def test_silence_of_slurm_is_told_with_the_newest_sign_of_life() -> None:
    verdict = judge(SILENT_SLURM, attempt())
    assert verdict.reason == "SLURM doesn't answer: `squeue` failed: no answer"
    assert verdict.since == NOW - SILENT_S
    assert judge(SILENT_SLURM).since == SUBMITTED


@pytest.mark.parametrize(
    ("word", "reason", "said"),
    [
        ("PENDING", "Priority", "Priority"),
        ("PENDING", "", ""),
        (
            "REQUEUE_HOLD",
            "launch failed requeued held",
            "REQUEUE_HOLD, launch failed requeued held",
        ),
        ("CONFIGURING", "", "CONFIGURING"),
    ],
)
def test_why_a_run_waits(word: str, reason: str, said: str) -> None:
    assert judge(job(word, reason=reason)).reason == said


@pytest.mark.parametrize("own", [None, attempt()])
def test_job_that_slurm_holds_after_a_failed_launch_is_stalled_and_says_what_to_do(
    own: Attempt | None,
) -> None:
    verdict = judge(job("PENDING", reason="launch failed requeued held"), own)
    assert (verdict.state, verdict.reason) == (RunState.STALLED, "launch failed requeued held")
    assert verdict.hint == "SLURM could not start it; `harness run s` releases it"
    assert judge(job("PENDING", reason="JobHeldUser")).state is RunState.QUEUED


def test_queued_since_the_receipt_and_requeued_since_the_requeue() -> None:
    waiting = job("PENDING", submit_time=NOW - 20)
    assert judge(waiting).since == SUBMITTED
    assert judge(waiting, attempt()).since == NOW - 20


@pytest.mark.parametrize(
    ("age_s", "earlier", "told"),
    [
        (LIMIT_S - 1, None, "queued"),
        (LIMIT_S + 1, None, "stalled"),
        (LIMIT_S + 1, attempt("failed"), "stalled"),
        (LIMIT_S + 1, attempt(), "queued"),
        (2 * LIMIT_S + 1, attempt(), "stalled"),
    ],
)
def test_started_job_has_as_long_as_a_heartbeat_to_claim_its_run(
    age_s: float, earlier: Attempt | None, told: str
) -> None:
    """Twice as long where an attempt was cut off: its heartbeat has to age out before."""
    verdict = judge(job("RUNNING", start_time=NOW - age_s), earlier=earlier)
    assert verdict.state == told
    said = "starting on gpu01" if told == "queued" else f"on gpu01 for {age_s:.0f} s without a sign"
    assert verdict.reason.startswith(said)


def test_new_start_of_a_job_is_not_taken_for_the_old_one() -> None:
    again = job("RUNNING", start_time=NOW - 5, submit_time=NOW - 30)
    for own in (attempt(), attempt("failed"), attempt("cancelled")):
        verdict = judge(again, own)
        assert (verdict.state, verdict.reason) == (RunState.REQUEUED, "starting on gpu01")
    assert state(job("RUNNING", start_time=NOW - 121), attempt()) is RunState.STALLED


def test_new_start_that_ended_without_an_attempt_ends_the_run() -> None:
    again = job("FAILED", start_time=NOW - 5, elapsed_s=1.0, exit_code="127:0")
    verdict = judge(again, attempt("timeout", requeue=True))
    assert (verdict.state, verdict.reason) == (RunState.FAILED, "job 12_3: exit code 127")
    assert verdict.since == NOW - 4


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"exit_code": "127:0", "reason": "NonZeroExitCode"}, "job 12_3: exit code 127"),
        ({"exit_code": "0:9"}, "job 12_3: killed by signal 9"),
        ({"exit_code": "", "reason": ""}, "job 12_3: FAILED"),
        ({"exit_code": "0:9", "reason": "x y"}, "job 12_3: killed by signal 9, x y"),
    ],
)
def test_why_a_job_failed(values: dict[str, str], reason: str) -> None:
    assert judge(job("FAILED", **values)).reason == reason


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("COMPLETED", "job 12_3: ended without an exit record"),
        ("NODE_FAIL", "job 12_3: NODE_FAIL"),
    ],
)
def test_why_a_run_is_lost(word: str, reason: str) -> None:
    assert judge(job(word)).reason == reason


def test_run_that_slurm_forgot_is_lost_by_its_job_id() -> None:
    assert judge(ABSENT, attempt()).reason == "SLURM no longer knows job 12_3"


def test_element_that_vanished_from_its_array_before_it_began_was_cancelled() -> None:
    vanished = Answer(is_array_known=True)
    assert state(vanished, has_log=False) is RunState.CANCELLED
    assert state(vanished, has_log=None) is RunState.LOST
    assert state(vanished, has_log=True) is RunState.LOST
    assert state(vanished, attempt(), has_log=False) is RunState.LOST
    assert state(ABSENT, has_log=False) is RunState.LOST


def test_cancelled_array_speaks_for_elements_that_never_started_alone() -> None:
    array = job("CANCELLED", index=None)
    assert state(array) is RunState.CANCELLED
    assert state(array, attempt()) is RunState.LOST
    assert state(array, attempt("failed")) is RunState.FAILED


@pytest.mark.parametrize("word", sorted(BY_SLURM))
def test_any_end_of_a_run_that_was_to_be_cancelled_is_a_cancel(word: str) -> None:
    assert state(job(word), is_cancel_requested=True) is RunState.CANCELLED
    assert state(job(word), attempt(), is_cancel_requested=True) is RunState.CANCELLED


def test_cancel_request_alone_ends_nothing() -> None:
    asked: dict[str, Any] = {"is_cancel_requested": True}
    assert judge(job("PENDING", reason="Priority"), **asked) == Verdict(
        RunState.QUEUED, "its end was asked for, Priority", SUBMITTED
    )
    assert state(job("RUNNING"), attempt(), **asked) is RunState.STALLED
    assert state(SILENT_SLURM, **asked) is RunState.UNKNOWN
    assert state(ABSENT, **asked) is RunState.CANCELLED
    assert state(ABSENT, attempt("failed", requeue=True), **asked) is RunState.CANCELLED
    assert state(ABSENT, attempt("failed"), **asked) is RunState.FAILED


@pytest.mark.parametrize(
    ("submitter", "age_s", "told"),
    [
        (Liveness.ALIVE, 10_000, "submitting"),
        (Liveness.DEAD, 1, "unknown"),
        (Liveness.UNKNOWN, SUBMIT_LIMIT_S - 1, "submitting"),
        (Liveness.UNKNOWN, SUBMIT_LIMIT_S + 1, "unknown"),
    ],
)
@pytest.mark.parametrize("answer", [ABSENT, SILENT_SLURM])
def test_array_without_a_receipt(
    submitter: Liveness, age_s: float, told: str, answer: Answer
) -> None:
    verdict = judge(answer, receipt=None, submitter=submitter, submitted=NOW - age_s)
    assert (verdict.state, verdict.since) == (RunState(told), NOW - age_s)
    if told == "unknown":
        assert verdict.reason.startswith("interrupted submission")
        assert verdict.hint.startswith("`harness run s` finds out")


def test_array_without_a_receipt_that_slurm_knows_is_judged_by_it() -> None:
    assert state(job("PENDING"), receipt=None) is RunState.QUEUED
    assert state(ABSENT, attempt(), receipt=None) is RunState.LOST


def test_only_an_end_that_rests_on_slurm_is_looked_at_twice() -> None:
    ends = [judge(job("COMPLETED")), judge(ABSENT, attempt()), judge(job("FAILED"), attempt())]
    ends.append(judge(ABSENT, attempt("failed", requeue=True)))
    assert all(verdict.is_end_by_slurm for verdict in ends)
    others = [judge(job("PENDING")), judge(job("FAILED"), attempt("failed")), judge(SILENT_SLURM)]
    assert not any(verdict.is_end_by_slurm for verdict in others)


@pytest.mark.parametrize(
    ("own", "is_needed"),
    [
        (None, True),
        (attempt(), True),
        (attempt("failed"), False),
        (attempt("failed", requeue=True), True),
        (attempt("failed", code=None, signal=9), True),
        (attempt("failed", code=137), True),
        (attempt("cancelled"), False),
        (attempt("timeout"), False),
        (attempt("preempted"), True),
        (attempt("superseded"), True),
    ],
)
def test_accounting_is_asked_only_where_it_can_add_something(
    own: Attempt | None, is_needed: bool
) -> None:
    assert needs_end(own) is is_needed
