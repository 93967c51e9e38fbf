"""Settles what interrupted submissions left open: which of their arrays SLURM has, which not."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.dispatch.receipts import (
    ACCEPTED,
    NOT_SUBMITTED,
    cluster_of,
    clusters_of,
    find_jobs,
    is_over,
    read_receipts,
    write_job_receipt,
)
from harness.dispatch.submission import Submission, write_receipt
from harness.errors import HarnessError, UsageError
from harness.records.layout import FINISH_JOB, SubmissionPaths, SweepPaths
from harness.records.model import (
    ArrayPlan,
    Claim,
    Intent,
    JobReceipt,
    from_record,
    read_record,
)
from harness.runner.process import Liveness, process_liveness
from harness.scheduler.commands import SlurmError, release, sacct_jobs, scancel, squeue_jobs
from harness.scheduler.jobs import Job
from harness.scheduler.words import is_held_after_failure
from harness.slurm_profile import SlurmProfile

_CLOCK_SLACK_S = 60.0
"""How far the clock of a submitting machine may be ahead of the controller's."""
_IN_FLIGHT_LIMIT_S = 180.0
"""Longer than any `sbatch` that a submitter has left behind may take."""


@dataclass(frozen=True)
class Reconciled:
    """What was found and settled.

    Attributes:
        adopted: receipts of arrays that SLURM has, though their submitter never learnt it.
        not_submitted: receipts of arrays that never reached SLURM; their runs are missing again.
        cancelled: ids of jobs that were ended, since a newer submission holds their runs.
        released: ids of jobs that SLURM had held, since it could not start them.
        notes: the same in lines for the user; empty where nothing was to do.
    """

    adopted: tuple[JobReceipt, ...] = ()
    not_submitted: tuple[JobReceipt, ...] = ()
    cancelled: tuple[str, ...] = ()
    released: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def reconcile(sweep: SweepPaths) -> Reconciled:
    """Settle every array of the sweep that has no receipt. The caller holds the sweep's lock.

    SLURM is asked by one squeue, and by one sacct for arrays that squeue doesn't list. An array
    that is found gets the receipt that its submitter could not write, one that isn't a receipt
    `not_submitted`. A job that SLURM took although a receipt denies it is adopted; where a newer
    submission holds the run, it is cancelled instead. A submission that was cut off before its
    finishing job gets one. Jobs that SLURM holds since their launch failed are released: nobody
    else would, and they would wait for ever.

    Call it before states are read: a run of an array without a receipt is `unknown`.

    Raises:
        UsageError: some array has no receipt, and SLURM can't be asked or its submitter still
            works. Nothing was written.
    """
    held = _read_submissions(sweep)
    if not held:
        return Reconciled()
    unsettled = [s for s in held if s.open_arrays()]
    for submission in unsettled:
        _wait_for_submitter(submission)
    try:
        _find_jobs(held)
    except SlurmError as error:
        if not unsettled:
            return Reconciled()  # nothing that the command has to know
        raise UsageError(
            f"submission {unsettled[0].intent.id} was interrupted, and whether SLURM has its jobs"
            f" can't be asked: {error.message}",
            error.hint or "try again once `scontrol ping` says that the controller is up",
        ) from error
    return _Settling(sweep, held).settle()


@dataclass
class _Held:
    """A submission to SLURM with its receipts and the jobs that were found."""

    paths: SubmissionPaths
    intent: Intent
    receipts: dict[str, JobReceipt]
    superseded: frozenset[str]
    """Runs that a newer submission lists."""
    jobs: dict[str, list[Job]] = field(default_factory=dict)

    def open_arrays(self) -> list[ArrayPlan]:
        return [array for array in self.intent.arrays if str(array.number) not in self.receipts]

    def live_jobs(self, name: str) -> list[Job]:
        return [job for job in self.jobs.get(name, []) if not is_over(job)]

    def accepted(self) -> dict[str, str]:
        """Return name -> id of the jobs that SLURM has taken."""
        found = {r.name: r.job_id for r in self.receipts.values() if r.state == ACCEPTED}
        return {name: job_id for name, job_id in found.items() if job_id is not None}


