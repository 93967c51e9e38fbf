"""What an attempt that has ended is called, and whether its job is started again.

Everything here is a function of what is known; nothing asks, waits or writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from harness.records.model import Exit
from harness.runner.slurm_job import JobFacts, JobSign
from harness.runner.stopping import STOPPED

DONE, FAILED, CANCELLED, SUPERSEDED = "done", "failed", "cancelled", "superseded"
TIMEOUT, PREEMPTED, OUT_OF_MEMORY = "timeout", "preempted", "out_of_memory"

_WARNING_SLACK_S = 120.0
"""SLURM sends its warning up to a minute early, and looks at limits twice a minute."""


class Stop(StrEnum):
    """Why a trainer ended."""

    ITSELF = "itself"
    WARNED = "warned"
    """SIGUSR1 or SIGUSR2: an end is near."""
    TERMINATED = "terminated"
    INTERRUPTED = "interrupted"
    STALLED = "stalled"
    ASKED = "asked"
    """A cancel request on disk."""
    SUPERSEDED = "superseded"
    RULE = "rule"
    """A stop rule has fired."""


@dataclass(frozen=True)
class Policy:
    """The profile's say; the attributes are its keys."""

    requeue: bool = True
    max_requeues: int = 20
    retry_failures: bool = True
    quick_failure_s: float = 60.0
    signal_delay_s: float = 120.0

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Policy:
        """Return the policy in the settings of a profile, which may lack keys."""
        known = {name: settings[name] for name in cls.__dataclass_fields__ if name in settings}
        return cls(**known)


@dataclass(frozen=True)
class Case:
    """An attempt whose trainer has ended.

    Attributes:
        is_done: whether it exited 0 with `max_steps` reached.
        facts: what SLURM says of the job.
        time_left_s: until SLURM ends the job; None where it won't, or is silent.
        is_cancel_requested: whether a request on disk asks for this run's end.
        is_out_of_memory: whether the kernel has killed something of the job for lack of memory.
        error: the line that explains the trainer's end.
        duration_s: since the claim.
        last_step: the newest in the metrics.
        past: ends of this run's earlier attempts of the same submission, oldest first; None for
            one that was cut off.
    """

    stop: Stop
    is_done: bool
    facts: JobFacts
    time_left_s: float | None = None
    is_cancel_requested: bool = False
    is_out_of_memory: bool = False
    error: str = ""
    duration_s: float = 0.0
    last_step: int | None = None
    past: Sequence[Exit | None] = ()


@dataclass(frozen=True)
class Decision:
    """`reason` and `error` as exit.json holds them; `requeue`: whether the runner has its job
    started again."""

    reason: str
    requeue: bool = False
    error: str = ""


def decide(case: Case, policy: Policy) -> Decision:
    """Return how the attempt is recorded. Neither a cancelled run nor one that a rule has stopped
    is ever started again."""
    sign = case.facts.sign
    if case.is_done:
        return Decision(DONE)
    if case.stop is Stop.SUPERSEDED:
        return Decision(SUPERSEDED)
    is_asked = case.is_cancel_requested or case.stop in (Stop.ASKED, Stop.INTERRUPTED)
    if is_asked or sign is JobSign.CANCELLED:
        return Decision(CANCELLED)
    if case.stop is Stop.RULE:
        return Decision(STOPPED)
    if sign is JobSign.RESTARTING:
        return Decision(PREEMPTED)
    if case.stop is Stop.ITSELF and case.is_out_of_memory:
        hint = "the kernel's out-of-memory killer struck: raise `mem`"
        return Decision(OUT_OF_MEMORY, error=f"{case.error}; {hint}" if case.error else hint)
    if sign is JobSign.TIMEOUT:
        return _after_time_limit(case, policy)
    if sign is JobSign.PREEMPTED:
        return _within_budget(PREEMPTED, "", case, policy)
    if case.stop is Stop.TERMINATED and sign is JobSign.SILENT:
        return Decision(CANCELLED, error=f"SIGTERM came, and SLURM doesn't say why: {_why(case)}")
    if case.stop in (Stop.WARNED, Stop.TERMINATED) and sign is not JobSign.ENDED:
        if _is_time_up(case, policy):
            return _after_time_limit(case, policy)
        return _within_budget(PREEMPTED, "", case, policy)
    if sign is JobSign.ENDED:
        said = f"SLURM ended the job: {_why(case)}"
        return Decision(FAILED, error=f"{said}; {case.error}" if case.error else said)
    return _after_failure(case, policy)


