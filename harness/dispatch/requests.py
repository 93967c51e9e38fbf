"""Cancel requests: how another shell asks a live submission to end some of its runs."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Collection

from harness.records.files import read_json, write_json
from harness.records.layout import SubmissionPaths
from harness.records.model import SCHEMA_VERSION
from harness.runner.process import host_name


def write_cancel_request(submission: SubmissionPaths, run_ids: Collection[str] | None) -> None:
    """Ask the submission to end some runs (`<arm>/seed_<n>`), or all (None)."""
    request = {
        "schema_version": SCHEMA_VERSION,
        "runs": None if run_ids is None else sorted(run_ids),
        "host": host_name(),
        "pid": os.getpid(),
        "time": time.time(),
    }
    write_json(submission.cancel_request(secrets.token_hex(4)), request, durable=True)


def cancelled_runs(submission: SubmissionPaths, run_ids: Collection[str]) -> set[str]:
    """Return those of `run_ids` that some request to the submission asks to end."""
    asked: set[str] = set()
    for path in submission.cancel_requests():
        runs = read_json(path).get("runs")
        asked.update(run_ids if runs is None else set(run_ids) & set(runs))
    return asked
