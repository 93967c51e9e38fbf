"""The submissions of a sweep as far as the states of its runs depend on them."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from functools import cached_property

from harness.dispatch.requests import cancelled_runs
from harness.errors import HarnessError
from harness.records.layout import SubmissionPaths, SweepPaths
from harness.records.model import Intent, Receipt, read_record, read_record_if_there
from harness.runner.process import Liveness, process_liveness

LOCAL = "local"


@dataclass(frozen=True)
class Submission:
    """One submission and what became of it."""

    paths: SubmissionPaths
    intent: Intent
    receipt: Receipt | None

    @property
    def is_local(self) -> bool:
        return bool(self.intent.settings.get("type", LOCAL) == LOCAL)

    @cached_property
    def run_ids(self) -> frozenset[str]:
        return frozenset(run.run_id for run in self.intent.runs)

    @cached_property
    def liveness(self) -> Liveness:
        """Whether it may still start runs.

        A local queue lives as long as its process, and ends with its receipt. Other dispatchers
        hand over: their receipt ends nothing.
        """
        if not self.is_local:
            return Liveness.UNKNOWN
        if self.receipt is not None:
            return Liveness.DEAD
        i = self.intent
        return process_liveness(i.host, i.pid, i.pid_started, i.time)

    @cached_property
    def cancelled(self) -> frozenset[str]:
        return frozenset(cancelled_runs(self.paths, self.run_ids))


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
            intent = read_record(Intent, paths.intent)
            receipt = read_record_if_there(Receipt, paths.receipt)
            self._read[submission_id] = Submission(paths, intent, receipt)
        return self._read[submission_id]

    def newest_with(self, run_id: str) -> Submission | None:
        """Return the newest submission whose intent lists the run, or None."""
        for submission_id in reversed(self._paths):
            submission = self.get(submission_id)
            if submission is not None and run_id in submission.run_ids:
                return submission
        return None

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