class _Settling:
    def __init__(self, sweep: SweepPaths, held: Sequence[_Held]) -> None:
        self._sweep = sweep
        self._held = held
        self._clusters = _clusters(held)
        self._adopted: list[JobReceipt] = []
        self._not_submitted: list[JobReceipt] = []
        self._notes: list[str] = []

    def settle(self) -> Reconciled:
        cancelled: list[str] = []
        for held in self._held:
            self._settle_arrays(held)
            cancelled += _superseded_ids(held)
        if cancelled:
            # Best effort: by the rule of the newest submission they would do nothing anyway.
            with contextlib.suppress(SlurmError):
                scancel(cancelled, self._clusters)
            self._notes.append(
                f"cancelled {len(cancelled)} jobs whose runs a newer submission holds"
            )
        released = self._release()
        for held in self._held:
            self._settle_finish(held)
        return Reconciled(
            adopted=tuple(self._adopted),
            not_submitted=tuple(self._not_submitted),
            cancelled=tuple(cancelled),
            released=released,
            notes=tuple(self._notes),
        )

    def _release(self) -> tuple[str, ...]:
        job_ids = tuple(job_id for held in self._held for job_id in _held_ids(held))
        if not job_ids:
            return ()
        try:
            release(job_ids)
        except SlurmError as error:
            self._notes.append(
                f"SLURM holds {', '.join(job_ids)} after a failed launch, and they can't be"
                f" released: {error.message}"
            )
            return ()
        self._notes.append(f"released {', '.join(job_ids)}, held by SLURM after a failed launch")
        return job_ids

    def _settle_arrays(self, held: _Held) -> None:
        for array in held.intent.arrays:
            name = str(array.number)
            receipt = held.receipts.get(name)
            if receipt is not None and receipt.state == ACCEPTED:
                continue
            job = next(iter(held.live_jobs(name) or held.jobs.get(name, [])), None)
            job_id = _claimed_id(self._sweep, held.intent, array) if job is None else None
            if job is not None or job_id is not None:
                if receipt is None or not held.superseded.issuperset(array.run_ids):
                    self._adopt(held, array, job, job_id)
            elif receipt is None:
                self._drop(held, array)

    def _adopt(self, held: _Held, array: ArrayPlan, job: Job | None, job_id: str | None) -> None:
        receipt = write_job_receipt(
            held.paths,
            held.intent,
            str(array.number),
            ACCEPTED,
            job_id=job_id if job is None else job.array_job_id,
            cluster=None if job is None else cluster_of(job, self._clusters),
            is_adopted=True,
        )
        held.receipts[receipt.name] = receipt
        self._adopted.append(receipt)
        self._notes.append(
            f"submission {held.intent.id} was interrupted, and SLURM has {len(array.run_ids)} of"
            f" its runs as job {receipt.job_id}"
        )

    def _drop(self, held: _Held, array: ArrayPlan) -> None:
        receipt = write_job_receipt(
            held.paths,
            held.intent,
            str(array.number),
            NOT_SUBMITTED,
            error="its submission was interrupted, and SLURM has no job of that name",
        )
        held.receipts[receipt.name] = receipt
        self._not_submitted.append(receipt)
        self._notes.append(
            f"submission {held.intent.id} was interrupted before {len(array.run_ids)} of its runs"
            " reached SLURM"
        )

    def _settle_finish(self, held: _Held) -> None:
        """See to the finishing job and the receipt of a submission that was cut off."""
        arrays = {name: job_id for name, job_id in held.accepted().items() if name != FINISH_JOB}
        jobs = held.accepted()
        if arrays and FINISH_JOB not in held.receipts:
            found = next(iter(held.jobs.get(FINISH_JOB, [])), None)
            live = tuple({j.array_job_id: None for name in arrays for j in held.live_jobs(name)})
            if found is not None:
                write_job_receipt(
                    held.paths,
                    held.intent,
                    FINISH_JOB,
                    ACCEPTED,
                    job_id=found.array_job_id,
                    cluster=cluster_of(found, self._clusters),
                    is_adopted=True,
                )
                jobs[FINISH_JOB] = found.array_job_id
            elif live:
                self._submit_finish(held, live, jobs)
            else:
                error = "its submission was interrupted, and its runs have ended since"
                write_job_receipt(held.paths, held.intent, FINISH_JOB, NOT_SUBMITTED, error=error)
        if not held.paths.receipt.is_file():
            write_receipt(Submission(held.paths, held.intent), jobs, {})

    def _submit_finish(self, held: _Held, live: tuple[str, ...], jobs: dict[str, str]) -> None:
        from harness.dispatch.handover import (  # noqa: PLC0415 (loads submitit)
            submit_finish_job,
        )
        from harness.dispatch.slurm import SBATCH_TIMEOUT_S  # noqa: PLC0415

        where = str(held.paths.intent)
        settings = from_record(SlurmProfile, held.intent.settings, where=where)
        submit_finish_job(held.paths, held.intent, settings, live, SBATCH_TIMEOUT_S, jobs)
        if FINISH_JOB in jobs:
            self._notes.append(f"submission {held.intent.id} got the job that reports at its end")


