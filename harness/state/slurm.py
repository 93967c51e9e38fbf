"""Runs that were handed to SLURM: their state from the records, then from SLURM's answer.

Everything here is a function of what is known; nothing asks, waits or writes.
"""

from __future__ import annotations

from dataclasses import dataclass

from harness.records.model import Exit, JobReceipt
from harness.runner.process import Liveness
from harness.scheduler.jobs import Job
from harness.scheduler.words import SUSPENDED, Phase, is_held_after_failure, phase_of
from harness.state.facts import END_STATES, Attempt, Verdict
from harness.state.jobs import Answer
from harness.state.model import RunState

SUBMIT_LIMIT_S = 600.0
"""How long an array without a receipt may be under way, where its submitter can't be seen."""

_RESTART_SLACK_S = 3.0
"""Clocks of nodes and controller differ by less; SLURM takes longer to start a job again."""
_STATES_OF_ENDS = {
    "BOOT_FAIL": RunState.LOST,
    "CANCELLED": RunState.CANCELLED,
    "COMPLETED": RunState.LOST,
    "DEADLINE": RunState.TIMEOUT,
    "FAILED": RunState.FAILED,
    "NODE_FAIL": RunState.LOST,
    "OUT_OF_MEMORY": RunState.OUT_OF_MEMORY,
    "PREEMPTED": RunState.PREEMPTED,
    "REVOKED": RunState.LOST,
    "TIMEOUT": RunState.TIMEOUT,
}


@dataclass(frozen=True)
class Handover:
    """A run that a submission handed, or meant to hand, to SLURM.

    Attributes:
        job_id: of its element, `12_3`; a description where that isn't known.
        submitted: when the submission was begun.
        receipt: of its array; None where the submitter never wrote one.
        submitter: whether the process that submits still runs.
        limit_s: silence up to this long says nothing.
        is_cancel_requested: whether someone has asked for its end.
        has_log: whether its batch script ever printed something; None where nobody looked.
    """

    sweep: str
    job_id: str
    submitted: float
    receipt: JobReceipt | None
    submitter: Liveness
    limit_s: float
    is_cancel_requested: bool = False
    has_log: bool | None = None


def judge_slurm(
    handover: Handover,
    own: Attempt | None,
    earlier: Attempt | None,
    answer: Answer,
    now: float,
) -> Verdict:
    """Judge a run that isn't done and whose newest attempt shows no life.

    Args:
        own: its newest attempt, where that is of this submission.
        earlier: its newest attempt, where that is of an earlier one.
        answer: SLURM's, taken after the records were read.
    """
    return _Case(handover, own, earlier, answer, now).judge()


def needs_end(own: Attempt | None) -> bool:
    """Whether accounting can tell more than the records of the attempt do."""
    ended = None if own is None else own.exit
    if ended is None or ended.reason not in END_STATES or ended.requeue:
        return True
    was_killed = ended.signal == 9 or ended.code == 128 + 9
    return ended.reason == RunState.PREEMPTED or (ended.reason == RunState.FAILED and was_killed)


