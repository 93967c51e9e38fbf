"""The state of every run of a sweep, from its records.

A run's own records come first (claim, heartbeat, exit), then the submissions that list it. Nothing
here writes, asks a scheduler, or takes silence for an end: an attempt on another machine that
falls silent is `stalled`, never finished.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from enum import StrEnum

from harness.errors import HarnessError
from harness.records.layout import AttemptPaths, RunPaths, SweepPaths
from harness.records.model import (
    Claim,
    Exit,
    Heartbeat,
    PlannedRun,
    PlanRecord,
    read_record,
    read_record_if_there,
)
from harness.runner.claim import HEARTBEAT_LIMIT_S
from harness.runner.process import Liveness, process_liveness
from harness.state.submissions import Submission, Submissions


class RunState(StrEnum):
    """Every state that a run can be in. `unknown` is neither running nor ended."""

    PLANNED = "planned"
    SUBMITTING = "submitting"
    QUEUED = "queued"
    RUNNING = "running"
    REQUEUED = "requeued"
    STALLED = "stalled"
    DONE = "done"
    STOPPED = "stopped"
    FAILED = "failed"
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out_of_memory"
    PREEMPTED = "preempted"
    CANCELLED = "cancelled"
    LOST = "lost"
    UNKNOWN = "unknown"


FINISHED_STATES = frozenset({RunState.DONE, RunState.STOPPED})
"""Nothing is missing from such a run."""
LIVE_STATES = frozenset(
    {
        RunState.SUBMITTING,
        RunState.QUEUED,
        RunState.RUNNING,
        RunState.REQUEUED,
        RunState.STALLED,
    }
)
"""Something is, or may be, still at work on such a run."""


@dataclass(frozen=True)
class RunStatus:
    """One run at one moment.

    Attributes:
        reason: one line where the state alone doesn't say enough; else empty.
        is_damaged: whether it is unknown because a record, named in `reason`, can't be read.
        hint: what to do about that record; else empty.
        since: when it came into this state, seconds since the epoch; None where never started.
        is_planned: False for a run that has left the plan.
        attempt, submission, host, job_id: of the newest attempt (queued: the submission it waits
            in).
        step, tokens, mismatch_kl, solve_rate, steps_per_s: the newest that were logged.
        max_steps: what the plan wants (of a run that left it: what its last attempt wanted).
        elapsed_s: of the newest attempt.
    """

    arm: str
    seed: int
    state: RunState
    reason: str = ""
    is_damaged: bool = False
    hint: str = ""
    since: float | None = None
    is_planned: bool = True
    attempt: int | None = None
    submission: str | None = None
    host: str | None = None
    job_id: str | None = None
    step: int | None = None
    max_steps: int | None = None
    tokens: int | None = None
    mismatch_kl: float | None = None
    solve_rate: float | None = None
    steps_per_s: float | None = None
    elapsed_s: float | None = None
    gpus: tuple[str, ...] = ()

    @property
    def run_id(self) -> str:
        return f"{self.arm}/seed_{self.seed}"

    @property
    def eta_s(self) -> float | None:
        """Expected seconds until `max_steps`; None unless it runs and moves."""
        if self.state is not RunState.RUNNING or not self.steps_per_s or self.max_steps is None:
            return None
        return max(0, self.max_steps - (self.step or 0)) / self.steps_per_s


def read_states(sweep: SweepPaths, *, now: float | None = None) -> list[RunStatus]:
    """Return the state of every planned run in the plan's order, then of those that left the plan.

    A damaged record makes its run `unknown` and nothing else.

    Raises:
        HarnessError: the sweep has no readable plan.
    """
    now = time.time() if now is None else now
    plan = read_record(PlanRecord, sweep.plan)
    submissions = Submissions(sweep)
    planned = {run.run_id: run for run in plan.runs}
    states = [_read_state(sweep.run(r.arm, r.seed), r, submissions, now) for r in plan.runs]
    for paths in sweep.runs():
        if f"{paths.arm}/{paths.root.name}" not in planned:
            states.append(_read_state(paths, None, submissions, now))
    return states


def read_state(sweep: SweepPaths, arm: str, seed: int, *, now: float | None = None) -> RunStatus:
    """Return the state of one run. Raises HarnessError where the sweep has no readable plan."""
    now = time.time() if now is None else now
    plan = read_record(PlanRecord, sweep.plan)
    planned = next((r for r in plan.runs if (r.arm, r.seed) == (arm, seed)), None)
    return _read_state(sweep.run(arm, seed), planned, Submissions(sweep), now)


@dataclass(frozen=True)
class _Attempt:
    paths: AttemptPaths
    claim: Claim
    heartbeat: Heartbeat | None
    exit: Exit | None

    @property
    def last_beat(self) -> float:
        beat = self.heartbeat.time if self.heartbeat is not None else self.claim.time
        return max(self.claim.time, beat)


def _read_state(
    paths: RunPaths, planned: PlannedRun | None, submissions: Submissions, now: float
) -> RunStatus:
    status = RunStatus(
        arm=paths.arm,
        seed=paths.seed,
        state=RunState.PLANNED,
        is_planned=planned is not None,
        max_steps=None if planned is None else planned.max_steps,
    )
    try:
        attempt = _newest_attempt(paths)
        if attempt is not None:
            status = _with_attempt(status, attempt, submissions, now)
        if status.state in LIVE_STATES | FINISHED_STATES:
            return status
        waiting = submissions.newest_with(status.run_id)
        return _with_submission(status, attempt, waiting)
    except HarnessError as error:
        return replace(
            status,
            state=RunState.UNKNOWN,
            reason=error.message,
            is_damaged=True,
            hint=error.hint,
        )


def _newest_attempt(paths: RunPaths) -> _Attempt | None:
    attempts = paths.attempts()
    if not attempts:
        return None
    newest = attempts[-1]
    return _Attempt(
        newest,
        read_record(Claim, newest.claim),
        read_record_if_there(Heartbeat, newest.heartbeat),
        read_record_if_there(Exit, newest.exit),
    )


def _with_attempt(
    status: RunStatus, attempt: _Attempt, submissions: Submissions, now: float
) -> RunStatus:
    claim, beat, ended = attempt.claim, attempt.heartbeat, attempt.exit
    status = replace(
        status,
        attempt=claim.attempt,
        submission=claim.submission,
        host=claim.host,
        job_id=claim.job_id,
        max_steps=claim.max_steps if status.max_steps is None else status.max_steps,
        step=None if beat is None else beat.step,
        tokens=None if beat is None else beat.tokens,
        mismatch_kl=None if beat is None else beat.mismatch_kl,
        solve_rate=None if beat is None else beat.solve_rate,
        steps_per_s=None if beat is None else beat.steps_per_s,
    )
    if ended is not None:
        return _with_exit(status, ended)
    state, reason = _judge_silence(attempt, submissions.get(claim.submission), now)
    is_live = state in LIVE_STATES
    return replace(
        status,
        state=state,
        reason=reason,
        since=claim.time if state is RunState.RUNNING else attempt.last_beat,
        elapsed_s=(now if is_live else attempt.last_beat) - claim.time,
    )


def _with_exit(status: RunStatus, ended: Exit) -> RunStatus:
    status = replace(
        status,
        since=ended.end,
        elapsed_s=ended.end - ended.start,
        step=ended.last_step,
        gpus=ended.gpus,
        reason=ended.error,
    )
    if ended.reason == RunState.DONE:
        if status.max_steps is not None and ended.max_steps < status.max_steps:
            reason = f"done to {ended.max_steps} of {status.max_steps}"
            return replace(status, state=RunState.PLANNED, reason=reason)
        return replace(status, state=RunState.DONE)
    if ended.reason in _EXIT_REASONS:
        return replace(status, state=RunState(ended.reason))
    reason = f"attempt {ended.attempt} ended as `{ended.reason}`"
    return replace(status, state=RunState.UNKNOWN, reason=reason)


def _judge_silence(
    attempt: _Attempt, submission: Submission | None, now: float
) -> tuple[RunState, str]:
    """Judge an attempt without an exit record."""
    claim = attempt.claim
    liveness = process_liveness(claim.host, claim.pid, claim.pid_started, claim.time)
    age_s = now - attempt.last_beat
    limit_s = HEARTBEAT_LIMIT_S
    if submission is not None:
        limit_s = float(submission.intent.settings.get("heartbeat_limit_s", limit_s))
    if liveness is Liveness.DEAD:
        return RunState.LOST, f"its runner (pid {claim.pid} on {claim.host}) is gone"
    if age_s <= limit_s:
        return RunState.RUNNING, ""
    silence = f"no sign of life from {claim.host} for {age_s:.0f} s"
    is_over = submission is not None and submission.liveness is Liveness.DEAD
    if liveness is Liveness.UNKNOWN and is_over:
        return RunState.LOST, f"{silence}, and its submission is over"
    return RunState.STALLED, silence


def _with_submission(
    status: RunStatus, attempt: _Attempt | None, submission: Submission | None
) -> RunStatus:
    """Let the newest submission that lists the run speak, where its attempt hasn't begun."""
    if submission is None:
        return status
    if attempt is not None and attempt.claim.submission == submission.intent.id:
        return status
    if submission.liveness is not Liveness.DEAD:
        since = submission.intent.time
        status = replace(status, submission=submission.intent.id, since=since)
        if status.run_id in submission.cancelled:
            return replace(status, state=RunState.CANCELLED, reason="before it began")
        if not submission.is_local and submission.receipt is None:
            return replace(status, state=RunState.SUBMITTING, reason="")
        return replace(status, state=RunState.QUEUED, reason="")
    if attempt is not None:
        return status
    outcome = None if submission.receipt is None else submission.receipt.outcomes.get(status.run_id)
    if outcome in _EXIT_REASONS:
        return replace(status, state=RunState(outcome), reason="before it began")
    return replace(status, reason="the queue that held it ended before it began")


_EXIT_REASONS = frozenset({"stopped", "failed", "cancelled"})
