"""The state of every run of a sweep: from its records, and where they end, from SLURM.

A run's own records come first (claim, heartbeat, exit), then the submissions that list it, then
squeue, then sacct. Nothing here writes or takes silence for an end: an attempt on another machine
that falls silent is `stalled`, a controller that doesn't answer makes it `unknown`, never finished.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from harness.errors import HarnessError
from harness.records.layout import RunPaths, SweepPaths
from harness.records.model import PlannedRun, PlanRecord, read_record
from harness.runner.claim import HEARTBEAT_LIMIT_S
from harness.scheduler.jobs import Job
from harness.scheduler.words import Phase, phase_of
from harness.state.facts import (
    Attempt,
    RunFacts,
    Verdict,
    judge_beat,
    judge_end,
    judge_exit,
    read_facts,
)
from harness.state.jobs import Answer, Element, JobTable
from harness.state.local import judge_local
from harness.state.model import FINISHED_STATES as FINISHED_STATES
from harness.state.model import LIVE_STATES as LIVE_STATES
from harness.state.model import RunState as RunState
from harness.state.model import RunStatus as RunStatus
from harness.state.model import may_be_at_work as may_be_at_work
from harness.state.model import may_resubmit as may_resubmit
from harness.state.slurm import Handover, judge_slurm, needs_end
from harness.state.submissions import Submissions


def read_states(
    sweep: SweepPaths, *, now: float | None = None, jobs: JobTable | None = None
) -> list[RunStatus]:
    """Return the state of every planned run in the plan's order, then of those that left the plan.

    A damaged record makes its run `unknown` and nothing else. SLURM is asked at most once by
    squeue and once by sacct, and not at all where the records say enough of all runs.

    Args:
        jobs: keep one between calls, and it remembers how jobs ended.

    Raises:
        HarnessError: the sweep has no readable plan.
    """
    plan = read_record(PlanRecord, sweep.plan)
    planned = {run.run_id for run in plan.runs}
    entries: list[_Entry] = [(sweep.run(r.arm, r.seed), r) for r in plan.runs]
    for paths in sweep.runs():
        if f"{paths.arm}/{paths.root.name}" not in planned:
            entries.append((paths, None))
    return _Reader(sweep, plan, now, jobs).read(entries)


def read_state(
    sweep: SweepPaths,
    arm: str,
    seed: int,
    *,
    now: float | None = None,
    jobs: JobTable | None = None,
) -> RunStatus:
    """Return the state of one run. Raises HarnessError where the sweep has no readable plan."""
    plan = read_record(PlanRecord, sweep.plan)
    planned = next((r for r in plan.runs if (r.arm, r.seed) == (arm, seed)), None)
    [status] = _Reader(sweep, plan, now, jobs).read([(sweep.run(arm, seed), planned)])
    return status


_Entry = tuple[RunPaths, PlannedRun | None]


class _Reader:
    def __init__(
        self, sweep: SweepPaths, plan: PlanRecord, now: float | None, jobs: JobTable | None
    ) -> None:
        self._sweep = sweep
        self._stop_when = frozenset(rule.text for rule in plan.stop_when)
        self._now = time.time() if now is None else now
        self._jobs = JobTable() if jobs is None else jobs
        self._submissions = Submissions(sweep)

    def read(self, entries: Sequence[_Entry]) -> list[RunStatus]:
        # All records are read before SLURM is asked: then a job that a record names and squeue
        # doesn't list has ended.
        facts = [self._read_facts(entry) for entry in entries]
        elements = [None if isinstance(f, HarnessError) else self._element(f) for f in facts]
        self._jobs.refresh([element for element in elements if element is not None])
        return [
            self._judge(entry, fact, element)
            for entry, fact, element in zip(entries, facts, elements, strict=True)
        ]

    def _read_facts(self, entry: _Entry) -> RunFacts | HarnessError:
        try:
            return read_facts(*entry, self._submissions, self._now, self._stop_when)
        except HarnessError as error:
            return error

    def _judge(
        self, entry: _Entry, facts: RunFacts | HarnessError, element: Element | None
    ) -> RunStatus:
        if isinstance(facts, HarnessError):
            return _damaged(entry, facts)
        answer = None if element is None else self._jobs.answer(element)
        try:
            verdict = self._verdict(facts, answer)
            if verdict.is_end_by_slurm:
                # The run may have written its end while SLURM was being asked.
                facts = read_facts(*entry, self._submissions, self._now, self._stop_when)
                verdict = self._verdict(facts, answer, is_second_look=True)
        except HarnessError as error:
            return _damaged(entry, error)
        job = None if answer is None else answer.job
        return _status(facts, verdict, element, job, self._now)

    def _verdict(
        self, facts: RunFacts, answer: Answer | None, *, is_second_look: bool = False
    ) -> Verdict:
        early = judge_end(facts) or judge_beat(facts, self._now)
        if early is not None:
            return early
        own = _own_attempt(facts)
        if answer is None or _is_done(own):
            verdict = _without_slurm(facts, self._now)
        else:
            handover = self._handover(facts, is_second_look)
            earlier = None if own is not None else facts.attempt
            verdict = judge_slurm(handover, own, earlier, answer, self._now)
        if not facts.refusal or verdict.state in LIVE_STATES:
            return verdict
        if verdict.state is RunState.PLANNED:
            return replace(verdict, reason=facts.refusal)
        reason = f"{verdict.reason}; not submitted again: {facts.refusal}".removeprefix("; ")
        return replace(verdict, reason=reason)

    def _element(self, facts: RunFacts) -> Element | None:
        """Return what to ask SLURM about a run; None where its records say enough."""
        submission = facts.submission
        if submission is None or not submission.is_slurm:
            return None
        if judge_end(facts) is not None or judge_beat(facts, self._now) is not None:
            return None
        own = _own_attempt(facts)
        found = submission.element(facts.run_id)
        if found is None or _is_done(own):
            return None
        array, index = found
        receipt = submission.job_receipt(array)
        job_id = None if receipt is None else receipt.job_id
        if job_id is None and own is not None and own.claim.job_id is not None:
            job_id = own.claim.job_id.partition("_")[0]
        return Element(
            submission=submission.intent.id,
            nonce=submission.intent.nonce,
            run_id=facts.run_id,
            array=array.number,
            index=index,
            job_id=job_id,
            cluster=None if receipt is None else receipt.cluster,
            user=submission.intent.user,
            since=submission.intent.time,
            needs_end=needs_end(own),
        )

    def _handover(self, facts: RunFacts, is_second_look: bool) -> Handover:
        submission = facts.submission
        assert submission is not None
        found = submission.element(facts.run_id)
        assert found is not None
        array, index = found
        receipt = submission.job_receipt(array)
        has_log = None
        if is_second_look and receipt is not None and receipt.job_id is not None:
            has_log = submission.paths.element_log(receipt.job_id, index).exists()
        job_id = None if receipt is None else receipt.job_id
        return Handover(
            sweep=self._sweep.name,
            job_id=f"of array {array.number}" if job_id is None else f"{job_id}_{index}",
            submitted=submission.intent.time,
            receipt=receipt,
            submitter=submission.submitter,
            limit_s=float(array.settings.get("heartbeat_limit_s", HEARTBEAT_LIMIT_S)),
            is_cancel_requested=facts.run_id in submission.cancelled,
            has_log=has_log,
        )


def _own_attempt(facts: RunFacts) -> Attempt | None:
    """Return the newest attempt, where it is of the submission that the state is about."""
    return facts.attempt if facts.is_newest_attempt_of_submission else None


def _is_done(own: Attempt | None) -> bool:
    """Whether the attempt did all that it had to, maybe fewer steps than the plan wants now, or
    was stopped by a rule."""
    return own is not None and own.exit is not None and own.exit.reason in FINISHED_STATES


def _without_slurm(facts: RunFacts, now: float) -> Verdict:
    if facts.submission is not None and facts.submission.is_slurm:
        return judge_exit(facts) or Verdict(
            RunState.UNKNOWN, f"submission {facts.submission.intent.id} names no job for it"
        )
    return judge_local(facts, now)


def _damaged(entry: _Entry, error: HarnessError) -> RunStatus:
    paths, planned = entry
    return RunStatus(
        arm=paths.arm,
        seed=paths.seed,
        state=RunState.UNKNOWN,
        reason=error.message,
        is_damaged=True,
        hint=error.hint,
        is_planned=planned is not None,
        max_steps=None if planned is None else planned.max_steps,
    )


def _status(
    facts: RunFacts, verdict: Verdict, element: Element | None, job: Job | None, now: float
) -> RunStatus:
    status = RunStatus(
        arm=facts.paths.arm,
        seed=facts.paths.seed,
        state=verdict.state,
        reason=verdict.reason,
        hint=verdict.hint,
        since=verdict.since,
        is_planned=facts.planned is not None,
        max_steps=facts.max_steps,
    )
    status = _with_attempt(status, facts, now)
    submission = facts.submission
    if submission is None:
        return status
    status = replace(status, profile_type=submission.profile_type)
    if not facts.is_newest_attempt_of_submission:
        status = replace(status, submission=submission.intent.id)
    if not submission.is_slurm:
        return status
    minutes = submission.settings_of(facts.run_id).get("time")
    status = replace(status, limit_s=None if minutes is None else 60.0 * minutes)
    if element is not None and element.job_id is not None:
        status = replace(status, job_id=f"{element.job_id}_{element.index}")
    if job is not None:
        has_nodes = phase_of(job.state) in (Phase.RUNNING, Phase.ENDING)
        status = replace(
            status,
            job_id=status.job_id if job.index is None else job.job_id,
            node=job.nodes if has_nodes and job.nodes else status.node,
            limit_s=status.limit_s if job.limit_s is None else job.limit_s,
        )
    return status


def _with_attempt(status: RunStatus, facts: RunFacts, now: float) -> RunStatus:
    attempt = facts.attempt
    if attempt is None:
        return status
    claim, beat, ended = attempt.claim, attempt.heartbeat, attempt.exit
    status = replace(
        status,
        attempt=claim.attempt,
        submission=claim.submission,
        host=claim.host,
        job_id=claim.job_id,
        node=claim.node,
        gpus=claim.gpus,
        gpu_hours=None if facts.usage is None else facts.usage.used,
        lost_gpu_hours=None if facts.usage is None else facts.usage.lost,
        step=None if beat is None else beat.step,
        tokens=None if beat is None else beat.tokens,
        mismatch_kl=None if beat is None else beat.mismatch_kl,
        solve_rate=None if beat is None else beat.solve_rate,
        steps_per_s=None if beat is None else beat.steps_per_s,
    )
    if ended is not None:
        return replace(
            status, elapsed_s=ended.end - ended.start, step=ended.last_step, gpus=ended.gpus
        )
    is_live = status.state in LIVE_STATES
    return replace(status, elapsed_s=(now if is_live else attempt.last_beat) - claim.time)