@dataclass(frozen=True)
class _Case:
    handover: Handover
    own: Attempt | None
    earlier: Attempt | None
    answer: Answer
    now: float

    def judge(self) -> Verdict:
        job = self._job()
        if job is None:
            return self._without_job()
        phase = phase_of(job.state)
        if phase is Phase.UNKNOWN:
            reason = f"SLURM says `{job.state}` of job {job.job_id}"
            return Verdict(RunState.UNKNOWN, reason, self._newest_sign())
        if phase is Phase.WAITING:
            return self._waiting(job)
        if phase is Phase.ENDED:
            return self._ended(job)
        return self._started(job, phase)

    def _job(self) -> Job | None:
        job = self.answer.job
        if job is not None and job.index is None and self.own is not None:
            return None  # it speaks for elements that never started
        return job

    def _without_job(self) -> Verdict:
        if self.handover.receipt is None and self.own is None:
            return self._interrupted()
        ended = self._exit()
        is_settled = ended is not None and not ended.requeue
        if self.answer.error:
            if ended is not None and is_settled and ended.reason != RunState.PREEMPTED:
                return self._by_exit(ended)
            reason = f"SLURM doesn't answer: {self.answer.error}"
            return Verdict(RunState.UNKNOWN, reason, self._newest_sign())
        if ended is not None and (is_settled or not self.handover.is_cancel_requested):
            return self._by_exit(ended)
        since = self._newest_sign()
        if self.handover.is_cancel_requested:
            return _end(RunState.CANCELLED, "as it was asked", since)
        has_started = self.own is not None or self.handover.has_log is not False
        if self.answer.is_array_known and not has_started:
            return _end(RunState.CANCELLED, "taken out of the queue before it began", since)
        return _end(RunState.LOST, f"SLURM no longer knows job {self.handover.job_id}", since)

    def _interrupted(self) -> Verdict:
        """Judge an array whose submitter hasn't said whether SLURM has it."""
        h = self.handover
        is_recent = self.now - h.submitted <= SUBMIT_LIMIT_S
        if h.submitter is Liveness.ALIVE or (h.submitter is Liveness.UNKNOWN and is_recent):
            return Verdict(RunState.SUBMITTING, "", h.submitted)
        return Verdict(
            RunState.UNKNOWN,
            f"interrupted submission: {self.answer.error}".removesuffix(": "),
            h.submitted,
            hint=f"`harness run {h.sweep}` finds out whether SLURM has it, and completes it",
        )

    def _waiting(self, job: Job) -> Verdict:
        said = job.reason if job.state == "PENDING" else _join(job.state, job.reason)
        if self.handover.is_cancel_requested:
            said = _join("its end was asked for", said)
        if is_held_after_failure(job.reason):
            return Verdict(
                RunState.STALLED,
                said,
                job.submit_time or self._newest_sign(),
                hint=f"SLURM could not start it; `harness run {self.handover.sweep}` releases it",
            )
        if self.own is None:
            return Verdict(RunState.QUEUED, said, self._submitted())
        return Verdict(RunState.REQUEUED, said, job.submit_time or self.own.last_beat)

    def _started(self, job: Job, phase: Phase) -> Verdict:
        """Judge a run whose job has nodes."""
        ended = self._exit()
        is_new = self._is_new_start(job)
        if ended is not None and not is_new and not self._is_to_come_back(ended):
            return self._by_exit(ended)
        if job.state == SUSPENDED:
            return Verdict(RunState.STALLED, "suspended by SLURM", self._newest_sign())
        if self.own is None or is_new:
            return self._starting(job, phase)
        if ended is not None:
            return Verdict(RunState.REQUEUED, f"ending on {job.nodes}", ended.end)
        silence_s = self.now - self.own.last_beat
        reason = f"no sign of life from {self.own.claim.host} for {silence_s:.0f} s"
        if phase is Phase.ENDING:
            reason += ", SLURM is ending its job"
        return Verdict(RunState.STALLED, reason, self.own.last_beat)

    def _starting(self, job: Job, phase: Phase) -> Verdict:
        """Judge a start of the job that hasn't claimed its attempt yet."""
        h = self.handover
        state = RunState.QUEUED if self.own is None else RunState.REQUEUED
        since = self._submitted() if self.own is None else job.submit_time
        if phase is Phase.ENDING:
            return Verdict(state, f"ending on {job.nodes}", since)
        # The new attempt waits until the heartbeat of one that was cut off has aged out.
        before = self.own or self.earlier
        has_to_wait = before is not None and before.exit is None
        started = self.now if job.start_time is None else job.start_time
        if self.now - started <= h.limit_s * (2 if has_to_wait else 1):
            return Verdict(state, f"starting on {job.nodes}", since)
        reason = f"on {job.nodes} for {self.now - started:.0f} s without a sign of life"
        return Verdict(RunState.STALLED, reason, started)

    def _ended(self, job: Job) -> Verdict:
        ended = self._exit()
        if ended is not None:
            is_new = self._is_new_start(job) and bool(job.nodes)
            was_dropped = job.state == "CANCELLED" and self._is_to_come_back(ended)
            if not is_new and not was_dropped:
                return self._by_exit(ended, job)
        state, reason = _STATES_OF_ENDS[job.state], ""
        if self.handover.is_cancel_requested:
            state, reason = RunState.CANCELLED, "as it was asked"
        elif job.state == "FAILED":
            reason = _describe_failure(job)
        elif state is RunState.LOST:
            said = "ended without an exit record" if job.state == "COMPLETED" else job.state
            reason = _join(f"job {job.job_id}: {said}", job.reason)
        elif job.state == "DEADLINE":
            reason = "its deadline has passed"
        elif not job.nodes:
            reason = "before it began"
        since = self._newest_sign()
        if job.start_time is not None and job.elapsed_s is not None:
            since = max(since, job.start_time + job.elapsed_s)
        return _end(state, reason, since)

    def _by_exit(self, ended: Exit, job: Job | None = None) -> Verdict:
        state = END_STATES[ended.reason]
        if state is RunState.FAILED and job is not None and job.state == "OUT_OF_MEMORY":
            state = RunState.OUT_OF_MEMORY
        is_end_by_slurm = self._is_to_come_back(ended)
        return Verdict(state, ended.error, ended.end, is_end_by_slurm=is_end_by_slurm)

    def _exit(self) -> Exit | None:
        """Return the exit record of the own attempt, unless it says nothing about the run."""
        ended = None if self.own is None else self.own.exit
        return ended if ended is not None and ended.reason in END_STATES else None

    def _is_new_start(self, job: Job) -> bool:
        """Whether SLURM has started the job again since the own attempt's last sign."""
        if self.own is None or job.start_time is None:
            return False
        last = self.own.last_beat if self.own.exit is None else self.own.exit.end
        return job.start_time > last + _RESTART_SLACK_S

    @staticmethod
    def _is_to_come_back(ended: Exit) -> bool:
        """Whether the end of the attempt wasn't meant as that of the run."""
        return ended.requeue or ended.reason == RunState.PREEMPTED

    def _submitted(self) -> float:
        receipt = self.handover.receipt
        return self.handover.submitted if receipt is None else receipt.time

    def _newest_sign(self) -> float:
        if self.own is None:
            return self._submitted()
        return self.own.last_beat if self.own.exit is None else self.own.exit.end


def _end(state: RunState, reason: str, since: float) -> Verdict:
    return Verdict(state, reason, since, is_end_by_slurm=True)


def _describe_failure(job: Job) -> str:
    code, _, signal_number = job.exit_code.partition(":")
    said = f"exit code {code}" if code else ""
    if signal_number not in ("", "0"):
        said = f"killed by signal {signal_number}"
    reason = "" if job.reason == "NonZeroExitCode" else job.reason
    return f"job {job.job_id}: {_join(said, reason) or job.state}"


def _join(*texts: str) -> str:
    return ", ".join(text for text in texts if text)
