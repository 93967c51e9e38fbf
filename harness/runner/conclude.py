"""How an attempt in a SLURM job ends: what SLURM says, the exit record, then the requeue."""

from __future__ import annotations

import signal
import time
from dataclasses import replace

from harness.dispatch.requests import cancelled_runs
from harness.errors import HarnessError
from harness.records.layout import RunPaths
from harness.records.model import Claim, Exit, read_record, read_record_if_there
from harness.runner.claim import Assignment
from harness.runner.decide import (
    CANCELLED,
    DONE,
    PREEMPTED,
    Case,
    Decision,
    Policy,
    Stop,
    decide,
    num_requeues,
)
from harness.runner.memory import count_oom_kills
from harness.runner.record import STALLED, AttemptRecorder, say
from harness.runner.signals import WARNINGS, Signals
from harness.runner.slurm_job import (
    KILL_WAIT_S,
    SILENT,
    JobFacts,
    JobSign,
    SlurmJob,
    allowed_grace,
    is_passing,
    read_kill_wait,
    time_left,
)
from harness.runner.stopping import STOPPED
from harness.runner.supervise import SUPERSEDED, Ending
from harness.scheduler.commands import SlurmError

REQUEUE_PATIENCE_S = 600.0
"""How long a controller that doesn't answer is asked again to start the job again."""

_RETRY_S = 2.0
_FRESH_S = 1.0
_REQUESTS_EVERY_S = 5.0


class JobWatch:
    """What SLURM last said of the job, and since when processes of it were out of memory.

    Make it before the trainer starts.
    """

    def __init__(self, job: SlurmJob, grace_s: float) -> None:
        self._job = job
        self._grace_s = grace_s
        self._facts = SILENT
        self._asked_at = float("-inf")
        self._oom_kills = count_oom_kills()

    def grace(self, number: int | None) -> float:
        """Return the grace of a trainer that was just told to stop.

        Args:
            number: of the signal that told this process; None where a reason of its own did.
        """
        if number is None:
            return self._grace_s
        if time.monotonic() - self._asked_at > _FRESH_S:
            self._ask()
        sign = self._facts.sign
        if sign is JobSign.SILENT and number in WARNINGS:
            return self._grace_s  # the end is further away than that, as a rule
        is_ending = sign not in (JobSign.RUNNING, JobSign.SILENT)
        kill_wait_s = read_kill_wait() if is_ending else KILL_WAIT_S
        return allowed_grace(self._facts, self._grace_s, kill_wait_s, time.time())

    def final_facts(self, ending: Ending) -> JobFacts:
        """Return what SLURM says now that the trainer has ended."""
        has_asked = self._asked_at > float("-inf")
        is_in_haste = signal.SIGTERM in ending.asked and self._facts.sign is JobSign.SILENT
        if not (has_asked and is_in_haste) and time.monotonic() - self._asked_at > _FRESH_S:
            self._ask()
        return self._facts

    def is_out_of_memory(self) -> bool:
        """Whether the kernel has killed something of the job since the trainer started."""
        now = count_oom_kills()
        return now is not None and self._oom_kills is not None and now > self._oom_kills

    def _ask(self) -> None:
        self._facts = self._job.ask()
        self._asked_at = time.monotonic()


class CancelRequests:
    """Cancel requests on disk that name one run; they are looked at every few seconds."""

    def __init__(self, paths: RunPaths, assignment: Assignment) -> None:
        self._submission = paths.sweep.submission(assignment.intent.id)
        self._run_id = assignment.run.run_id
        self._looked_at = float("-inf")

    def is_asked(self) -> bool:
        """Whether a request asks for the run's end; a damaged one asks for nothing."""
        try:
            return bool(cancelled_runs(self._submission, {self._run_id}))
        except (HarnessError, OSError):
            return False

    def poll(self) -> bool:
        """Like `is_asked`, and False until it is time to look again."""
        now = time.monotonic()
        if now - self._looked_at < _REQUESTS_EVERY_S:
            return False
        self._looked_at = now
        return self.is_asked()


def conclude(
    recorder: AttemptRecorder,
    ending: Ending,
    error: str,
    assignment: Assignment,
    job: SlurmJob,
    watch: JobWatch,
    signals: Signals,
) -> Decision:
    """Write exit.json, then have the job started again where that is decided.

    Where SLURM refuses to, exit.json is written anew and says so.

    Args:
        error: why the trainer couldn't be run; empty where it ran.

    Raises:
        HarnessError: exit.json can't be written; the job isn't started again then.
    """
    case = _case(recorder, ending, error, assignment, watch)
    decision = decide(case, Policy.of(assignment.settings))
    _write(recorder, ending, decision)
    if decision.requeue:
        failure = requeue_own(job, signals)
        if failure is not None:
            said = f"the job can't be started again: {failure}"
            error = f"{decision.error}; {said}" if decision.error else said
            decision = replace(decision, requeue=False, error=error)
            _write(recorder, ending, decision)
    _tell(recorder, decision)
    return decision


