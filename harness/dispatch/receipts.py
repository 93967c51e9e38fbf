"""What became of each `sbatch` of a submission: its receipts, and its jobs in SLURM's lists."""

from __future__ import annotations

import os
import pwd
import time
from collections import defaultdict
from collections.abc import Collection, Iterable

from harness.dispatch.arrays import array_job_name
from harness.dispatch.script import job_comment
from harness.records.files import write_json
from harness.records.layout import FINISH_JOB, SubmissionPaths
from harness.records.model import (
    SCHEMA_VERSION,
    Intent,
    JobReceipt,
    read_record_if_there,
    to_record,
)
from harness.scheduler.jobs import Job
from harness.scheduler.words import Phase, phase_of

ACCEPTED, REFUSED, NOT_SUBMITTED = "accepted", "refused", "not_submitted"


def job_names(intent: Intent) -> tuple[str, ...]:
    """Return the names of a submission's jobs: one for each array, then FINISH_JOB."""
    return (*(str(array.number) for array in intent.arrays), FINISH_JOB)


def read_receipts(paths: SubmissionPaths, intent: Intent) -> dict[str, JobReceipt]:
    """Return the receipts that stand, by name. Raises HarnessError where one can't be read."""
    found = {
        name: read_record_if_there(JobReceipt, paths.job_receipt(name))
        for name in job_names(intent)
    }
    return {name: receipt for name, receipt in found.items() if receipt is not None}


def write_job_receipt(
    paths: SubmissionPaths,
    intent: Intent,
    name: str,
    state: str,
    *,
    job_id: str | None = None,
    cluster: str | None = None,
    error: str = "",
    is_adopted: bool = False,
) -> JobReceipt:
    """Write what became of one `sbatch`, durably, and return it."""
    receipt = JobReceipt(
        schema_version=SCHEMA_VERSION,
        submission=intent.id,
        name=name,
        job_name=array_job_name(paths.sweep.name, intent.nonce, name),
        state=state,
        job_id=job_id,
        cluster=cluster,
        error=error,
        is_adopted=is_adopted,
        time=time.time(),
    )
    write_json(paths.job_receipt(name), to_record(receipt), durable=True)
    return receipt


def find_jobs(jobs: Iterable[Job], intent: Intent) -> dict[str, list[Job]]:
    """Return those of `jobs` that are the submission's, by name.

    A job is known by the end of its name, which an element keeps when it renames itself, or by
    its comment: ids are given again after a controller has lost its state.
    """
    marks: dict[str, str] = {}
    for name in job_names(intent):
        marks[f"@{intent.nonce}.{name}"] = name
        marks[job_comment(intent.id, name)] = name
    found: dict[str, list[Job]] = defaultdict(list)
    for job in jobs:
        _, at, end = job.name.rpartition("@")
        name_found = marks.get(at + end) or marks.get(job.comment)
        if name_found is not None:
            found[name_found].append(job)
    return dict(found)


def clusters_of(intents: Iterable[Intent], receipts: Iterable[JobReceipt] = ()) -> frozenset[str]:
    """Return the clusters to ask: those that profiles name (`sbatch: {clusters: …}`) and those
    that SLURM has named in its answers. Empty for the own one alone, which needs no database."""
    options = [array.settings.get("sbatch") or {} for i in intents for array in i.arrays]
    named = {name for o in options if o.get("clusters") for name in str(o["clusters"]).split(",")}
    taken = {receipt.cluster for receipt in receipts if receipt.state == ACCEPTED}
    named |= {cluster for cluster in taken if cluster is not None}
    return frozenset({"all"} if named and None in taken else named)


def cluster_of(job: Job, asked: Collection[str]) -> str | None:
    """Return the cluster that a receipt names for a job that was found, of those `asked`.

    None where only the own one was asked: naming that one, too, would ask for a database.
    """
    return (job.cluster or None) if asked else None


def is_over(job: Job) -> bool:
    """Whether SLURM says that the job has ended."""
    return phase_of(job.state) is Phase.ENDED


def current_user() -> str:
    """Return who this process submits as: the name, or the number of a user without one."""
    uid = os.getuid()
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
