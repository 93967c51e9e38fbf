"""Hands the arrays of an opened submission to SLURM, one after the other, with a receipt each.

At every moment what is on disk says what may be queued: an array with a receipt is queued or not,
one without may be, and `reconcile` finds out.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from harness.dispatch.arrays import Array, finish_job_name
from harness.dispatch.receipts import (
    ACCEPTED,
    NOT_SUBMITTED,
    REFUSED,
    cluster_of,
    clusters_of,
    find_jobs,
    is_over,
    write_job_receipt,
)
from harness.dispatch.requests import cancelled_runs
from harness.dispatch.script import BatchJob, array_job, finish_job
from harness.dispatch.slurm import Accepted, SbatchError, sbatch
from harness.dispatch.stop_signals import received_signals
from harness.dispatch.submission import Submission, write_receipt
from harness.errors import HarnessError, UsageError
from harness.records.layout import FINISH_JOB, SubmissionPaths
from harness.records.model import Intent, JobReceipt
from harness.scheduler.commands import SlurmError, scancel, squeue_jobs
from harness.slurm_profile import SlurmProfile

_STOPPING = b"stopping after this array (once more: at once)\n"
_LOOK_AGAIN_S = (0.0, 0.5, 2.0)
"""When a job is looked for that the controller may still take after `sbatch` has given up."""


class InterruptedSubmission(HarnessError):
    """The user stopped the submission between two arrays. `exit_code` is the signal's."""

    def __init__(self, message: str, hint: str, number: int) -> None:
        super().__init__(message, hint)
        self.exit_code = 128 + number


class UncertainSubmission(HarnessError):
    """What became of an array doesn't stand on disk; `reconcile` will find out."""


@dataclass
class HandOver:
    """One submission on its way to SLURM.

    Attributes:
        sbatch_timeout_s: how long one `sbatch` may take.
        live_before: ids of jobs of earlier submissions that still live; the finishing job waits
            for them, too.
    """

    submission: Submission
    arrays: Sequence[Array]
    profile: SlurmProfile
    sbatch_timeout_s: float
    live_before: tuple[str, ...] = ()
    _jobs: dict[str, str] = field(default_factory=dict)
    _obeyed: set[str] = field(default_factory=set)

    def run(self) -> None:
        """Hand over every array, then the finishing job, and write the receipt.

        An array that isn't taken ends it: those after it are not tried, since they share the
        account and mostly the limits, and one error is clearer than many. The same where the user
        sends SIGINT, SIGTERM or SIGHUP: the array under way is finished first; a second signal
        ends at once.

        Raises:
            UsageError: nothing was handed over.
            HarnessError: a part was.
            KeyboardInterrupt: by the second signal. `reconcile` will settle what is open.
        """
        refused: JobReceipt | None = None
        try:
            with received_signals(_obey_signal) as received:
                for folder in (self.submission.paths.jobs_dir, self.submission.paths.slurm_dir):
                    folder.mkdir(exist_ok=True)
                for array in self.arrays:
                    if refused is not None or received:
                        self._skip(array, "an array before it was not taken" if refused else "")
                        continue
                    receipt = self._hand_over(array)
                    if receipt.state == REFUSED:
                        refused = receipt
                self._finish()
        except UncertainSubmission as error:
            raise HarnessError(
                f"{error.message}; {self._count()} known to be", error.hint
            ) from error
        except OSError as error:
            kind = HarnessError if self._jobs else UsageError
            raise kind(
                f"`{error.filename}`: {error.strerror or error}; {self._count()}",
                f"see to that folder, then `{self._again()}` completes it",
            ) from error
        self._raise_for(refused, received)

    def _hand_over(self, array: Array) -> JobReceipt:
        paths, intent = self.submission.paths, self.submission.intent
        run_ids = array.plan.run_ids
        if len(cancelled_runs(paths, run_ids)) == len(run_ids):
            return self._skip(array, "cancelled before it was submitted")
        # In a chain every array follows the last that was taken.
        before = None if array.plan.after is None else next(reversed(self._jobs.values()), None)
        job = array_job(array, paths, intent.code_dir, before)
        receipt = submit_job(job, paths, intent, self.sbatch_timeout_s)
        if receipt.job_id is not None:
            self._jobs[receipt.name] = receipt.job_id
            self._obey_requests(array, receipt.job_id)
        return receipt

    def _skip(self, array: Array, reason: str) -> JobReceipt:
        return write_job_receipt(
            self.submission.paths,
            self.submission.intent,
            str(array.plan.number),
            NOT_SUBMITTED,
            error=reason or "the submission was stopped before",
        )

    def _obey_requests(self, array: Array, job_id: str) -> None:
        """Cancel elements that were asked to end while their array was on its way: who asked
        couldn't know its id."""
        run_ids = array.plan.run_ids
        asked = cancelled_runs(self.submission.paths, run_ids)
        with contextlib.suppress(SlurmError):  # elements that start find the request themselves
            scancel([f"{job_id}_{i}" for i, run_id in enumerate(run_ids) if run_id in asked])

    def _finish(self) -> None:
        if self._jobs:
            submit_finish_job(
                self.submission.paths,
                self.submission.intent,
                self.profile,
                (*self.live_before, *self._jobs.values()),
                self.sbatch_timeout_s,
                self._jobs,
            )
        write_receipt(self.submission, dict(self._jobs), {})

    def _raise_for(self, refused: JobReceipt | None, received: Sequence[int]) -> None:
        intent = self.submission.intent
        if refused is not None:
            number = int(refused.name)
            size = len(intent.arrays[number].run_ids)
            message = (
                f"SLURM refused array {number + 1} of {len(self.arrays)} ({size} runs):"
                f" {refused.error}; {self._count()}"
            )
            hint = f"see to the profile `{intent.profile}` and your account's limits"
            if not self._jobs:
                raise UsageError(message, hint)
            raise HarnessError(message, f"{hint}, then `{self._again()}` completes it")
        if received:
            sweep = self.submission.paths.sweep.name
            cancels = f"`harness cancel {sweep}` ends what is queued"
            completes = f"`{self._again()}` completes it, {cancels}"
            is_complete = all(str(array.plan.number) in self._jobs for array in self.arrays)
            raise InterruptedSubmission(
                f"stopped while submitting: {self._count()}",
                cancels if is_complete else completes,
                received[0],
            )

    def _count(self) -> str:
        total = len(self.submission.intent.runs)
        queued = sum(
            len(array.plan.run_ids) for array in self.arrays if str(array.plan.number) in self._jobs
        )
        if queued == total:
            return f"all {total} runs are queued"
        return f"{queued} of {total} runs are queued, {total - queued} are not"

    def _again(self) -> str:
        intent = self.submission.intent
        return f"harness run {self.submission.paths.sweep.name} --on {intent.profile}"


