"""Submissions on disk: the intent before anything starts, the receipt after."""

from __future__ import annotations

import os
import re
import secrets
import time
from dataclasses import dataclass

from harness.dispatch.interface import Order
from harness.errors import HarnessError
from harness.records.files import write_json
from harness.records.layout import SubmissionPaths
from harness.records.model import SCHEMA_VERSION, Intent, Receipt, to_record
from harness.runner.process import host_name, process_start

_NUMBER_WIDTH = 4
_ID = re.compile(r"(\d{4})-[0-9a-f]+")


@dataclass(frozen=True)
class Submission:
    """A submission that has been opened by this process."""

    paths: SubmissionPaths
    intent: Intent


def open_submission(order: Order) -> Submission:
    """Make the next submission folder and write its intent, durably.

    Ids such as `0007-1f9c2a` sort in the order they were made; the second part is the nonce.
    """
    sweep = order.sweep
    sweep.submissions_dir.mkdir(parents=True, exist_ok=True)
    taken = [m for p in sweep.submissions_dir.iterdir() if (m := _ID.fullmatch(p.name))]
    number = max((int(match[1]) for match in taken), default=0) + 1
    if number >= 10**_NUMBER_WIDTH:
        raise HarnessError(f"`{sweep.submissions_dir}` is full", "begin another sweep: --as NAME")
    nonce = secrets.token_hex(3)
    paths = sweep.submission(f"{number:0{_NUMBER_WIDTH}d}-{nonce}")
    paths.root.mkdir()
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