def _read_submissions(sweep: SweepPaths) -> list[_Held]:
    """Return the sweep's submissions to SLURM, oldest first.

    One with a damaged record is left out: its runs are unknown, and their own records say why.
    """
    found: list[_Held] = []
    listed_by_newer: set[str] = set()
    for paths in reversed(sweep.submissions()):
        with contextlib.suppress(HarnessError):
            intent = read_record(Intent, paths.intent)
            if intent.arrays:
                receipts = read_receipts(paths, intent)
                found.append(_Held(paths, intent, receipts, frozenset(listed_by_newer)))
            listed_by_newer |= {run.run_id for run in intent.runs}
    return found[::-1]


def _wait_for_submitter(held: _Held) -> None:
    """Return when no `sbatch` of the submission is under way on this machine.

    A submitter that was killed leaves its `sbatch` behind, and that may still hand over an array.

    Raises:
        UsageError: the submitter lives, or the `sbatch` does not end.
    """
    i = held.intent
    liveness = process_liveness(i.host, i.pid, i.pid_started, i.time)
    if liveness is Liveness.ALIVE and i.pid != os.getpid():
        raise UsageError(
            f"submission {i.id} is being handed over by pid {i.pid} on {i.host}",
            "wait for its end",
        )
    deadline = time.monotonic() + _IN_FLIGHT_LIMIT_S
    while (pid := _find_sbatch(held.paths.slurm_dir)) is not None:
        if time.monotonic() > deadline:
            raise UsageError(
                f"an interrupted submission left `sbatch` behind, pid {pid}, and it does not end",
                "see whether the controller answers, `scontrol ping`; then end that process",
            )
        time.sleep(0.05)


def _find_sbatch(slurm_dir: Path) -> int | None:
    """Return a process of this machine that hands over a script in `slurm_dir`, or None."""
    prefix = os.fsencode(f"{slurm_dir.absolute()}/.submission_file_")
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal():
            continue
        with contextlib.suppress(OSError):
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if any(word.startswith(prefix) for word in words):
                return int(folder.name)
    return None


def _find_jobs(held: Sequence[_Held]) -> None:
    """Ask SLURM for the jobs of all submissions.

    Raises:
        SlurmError: the controller doesn't answer.
    """
    users = ",".join(sorted({h.intent.user for h in held}))
    clusters = _clusters(held)
    jobs = squeue_jobs(users, clusters)
    for h in held:
        h.jobs = find_jobs(jobs, h.intent)
    absent = [h for h in held if any(str(a.number) not in h.jobs for a in h.open_arrays())]
    if not absent:
        return
    since = min(h.intent.time for h in absent) - _CLOCK_SLACK_S
    with contextlib.suppress(SlurmError):  # no accounting: squeue and the claims have to do
        history = sacct_jobs(users, None, since, clusters)
        for h in absent:
            h.jobs = find_jobs(history, h.intent) | h.jobs


def _clusters(held: Sequence[_Held]) -> frozenset[str]:
    receipts = [receipt for h in held for receipt in h.receipts.values()]
    return clusters_of((h.intent for h in held), receipts)


def _superseded_ids(held: _Held) -> list[str]:
    """Return the live jobs of a submission whose runs a newer one lists."""
    return [
        job.job_id
        for array in held.intent.arrays
        for job in held.live_jobs(str(array.number))
        if job.index is not None and array.run_ids[job.index] in held.superseded
    ]


def _held_ids(held: _Held) -> list[str]:
    """Return the jobs of a submission that wait to be released, whose runs no newer one lists."""
    return [
        job.job_id
        for array in held.intent.arrays
        for job in held.live_jobs(str(array.number))
        if job.index is not None
        and is_held_after_failure(job.reason)
        and array.run_ids[job.index] not in held.superseded
    ]


def _claimed_id(sweep: SweepPaths, intent: Intent, array: ArrayPlan) -> str | None:
    """Return the id of an array that some of its runs have recorded, or None."""
    runs = {run.run_id: run for run in intent.runs}
    for run_id in array.run_ids:
        for attempt in sweep.run(runs[run_id].arm, runs[run_id].seed).attempts():
            with contextlib.suppress(HarnessError):
                claim = read_record(Claim, attempt.claim)
                if claim.submission == intent.id and claim.job_id is not None:
                    return claim.job_id.partition("_")[0]
    return None