def num_requeues(past: Sequence[Exit | None]) -> int:
    """Return how often a runner has had its job started again."""
    return sum(1 for ended in past if ended is not None and ended.requeue)


def _why(case: Case) -> str:
    return case.facts.reason or "no reason given"


def _is_time_up(case: Case, policy: Policy) -> bool:
    """Whether the time limit is near, as opposed to a preemption that was announced."""
    if case.facts.is_preempted:
        return False
    if case.time_left_s is None:
        return case.facts.sign is JobSign.SILENT  # the warning is sent ahead of the limit
    return case.time_left_s <= policy.signal_delay_s + _WARNING_SLACK_S


def _after_failure(case: Case, policy: Policy) -> Decision:
    if not policy.retry_failures:
        return Decision(FAILED, error=case.error)
    if _is_second_in_vain(FAILED, case, policy):
        assert case.past[-1] is not None
        is_quick = max(case.duration_s, _duration(case.past[-1])) <= policy.quick_failure_s
        how = f"within {policy.quick_failure_s:g} s" if is_quick else _without_step(case)
        return Decision(FAILED, error=f"failed twice in a row {how}: {case.error}")
    return _within_budget(FAILED, case.error, case, policy)


def _after_time_limit(case: Case, policy: Policy) -> Decision:
    if _is_second_in_vain(TIMEOUT, case, policy):
        hint = "raise `time`, or let the trainer write checkpoints more often"
        error = f"ended at its time limit twice in a row {_without_step(case)}: {hint}"
        return Decision(TIMEOUT, error=error)
    return _within_budget(TIMEOUT, "", case, policy)


def _within_budget(reason: str, error: str, case: Case, policy: Policy) -> Decision:
    if not policy.requeue:
        said = "not started again, as the profile says `requeue: false`"
        return Decision(reason, error=f"{error}; {said}" if error else said)
    used = num_requeues(case.past)
    if used >= policy.max_requeues:
        said = f"all {used} restarts are used up: raise `max_requeues`, or `harness retry`"
        return Decision(reason, error=f"{error}; {said}" if error else said)
    return Decision(reason, requeue=True, error=error)


def _without_step(case: Case) -> str:
    before = case.past[-1]
    return f"without a step beyond {(before.last_step if before else None) or 0}"


def _is_second_in_vain(reason: str, case: Case, policy: Policy) -> bool:
    """Whether this attempt and the one before both got nowhere."""
    before = case.past[-1] if case.past else None
    before_that = case.past[-2] if len(case.past) > 1 else None
    return (
        before is not None
        and _is_in_vain(before.reason, _duration(before), before.last_step, before_that, policy)
        and _is_in_vain(reason, case.duration_s, case.last_step, before, policy)
    )


def _is_in_vain(
    reason: str, duration_s: float, last_step: int | None, before: Exit | None, policy: Policy
) -> bool:
    """Whether an attempt failed quickly, or failed or ran out of time without a step beyond where
    such an attempt before it had ended."""
    if reason not in (FAILED, TIMEOUT):
        return False
    if reason == FAILED and duration_s <= policy.quick_failure_s:
        return True
    if before is None or before.reason not in (FAILED, TIMEOUT):
        return False
    return (last_step or 0) <= (before.last_step or 0)


def _duration(ended: Exit) -> float:
    return ended.end - ended.start