def submit_job(
    job: BatchJob, paths: SubmissionPaths, intent: Intent, timeout_s: float
) -> JobReceipt:
    """Hand one job over and write its receipt: accepted or refused.

    What `sbatch` says against it is believed only when SLURM lists no job of that name.

    Raises:
        UncertainSubmission: SLURM can't be asked, or the receipt of a job that it took can't be
            written. There is no receipt.
    """
    accepted, words, is_adopted = _try(job, paths, intent, timeout_s)
    if accepted is None:
        return write_job_receipt(paths, intent, job.name, REFUSED, error=words)
    try:
        return write_job_receipt(
            paths,
            intent,
            job.name,
            ACCEPTED,
            job_id=accepted.job_id,
            cluster=accepted.cluster,
            is_adopted=is_adopted,
        )
    except OSError as error:
        raise UncertainSubmission(
            f"SLURM took {_describe(job.name)} as job {accepted.job_id}, but"
            f" `{paths.job_receipt(job.name)}` can't be written: {error.strerror or error}",
            f"make room, then `harness run {paths.sweep.name} --on {intent.profile}` finds the job"
            " and completes the rest",
        ) from error


def submit_finish_job(
    paths: SubmissionPaths,
    intent: Intent,
    settings: SlurmProfile,
    after: tuple[str, ...],
    timeout_s: float,
    jobs: dict[str, str],
) -> None:
    """Hand over the job that ends a submission; note its id in `jobs`.

    Should it be refused, the runs are none the worse: there is a note on stderr.
    """
    name = finish_job_name(paths.sweep.name, intent.nonce)
    job = finish_job(name, paths, settings, intent.code_dir, after)
    try:
        receipt = submit_job(job, paths, intent, timeout_s)
    except UncertainSubmission as error:
        tell_note(f"whether there is a finishing job isn't known: {error.message}")
        return
    if receipt.job_id is not None:
        jobs[FINISH_JOB] = receipt.job_id
    else:
        tell_note(
            f"no job will render the report ({receipt.error});"
            f" `harness report {paths.sweep.name}` does"
        )


def tell_note(text: str) -> None:
    """Print a note to stderr."""
    print(f"note: {text}", file=sys.stderr)


def _try(
    job: BatchJob, paths: SubmissionPaths, intent: Intent, timeout_s: float
) -> tuple[Accepted | None, str, bool]:
    """Return the job, what SLURM said instead of naming one, and whether it had to be found."""
    try:
        return sbatch(job, paths.slurm_dir.absolute(), timeout_s), "", False
    except SbatchError as error:
        failure = error
    try:
        found = _look_for(job.name, intent, failure.is_doubtful)
    except SlurmError as error:
        raise UncertainSubmission(
            f"`sbatch` said: {failure.words}; whether SLURM took {_describe(job.name)} isn't known,"
            f" as {error.message}",
            f"once SLURM answers, `harness run {paths.sweep.name} --on {intent.profile}` finds out"
            " and completes it",
        ) from None
    return found, failure.words, True


def _look_for(name: str, intent: Intent, is_doubtful: bool) -> Accepted | None:
    """Return the job that SLURM lists for one `sbatch` of the submission, or None."""
    began, clusters = time.monotonic(), clusters_of([intent])
    for at in _LOOK_AGAIN_S if is_doubtful else _LOOK_AGAIN_S[:1]:
        time.sleep(max(0.0, began + at - time.monotonic()))
        jobs = find_jobs(squeue_jobs(intent.user, clusters), intent).get(name, [])
        live = [job for job in jobs if not is_over(job)] or jobs
        if live:
            return Accepted(live[0].array_job_id, cluster_of(live[0], clusters))
    return None


def _describe(name: str) -> str:
    return "the finishing job" if name == FINISH_JOB else f"array {int(name) + 1}"


def _obey_signal(received: list[int]) -> None:
    if len(received) > 1:
        raise KeyboardInterrupt
    with contextlib.suppress(OSError):
        os.write(2, _STOPPING)  # not `print`, which the signal may have interrupted
