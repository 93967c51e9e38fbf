"""What the records say of one run, read once and then judged without touching the disk."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from harness.errors import HarnessError
from harness.records.layout import AttemptPaths, RunPaths
from harness.records.model import (
    Claim,
    Exit,
    Heartbeat,
    PlannedRun,
    read_record,
    read_record_if_there,
)
from harness.records.usage import AttemptRecords, Usage, run_usage
from harness.runner.claim import HEARTBEAT_LIMIT_S
from harness.runner.process import Liveness, process_liveness
from harness.state.model import RunState
from harness.state.submissions import Submission, Submissions

END_STATES = {
    state.value: state
    for state in (
        RunState.DONE,
        RunState.STOPPED,
        RunState.FAILED,
        RunState.TIMEOUT,
        RunState.OUT_OF_MEMORY,
        RunState.PREEMPTED,
        RunState.CANCELLED,
    )
}
"""Reason in an exit record -> state of its run."""


@dataclass(frozen=True)
class Verdict:
    """What a run's state was judged to be; the attributes are those of a status.

    Attributes:
        is_end_by_slurm: whether it rests on SLURM's word that nothing of the run is left.
    """

    state: RunState
    reason: str = ""
    since: float | None = None
    hint: str = ""
    is_end_by_slurm: bool = False


@dataclass(frozen=True)
class Attempt:
    """The newest attempt of a run.

    Attributes:
        submission: that it belongs to, where it has no exit record; else None.
        limit_s: a heartbeat older than this says nothing any more.
    """

    claim: Claim
    heartbeat: Heartbeat | None
    exit: Exit | None
    submission: Submission | None = None
    limit_s: float = HEARTBEAT_LIMIT_S

    @property
    def last_beat(self) -> float:
        beat = self.heartbeat.time if self.heartbeat is not None else self.claim.time
        return max(self.claim.time, beat)

    @property
    def liveness(self) -> Liveness:
        """What can be said of its runner from here."""
        c = self.claim
        return process_liveness(c.host, c.pid, c.pid_started, c.time)


@dataclass(frozen=True)
class RunFacts:
    """Everything on disk that the state of a run follows from.

    Attributes:
        planned: None for a run that has left the plan.
        submission: that the state is about. That of the attempt where it has done all or is at
            work, else (and where a rule has stopped it) the newest that lists the run and wasn't
            refused.
        refusal: why a newer one was refused; empty where none was.
        usage: of all attempts; None where there is none, or a record of an older one is damaged.
        stop_when: the plan's stop rules, as text.
    """

    paths: RunPaths
    planned: PlannedRun | None
    attempt: Attempt | None
    submission: Submission | None = None
    refusal: str = ""
    usage: Usage | None = None
    stop_when: frozenset[str] = frozenset()

    @property
    def run_id(self) -> str:
        return f"{self.paths.arm}/{self.paths.root.name}"

    @property
    def max_steps(self) -> int | None:
        if self.planned is not None:
            return self.planned.max_steps
        return None if self.attempt is None else self.attempt.claim.max_steps

    @property
    def is_newest_attempt_of_submission(self) -> bool:
        """Whether the newest attempt belongs to `submission`."""
        return (
            self.attempt is not None
            and self.submission is not None
            and self.attempt.claim.submission == self.submission.intent.id
        )


def read_facts(
    paths: RunPaths,
    planned: PlannedRun | None,
    submissions: Submissions,
    now: float,
    stop_when: frozenset[str] = frozenset(),
) -> RunFacts:
    """Read what is on disk about a run.

    Where the run's own records say enough, a damaged record of a submission does no harm.

    Raises:
        HarnessError: a record that matters is damaged.
    """
    attempts = paths.attempts()
    attempt = None if not attempts else _read_attempt(attempts[-1], submissions)
    usage = _usage(attempts[:-1], attempt)
    facts = RunFacts(paths, planned, attempt, usage=usage, stop_when=stop_when)
    end = judge_end(facts)
    if end is not None or judge_beat(facts, now) is not None:
        assert attempt is not None
        with contextlib.suppress(HarnessError):
            if end is not None and end.state is RunState.STOPPED:
                return _with_submission(facts, submissions)  # it may have been handed over again
            return replace(facts, submission=submissions.get(attempt.claim.submission))
        return facts
    return _with_submission(facts, submissions)


def _with_submission(facts: RunFacts, submissions: Submissions) -> RunFacts:
    refusal = ""
    for submission in submissions.with_run(facts.run_id):
        said = submission.refusal(facts.run_id)
        if said is None:
            return replace(facts, submission=submission, refusal=refusal)
        refusal = refusal or said
    return replace(facts, refusal=refusal)


def judge_end(facts: RunFacts) -> Verdict | None:
    """Return the verdict where nothing is missing from the run, whatever came after it; but a run
    that a rule has stopped may be handed over again."""
    ended = None if facts.attempt is None else facts.attempt.exit
    if ended is None or ended.reason not in (RunState.DONE, RunState.STOPPED):
        return None
    if ended.reason == RunState.DONE and ended.max_steps < (facts.max_steps or 0):
        return None
    is_handed_over = facts.submission is not None and not facts.is_newest_attempt_of_submission
    if ended.reason == RunState.STOPPED and (is_handed_over or _is_rule_gone(facts, ended)):
        return None
    return Verdict(END_STATES[ended.reason], _reason_of(ended), ended.end)


def judge_beat(facts: RunFacts, now: float) -> Verdict | None:
    """Return the verdict where a runner is known to be at work."""
    attempt = facts.attempt
    if attempt is None or attempt.exit is not None or now - attempt.last_beat > attempt.limit_s:
        return None
    if attempt.liveness is Liveness.DEAD:
        return None
    stalled_since = None if attempt.heartbeat is None else attempt.heartbeat.stalled_since
    if stalled_since is not None:
        return Verdict(RunState.STALLED, "its trainer logs no new step", stalled_since)
    return Verdict(RunState.RUNNING, "", attempt.claim.time)


def judge_exit(facts: RunFacts) -> Verdict | None:
    """Return the verdict that the exit record of the newest attempt gives; None without one."""
    ended = None if facts.attempt is None else facts.attempt.exit
    if ended is None:
        return None
    if ended.reason == RunState.DONE and ended.max_steps < (facts.max_steps or 0):
        reason = f"done to {ended.max_steps} of {facts.max_steps}"
        return Verdict(RunState.PLANNED, reason, ended.end)
    if _is_rule_gone(facts, ended):
        reason = f"stopped by `{ended.rule}`, which is no rule of the sweep any more"
        return Verdict(RunState.PLANNED, reason, ended.end)
    if ended.reason in END_STATES:
        return Verdict(END_STATES[ended.reason], _reason_of(ended), ended.end)
    reason = f"attempt {ended.attempt} ended as `{ended.reason}`"
    return Verdict(RunState.UNKNOWN, reason, ended.end)


def _is_rule_gone(facts: RunFacts, ended: Exit) -> bool:
    """Whether a planned run was stopped by what isn't a rule of the plan any more."""
    is_stopped = ended.reason == RunState.STOPPED and bool(ended.rule)
    return is_stopped and facts.planned is not None and ended.rule not in facts.stop_when