def requeue_own(job: SlurmJob, signals: Signals) -> str | None:
    """Have SLURM start the job again; return why that failed, None where it works.

    A controller that is away is asked again for a while. SLURM then ends this start of the job:
    the caller has little time left.
    """
    give_up_at = time.monotonic() + REQUEUE_PATIENCE_S
    while True:
        try:
            job.requeue()
            return None
        except SlurmError as error:
            facts = job.ask()
            if facts.sign is JobSign.RESTARTING:
                return None  # it was accepted all the same
            if facts.sign is JobSign.CANCELLED:
                return "it has been cancelled"
            if not is_passing(error) or time.monotonic() > give_up_at:
                return error.message
        signals.take(_RETRY_S)


def requeue_unclaimed(
    job: SlurmJob, assignment: Assignment, past: list[Exit | None], signals: Signals
) -> bool:
    """Whether SLURM starts a job again that was told to stop before an attempt began.

    Where it doesn't by itself and the job isn't ending, it is asked to, within the budget.
    """
    sign = job.ask().sign
    if sign is not JobSign.RUNNING:
        return sign is JobSign.RESTARTING
    policy = Policy.of(assignment.settings)
    has_budget = max(num_requeues(past), job.restarts) < policy.max_requeues
    return policy.requeue and has_budget and requeue_own(job, signals) is None


def past_exits(paths: RunPaths, submission_id: str, before: int | None = None) -> list[Exit | None]:
    """Return the ends of the run's attempts in a submission, oldest first; None for one that was
    cut off, or whose record is damaged.

    Args:
        before: number of the attempt to stop before; None for all.
    """
    past: list[Exit | None] = []
    for attempt in paths.attempts():
        if before is not None and attempt.number >= before:
            break
        try:
            if read_record(Claim, attempt.claim).submission == submission_id:
                past.append(read_record_if_there(Exit, attempt.exit))
        except HarnessError:
            past.append(None)
    return past


def exit_code(decision: Decision) -> int:
    """Return the runner's exit code after a decision that was carried out."""
    if decision.reason == CANCELLED:
        return 128 + signal.SIGTERM
    # After a preemption without an error of ours SLURM starts the job again by itself.
    is_well = decision.reason in (DONE, STOPPED, SUPERSEDED) or decision == Decision(PREEMPTED)
    return 0 if is_well or decision.requeue else 1


def stop_of(ending: Ending) -> Stop:
    """Return why the trainer ended."""
    if ending.stop_reason in _REASONS:
        return _REASONS[ending.stop_reason]
    if ending.stop_reason is None:
        return Stop.ITSELF
    if signal.SIGINT in ending.asked:
        return Stop.INTERRUPTED
    if signal.SIGTERM in ending.asked:
        return Stop.TERMINATED
    return Stop.WARNED if ending.asked else Stop.ASKED


_REASONS = {SUPERSEDED: Stop.SUPERSEDED, STALLED: Stop.STALLED, STOPPED: Stop.RULE}


def _case(
    recorder: AttemptRecorder,
    ending: Ending,
    error: str,
    assignment: Assignment,
    watch: JobWatch,
) -> Case:
    claim, stop = recorder.claim, stop_of(ending)
    is_done = recorder.is_done(ending)
    is_settled = is_done or stop is Stop.SUPERSEDED
    facts = SILENT if is_settled or stop is Stop.RULE else watch.final_facts(ending)
    requests = CancelRequests(recorder.paths, assignment)
    return Case(
        stop=stop,
        is_done=is_done,
        facts=facts,
        time_left_s=time_left(facts),
        is_cancel_requested=not is_settled and requests.is_asked(),
        is_out_of_memory=not is_settled and watch.is_out_of_memory(),
        error=error or _explain(recorder, ending, stop),
        duration_s=time.time() - claim.time,
        last_step=recorder.tail.latest.step,
        past=past_exits(recorder.paths, claim.submission, claim.attempt),
    )


def _explain(recorder: AttemptRecorder, ending: Ending, stop: Stop) -> str:
    if stop is Stop.STALLED:
        return f"stalled: no new step for {recorder.stall_limit_s:g} s"
    return recorder.explain(ending) if stop is Stop.ITSELF else ""


def _tell(recorder: AttemptRecorder, decision: Decision) -> None:
    claim, step = recorder.claim, recorder.tail.latest.step or 0
    text = f"attempt {claim.attempt}: {decision.reason} at step {step} of {claim.max_steps}"
    if decision.error:
        text += f": {decision.error}"
    say(f"{text}; SLURM starts the job again" if decision.requeue else text)


def _write(recorder: AttemptRecorder, ending: Ending, decision: Decision) -> None:
    recorder.write_exit(
        decision.reason,
        decision.error,
        code=ending.code,
        signal_number=ending.signal,
        requeue=decision.requeue,
    )
