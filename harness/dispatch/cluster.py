"""The dispatcher for SLURM: hands runs over as job arrays, and is then no longer needed."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Collection, Sequence

from harness.dispatch.arrays import DEFAULT_MAX_ARRAY_SIZE, Array, finish_job_name, plan_arrays
from harness.dispatch.follow import SlurmHandle
from harness.dispatch.interface import IgnoredVariable, Order, Preview, Script
from harness.dispatch.lock import Lock, acquire_lock
from harness.dispatch.receipts import (
    clusters_of,
    current_user,
    find_jobs,
    is_over,
    read_receipts,
)
from harness.dispatch.requests import cancelled_runs, write_cancel_request
from harness.dispatch.script import array_job, check_path, finish_job
from harness.dispatch.submission import Submission, check_order, new_nonce, open_submission
from harness.errors import HarnessError, UsageError
from harness.records.layout import FINISH_JOB, SubmissionPaths, SweepPaths
from harness.records.model import Intent, JobReceipt, read_record
from harness.scheduler.commands import SlurmError, max_array_size, scancel, squeue_jobs
from harness.scheduler.jobs import Job
from harness.slurm_options import replacement_of
from harness.slurm_profile import SlurmProfile

SBATCH_TIMEOUT_S = 120.0
_PREVIEW_NONCE = "NONCE"
_PREVIEW_ID = f"NNNN-{_PREVIEW_NONCE}"


def require_cluster(sweep: SweepPaths) -> int:
    """Return the MaxArraySize of the cluster that runs of `sweep` can be handed to now.

    A command calls it before it writes anything; `submit` does so, too.

    Raises:
        UsageError: there is no `sbatch`, the controller doesn't answer or takes no arrays, or the
            sweep's folder has a name that SLURM would read otherwise.
    """
    _check_folder(sweep)
    if shutil.which("sbatch") is None:
        raise UsageError(
            "`sbatch` is not on the PATH",
            "load your site's SLURM module, or work on a login node of the cluster",
        )
    try:
        return max_array_size()
    except SlurmError as error:
        raise UsageError(error.message, error.hint or "`scontrol ping` says more") from error


class SlurmDispatcher:
    """Hands submissions to the cluster that this machine's SLURM commands talk to.

    Args:
        sbatch_timeout_s: how long one `sbatch` may take.
    """

    def __init__(self, sbatch_timeout_s: float = SBATCH_TIMEOUT_S) -> None:
        self._sbatch_timeout_s = sbatch_timeout_s

    def submit(self, order: Order, lock: Lock | None = None) -> SlurmHandle:
        """Write the intent, hand every run over in as few `sbatch` as possible, write receipts.

        The lock, given or taken here, is released at the end, whatever happens. Whoever holds it
        calls `reconcile` before: runs that an interrupted submission left open aren't missing.

        Raises:
            UsageError: nothing was handed over: SLURM can't be asked, refuses, or the order
                doesn't fit. Where SLURM refused, the submission says so on disk.
            HarnessError: some runs were handed over and others not; says how many and why.
        """
        try:
            settings = _check(order)
            max_size = require_cluster(order.sweep)
            nonce = new_nonce()
            arrays = plan_arrays(order, nonce, max_size)
            if lock is None:
                lock = acquire_lock(order.sweep)
            live = _live_jobs(order.sweep)
            submission = open_submission(
                order, nonce, arrays=tuple(array.plan for array in arrays), user=current_user()
            )
            self._hand_over(submission, arrays, settings, live)
            return SlurmHandle(order, submission.paths, submission.intent)
        except OSError as error:
            raise UsageError(
                f"`{order.sweep.root}` can't be written: {error.strerror or error}",
                "choose another folder with HARNESS_OUTPUTS",
            ) from error
        finally:
            if lock is not None:
                lock.release()

    def preview(self, order: Order) -> Preview:
        """Return arrays, scripts and what of the shell is ignored.

        SLURM is asked for its MaxArraySize only, and may be absent. Names hold `NONCE` where a
        submission has six digits of its own.

        Raises:
            UsageError: the order doesn't fit the profile, or the folder can't be used.
        """
        from harness.dispatch.slurm import render_script  # noqa: PLC0415 (loads submitit)

        settings = _check(order)
        try:
            size: int | None = max_array_size()
        except SlurmError:
            size = None
        arrays = plan_arrays(order, _PREVIEW_NONCE, size or DEFAULT_MAX_ARRAY_SIZE)
        paths = order.sweep.submission(_PREVIEW_ID)
        code_dir = None if order.code_dir is None else str(order.code_dir.absolute())
        scripts = []
        for array in arrays:
            after = None if array.plan.after is None else f"<job of array {array.plan.after}>"
            job = array_job(array, paths, code_dir, after)
            scripts.append(Script(job.name, job.job_name, render_script(job, paths.slurm_dir)))
        ids = tuple(f"<job of array {array.plan.number}>" for array in arrays)
        name = finish_job_name(order.sweep.name, _PREVIEW_NONCE)
        job = finish_job(name, paths, settings, code_dir, ids)
        scripts.append(Script(FINISH_JOB, name, render_script(job, paths.slurm_dir)))
        return Preview(
            arrays=tuple(array.plan for array in arrays),
            scripts=tuple(scripts),
            ignored_variables=tuple(
                IgnoredVariable(variable, replacement_of(variable))
                for variable in sorted(os.environ)
                if variable.startswith("SBATCH_")
            ),
            max_array_size=size,
        )

    def cancel(self, submission: SubmissionPaths, run_ids: Collection[str] | None) -> None:
        """Ask for the end of some runs (None: all) on disk, then of SLURM, in one `scancel`.

        Waiting runs leave the queue; running ones stop with grace. Where no run of the submission
        is left, its finishing job goes, too: there is nothing to report.

        Raises:
            HarnessError: SLURM can't be asked. The request stands: a run that begins obeys it.
        """
        intent = read_record(Intent, submission.intent)
        write_cancel_request(submission, run_ids)
        receipts = read_receipts(submission, intent)
        clusters = clusters_of([intent], receipts.values())
        try:
            jobs = find_jobs(squeue_jobs(intent.user, clusters), intent)
            ids = _ids_to_cancel(submission, intent, receipts.keys(), jobs)
            if ids:
                scancel(ids, clusters)
        except SlurmError as error:
            raise HarnessError(
                f"the request is recorded, but SLURM has not been told: {error.message}",
                "runs that begin will obey it; type the same again once SLURM answers",
            ) from error

    def _hand_over(
        self,
        submission: Submission,
        arrays: Sequence[Array],
        settings: SlurmProfile,
        live: tuple[str, ...],
    ) -> None:
        from harness.dispatch.handover import HandOver  # noqa: PLC0415 (loads submitit)

        HandOver(submission, arrays, settings, self._sbatch_timeout_s, live).run()


def compress_ids(array_job_id: str, indices: Collection[int]) -> str:
    """Return the one id that stands for some elements of an array: `12_[0-3,7]`."""
    parts: list[str] = []
    ordered = sorted(indices)
    start = 0
    for i, index in enumerate(ordered):
        if i + 1 == len(ordered) or ordered[i + 1] != index + 1:
            first = ordered[start]
            parts.append(str(first) if first == index else f"{first}-{index}")
            start = i + 1
    listed = ",".join(parts)
    return f"{array_job_id}_{listed}" if listed.isdecimal() else f"{array_job_id}_[{listed}]"


def _check(order: Order) -> SlurmProfile:
    check_order(order)
    settings = order.profile.settings
    if not isinstance(settings, SlurmProfile):
        raise UsageError(
            f"the profile `{order.profile.name}` is {order.profile.type}", "give a slurm profile"
        )
    _check_folder(order.sweep)
    if order.code_dir is not None:
        check_path(order.code_dir, "the folder of the code")
    return settings


def _check_folder(sweep: SweepPaths) -> None:
    check_path(sweep.root, "the folder of the sweep")


def _live_jobs(sweep: SweepPaths) -> tuple[str, ...]:
    """Return the ids of arrays of earlier submissions that SLURM hasn't ended."""
    intents: list[Intent] = []
    receipts: list[JobReceipt] = []
    for paths in sweep.submissions():
        with contextlib.suppress(HarnessError):  # a damaged record names no job
            intent = read_record(Intent, paths.intent)
            receipts += read_receipts(paths, intent).values()
            intents.append(intent)
    intents = [intent for intent in intents if intent.arrays]
    if not intents:
        return ()
    users = ",".join(sorted({intent.user for intent in intents}))
    try:
        jobs = squeue_jobs(users, clusters_of(intents, receipts))
    except SlurmError as error:
        raise UsageError(error.message, error.hint or "`scontrol ping` says more") from error
    live = {
        job.array_job_id: None
        for intent in intents
        for name, found in find_jobs(jobs, intent).items()
        for job in found
        if name != FINISH_JOB and not is_over(job)
    }
    return tuple(live)


def _ids_to_cancel(
    paths: SubmissionPaths, intent: Intent, settled: Collection[str], jobs: dict[str, list[Job]]
) -> list[str]:
    """Return ids of what a submission's cancel requests ask for. `settled`: names of its arrays
    that have a receipt."""
    asked = cancelled_runs(paths, {run.run_id for run in intent.runs})
    ids: list[str] = []
    is_anything_left = False
    for array in intent.arrays:
        name = str(array.number)
        live = [job for job in jobs.get(name, []) if not is_over(job)]
        by_id: dict[str, set[int]] = {}
        for job in live:
            if job.index is not None and array.run_ids[job.index] in asked:
                by_id.setdefault(job.array_job_id, set()).add(job.index)
            else:
                is_anything_left = True
        ids += [compress_ids(job_id, indices) for job_id, indices in by_id.items()]
        # An array without a receipt may still be on its way to SLURM.
        is_anything_left |= name not in settled and not asked.issuperset(array.run_ids)
    if not is_anything_left:
        ids += [job.array_job_id for job in jobs.get(FINISH_JOB, []) if not is_over(job)]
    return ids


DISPATCHER = SlurmDispatcher()