def _reason_of(ended: Exit) -> str:
    """Return what the state of an attempt that has ended doesn't say, in one line."""
    if not ended.rule:
        return ended.error
    said = f"by `{ended.rule}` at step {ended.rule_step}"
    if ended.unspent_gpu_hours:
        said += f", {ended.unspent_gpu_hours:.3g} GPU-hours not spent"
    return said


def _read_attempt(paths: AttemptPaths, submissions: Submissions) -> Attempt:
    records = _read_records(paths)
    claim, heartbeat, ended = records.claim, records.heartbeat, records.exit
    submission = submissions.get(claim.submission) if ended is None else None
    if submission is None:
        return Attempt(claim, heartbeat, ended)
    limit_s = submission.settings_of(_run_id(paths)).get("heartbeat_limit_s", HEARTBEAT_LIMIT_S)
    return Attempt(claim, heartbeat, ended, submission, float(limit_s))


def _usage(older: Sequence[AttemptPaths], newest: Attempt | None) -> Usage | None:
    if newest is None:
        return None
    try:
        records = [_read_records(paths) for paths in older]
    except HarnessError:
        return None
    return run_usage([*records, AttemptRecords(newest.claim, newest.heartbeat, newest.exit)])


def _read_records(paths: AttemptPaths) -> AttemptRecords:
    return AttemptRecords(
        read_record(Claim, paths.claim),
        read_record_if_there(Heartbeat, paths.heartbeat),
        read_record_if_there(Exit, paths.exit),
    )


def _run_id(paths: AttemptPaths) -> str:
    run = paths.root.parent.parent
    return f"{run.parent.name}/{run.name}"
