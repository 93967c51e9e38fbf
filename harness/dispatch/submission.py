"""Submissions on disk: the intent before anything starts, the receipt after."""

from __future__ import annotations

import os
import re
import secrets
import time
from dataclasses import dataclass

from harness.dispatch.interface import Order
from harness.errors import HarnessError, UsageError
from harness.records.files import sync_folder, write_json
from harness.records.layout import SubmissionPaths
from harness.records.model import (
    SCHEMA_VERSION,
    ArrayPlan,
    Intent,
    Receipt,
    from_record,
    to_record,
)
from harness.runner.process import host_name, process_start
from harness.slurm_profile import SlurmProfile, count_gpus

_NUMBER_WIDTH = 4
_ID = re.compile(r"(\d{4})-[0-9a-f]+")


@dataclass(frozen=True)
class Submission:
    """A submission that has been opened by this process."""

    paths: SubmissionPaths
    intent: Intent


def check_order(order: Order) -> None:
    """Refuse an order that no dispatcher can carry out.

    Raises:
        UsageError: a run stands twice, or Python can't import from the code folder.
    """
    run_ids = [run.run_id for run in order.runs]
    if len(set(run_ids)) != len(run_ids):
        raise UsageError(
            f"sweep `{order.sweep.name}`: a run stands twice: {', '.join(run_ids)}", "name it once"
        )
    if order.code_dir is not None and os.pathsep in str(order.code_dir.absolute()):
        raise UsageError(
            f"`{order.code_dir}`: Python can't import from a path with `{os.pathsep}`",
            "choose another folder for the outputs",
        )


def new_nonce() -> str:
    """Return what sets the jobs of a submission apart from those of all others."""
    return secrets.token_hex(3)


def open_submission(
    order: Order, nonce: str | None = None, *, arrays: tuple[ArrayPlan, ...] = (), user: str = ""
) -> Submission:
    """Make the next submission folder and write its intent, durably.

    Ids such as `0007-1f9c2a` sort in the order they were made; the second part is the nonce.

    Args:
        nonce: of `new_nonce`, where names of jobs already hold it.
        arrays: that hold the runs, and the SLURM `user` who submits them.
    """
    sweep = order.sweep
    sweep.submissions_dir.mkdir(parents=True, exist_ok=True)
    taken = [m for p in sweep.submissions_dir.iterdir() if (m := _ID.fullmatch(p.name))]
    number = max((int(match[1]) for match in taken), default=0) + 1
    if number >= 10**_NUMBER_WIDTH:
        raise HarnessError(f"`{sweep.submissions_dir}` is full", "begin another sweep: --as NAME")
    nonce = new_nonce() if nonce is None else nonce
    paths = sweep.submission(f"{number:0{_NUMBER_WIDTH}d}-{nonce}")
    paths.root.mkdir()
    sync_folder(sweep.submissions_dir)
    intent = Intent(
        schema_version=SCHEMA_VERSION,
        id=paths.id,
        nonce=nonce,
        profile=order.profile.name,
        settings=order.profile.to_settings(),
        runs=order.runs,
        code_hash=order.code_hash,
        code_dir=None if order.code_dir is None else str(order.code_dir.absolute()),
        host=host_name(),
        pid=os.getpid(),
        pid_started=process_start(os.getpid()),
        time=time.time(),
        arrays=arrays,
        user=user,
        planned_gpu_hours=_planned_gpu_hours(arrays),
        stop_when=order.stop_when,
        analysis=order.analysis if order.stop_when else None,
    )
    write_json(paths.intent, to_record(intent), durable=True)
    return Submission(paths, intent)


def write_receipt(submission: Submission, jobs: dict[str, str], outcomes: dict[str, str]) -> None:
    """Write the receipt, durably. Raises HarnessError where that fails."""
    receipt = Receipt(
        schema_version=SCHEMA_VERSION,
        id=submission.paths.id,
        jobs=jobs,
        outcomes=outcomes,
        start=submission.intent.time,
        end=time.time(),
    )
    path = submission.paths.receipt
    try:
        write_json(path, to_record(receipt), durable=True)
    except OSError as error:
        raise HarnessError(
            f"`{path}` can't be written: {error.strerror or error}",
            "make room; the runs have written their own ends, and `harness run` goes on from them",
        ) from error


def _planned_gpu_hours(arrays: tuple[ArrayPlan, ...]) -> float | None:
    """Return what the arrays may take: runs x nodes x GPUs x time limit, in GPU-hours."""
    total = 0.0
    for array in arrays:
        settings = from_record(SlurmProfile, to_record(array)["settings"], where=array.job_name)
        gpus = count_gpus(settings)
        if gpus is None or (gpus > 0 and settings.time is None):
            return None
        total += len(array.run_ids) * gpus * (settings.time or 0) / 60
    return total if arrays else None
