"""The submissions of a sweep as far as the states of its runs depend on them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from harness.dispatch.requests import cancelled_runs
from harness.errors import HarnessError
from harness.records.layout import SubmissionPaths, SweepPaths
from harness.records.model import (
    ArrayPlan,
    Intent,
    JobReceipt,
    Receipt,
    read_record,
    read_record_if_there,
)
from harness.runner.process import Liveness, process_liveness
from harness.state.model import LOCAL, SLURM

ACCEPTED = "accepted"
"""State of a job receipt: SLURM has the job."""


@dataclass(frozen=True)
class Submission:
    """One submission and what became of it."""

    paths: SubmissionPaths
    intent: Intent
    receipt: Receipt | None

    @property
    def profile_type(self) -> str:
        return str(self.intent.settings.get("type", LOCAL))

    @property
    def is_slurm(self) -> bool:
        return self.profile_type == SLURM

    @cached_property
    def run_ids(self) -> frozenset[str]:
        return frozenset(run.run_id for run in self.intent.runs)

    @cached_property
    def liveness(self) -> Liveness:
        """Whether it may still start runs.

        A local queue lives as long as its process, and ends with its receipt. On SLURM runs are
        handed over: the records of the submission tell no end.
        """
        if self.is_slurm:
            return Liveness.UNKNOWN
        return Liveness.DEAD if self.receipt is not None else self.submitter

    @cached_property
    def submitter(self) -> Liveness:
        """Whether the process that made it still runs."""
        i = self.intent
        return process_liveness(i.host, i.pid, i.pid_started, i.time)

    @cached_property
    def cancelled(self) -> frozenset[str]:
        return frozenset(cancelled_runs(self.paths, self.run_ids))

    def element(self, run_id: str) -> tuple[ArrayPlan, int] | None:
        """Return the job array that holds the run and the run's index in it; None without one."""
        return self._elements.get(run_id)

    def settings_of(self, run_id: str) -> dict[str, Any]:
        """Return the profile's settings, with what the sweep overrides for the run."""
        element = self.element(run_id)
        return self.intent.settings if element is None else element[0].settings

    def job_receipt(self, array: ArrayPlan) -> JobReceipt | None:
        """Return what became of one array; None where that isn't known (yet)."""
        return self._job_receipts[array.number]

    def refusal(self, run_id: str) -> str | None:
        """Return why SLURM never got the run, or None where it did or may have."""
        element = self.element(run_id)
        receipt = None if element is None else self.job_receipt(element[0])
        if receipt is None or receipt.state == ACCEPTED:
            return None
        return receipt.error or f"its job was {receipt.state.replace('_', ' ')}"

    @cached_property
    def _elements(self) -> dict[str, tuple[ArrayPlan, int]]:
        return {
            run_id: (array, index)
            for array in self.intent.arrays
            for index, run_id in enumerate(array.run_ids)
        }

    @cached_property
    def _job_receipts(self) -> dict[int, JobReceipt | None]:
        return {
            array.number: read_record_if_there(
                JobReceipt, self.paths.job_receipt(str(array.number))
            )
            for array in self.intent.arrays
        }


class Submissions:
    """All submissions of a sweep; each is read once, and only when it is asked for."""

    def __init__(self, sweep: SweepPaths) -> None:
        self._paths = {paths.id: paths for paths in sweep.submissions()}
        self._read: dict[str, Submission] = {}

    def get(self, submission_id: str) -> Submission | None:
        """Return one submission, or None where there is none of that id."""
        paths = self._paths.get(submission_id)
        if paths is None:
            return None
        if submission_id not in self._read:
            # The receipts of jobs are read after the intent, which names the arrays.
            intent = read_record(Intent, paths.intent)
            receipt = read_record_if_there(Receipt, paths.receipt)
            self._read[submission_id] = Submission(paths, intent, receipt)
        return self._read[submission_id]

    def with_run(self, run_id: str) -> Iterator[Submission]:
        """Yield the submissions whose intent lists the run, newest first."""
        for submission_id in reversed(self._paths):
            submission = self.get(submission_id)
            if submission is not None and run_id in submission.run_ids:
                yield submission

    def newest_with(self, run_id: str) -> Submission | None:
        """Return the newest submission whose intent lists the run, or None."""
        return next(self.with_run(run_id), None)

    def live(self) -> list[Submission]:
        """Return those that are not known to be over, oldest first.

        A submission with a damaged record is left out: nothing can be asked of it.
        """
        found = []
        for submission_id in self._paths:
            with contextlib.suppress(HarnessError):
                submission = self.get(submission_id)
                if submission is not None and submission.liveness is not Liveness.DEAD:
                    found.append(submission)
        return found
