"""Runs of a local queue: what their records say when no runner shows life."""

from __future__ import annotations

from harness.runner.process import Liveness
from harness.state.facts import END_STATES, RunFacts, Verdict, judge_exit
from harness.state.model import RunState

_OUTCOMES = frozenset({"stopped", "failed", "cancelled"})


def judge_local(facts: RunFacts, now: float) -> Verdict:
    """Judge a run that isn't done and has no fresh heartbeat.

    The newest submission that lists it is a local queue, or there is none.
    """
    own = judge_exit(facts) or _judge_silence(facts, now)
    if own is not None and own.state is RunState.STALLED:
        return own
    submission = facts.submission
    if submission is None or facts.is_newest_attempt_of_submission:
        return own or Verdict(RunState.PLANNED)
    if submission.liveness is not Liveness.DEAD:
        if facts.run_id in submission.cancelled:
            return Verdict(RunState.CANCELLED, "before it began", submission.intent.time)
        return Verdict(RunState.QUEUED, "", submission.intent.time)
    if own is not None:
        return own
    receipt = submission.receipt
    outcome = None if receipt is None else receipt.outcomes.get(facts.run_id)
    if outcome in _OUTCOMES:
        return Verdict(END_STATES[outcome], "before it began")
    return Verdict(RunState.PLANNED, "the queue that held it ended before it began")


def _judge_silence(facts: RunFacts, now: float) -> Verdict | None:
    """Judge an attempt without an exit record, whose heartbeat is old or whose runner is dead."""
    attempt = facts.attempt
    if attempt is None:
        return None
    claim = attempt.claim
    if attempt.liveness is Liveness.DEAD:
        reason = f"its runner (pid {claim.pid} on {claim.host}) is gone"
        return Verdict(RunState.LOST, reason, attempt.last_beat)
    silence = f"no sign of life from {claim.host} for {now - attempt.last_beat:.0f} s"
    own = attempt.submission
    if attempt.liveness is Liveness.UNKNOWN and own is not None:
        if own.liveness is Liveness.DEAD:
            reason = f"{silence}, and its submission is over"
            return Verdict(RunState.LOST, reason, attempt.last_beat)
        if own.is_slurm and not facts.is_newest_attempt_of_submission:
            # Only a run whose job was proven to be gone is handed over again.
            reason = f"{silence}, and a newer submission lists the run"
            return Verdict(RunState.LOST, reason, attempt.last_beat)
    return Verdict(RunState.STALLED, silence, attempt.last_beat)
