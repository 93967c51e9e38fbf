"""SLURM's answers about the runs of a sweep: one squeue and one sacct for all of them."""

from __future__ import annotations

import os
import pwd
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from harness.scheduler.commands import SlurmError, sacct_jobs, squeue_jobs
from harness.scheduler.jobs import Job
from harness.scheduler.words import Phase, phase_of

CLOCK_SLACK_S = 60.0
"""How far the clock of a submitting machine may be ahead of the controller's."""

_MARKED_NAME = re.compile(r".*@[0-9a-f]+\.\d+")
_MARKED_COMMENT = re.compile(r"harness \S+ \d+")


@dataclass(frozen=True)
class Element:
    """One run as SLURM was given it: an element of one job array.

    Attributes:
        array: its number in the submission.
        job_id: of the array; None where the submitter never learnt it.
        cluster: that SLURM named for it; None where it named none.
        user: who submitted.
        since: when the submission was begun; a job that is older is another's.
        needs_end: whether accounting is to be asked, should squeue not know the job.
    """

    submission: str
    nonce: str
    run_id: str
    array: int
    index: int
    job_id: str | None
    cluster: str | None
    user: str
    since: float
    needs_end: bool = True

    @property
    def shown_id(self) -> str:
        """The element's id as SLURM's commands take it, where it is known."""
        return f"{self.job_id}_{self.index}" if self.job_id is not None else "of its array"


@dataclass(frozen=True)
class Answer:
    """What SLURM says of one run.

    Attributes:
        job: as squeue lists it, or an end that accounting tells. None: squeue doesn't list it and
            nothing tells how it ended.
        is_array_known: whether squeue lists other elements of the array.
        error: why SLURM couldn't be asked; empty where it answered.
    """

    job: Job | None = None
    is_array_known: bool = False
    error: str = ""


class JobTable:
    """SLURM's answers, all of one moment.

    Keep one between refreshes: how a job ended is asked only once, and whether there is
    accounting, too.

    Attributes:
        error: why the controller couldn't be asked last; empty where it answered.
        has_accounting: False once SLURM has said that it keeps none.
    """

    def __init__(self) -> None:
        self.error = ""
        self.has_accounting = True
        self._answers: dict[tuple[str, str], Answer] = {}
        self._ended: dict[tuple[str, str], Job] = {}

    def refresh(self, elements: Sequence[Element]) -> None:
        """Ask SLURM anew: squeue once, and sacct once for what squeue doesn't tell.

        Nothing is asked about no elements. A failure is kept in `error` and in the answers.
        """
        self._answers = {}
        self.error = ""
        if not elements:
            return
        users = ",".join(sorted({e.user for e in elements}))
        clusters = _clusters(elements)
        try:
            queue = _Listing(squeue_jobs(users, clusters))
        except SlurmError as error:
            self.error = error.message
            self._answers = {_key(e): Answer(error=error.message) for e in elements}
            return
        hidden = {user for user in {e.user for e in elements} if not queue.shows(user)}
        absent: list[Element] = []
        for element in elements:
            job = queue.find(element)
            if job is not None:
                self._ended.pop(_key(element), None)  # it may have been started again
            job = job or self._ended.get(_key(element))
            if job is None and element.job_id is not None and element.needs_end:
                absent.append(element)
            is_array_known = queue.knows_array(element)
            self._answers[_key(element)] = Answer(job, is_array_known)
        self._ask_accounting(absent, users, clusters)
        for element in elements:
            if element.user in hidden and self._answers[_key(element)].job is None:
                reason = f"it shows no job of `{element.user}` to `{_own_name()}`"
                self._answers[_key(element)] = Answer(error=reason)

    def answer(self, element: Element) -> Answer | None:
        """Return the answer about an element of the last refresh; None for any other."""
        return self._answers.get(_key(element))

    def find(self, submission_id: str, run_id: str) -> Job | None:
        """Return the job that the last refresh found for a run of a submission, or None."""
        answer = self._answers.get((submission_id, run_id))
        return None if answer is None else answer.job

    def _ask_accounting(
        self, absent: Sequence[Element], users: str, clusters: Collection[str]
    ) -> None:
        if not absent or not self.has_accounting:
            return
        ids = {e.job_id for e in absent if e.job_id is not None}
        since = min(e.since for e in absent) - CLOCK_SLACK_S
        try:
            history = _Listing(sacct_jobs(users, ids, since, clusters))
        except SlurmError as error:
            # Without accounting the absence from squeue still proves an end, but not which.
            self.has_accounting = "disabled" not in error.message
            return
        for element in absent:
            job = history.find(element)
            # Only an end is believed: jobs that wait or run are in squeue.
            if job is not None and phase_of(job.state) in (Phase.ENDED, Phase.UNKNOWN):
                before = self._answers[_key(element)]
                self._answers[_key(element)] = Answer(job, before.is_array_known)
                if phase_of(job.state) is Phase.ENDED:
                    self._ended[_key(element)] = job


class _Listing:
    """Jobs of one answer, found by id or by the mark that a submission puts on its jobs."""

    def __init__(self, jobs: Iterable[Job]) -> None:
        self._by_array: defaultdict[str, list[Job]] = defaultdict(list)
        self._users: set[str] = set()
        self._by_index: dict[tuple[str, int | None], list[Job]] = {}
        for job in jobs:
            self._users.add(job.user)
            self._by_array[job.array_job_id].append(job)
            self._by_index.setdefault((job.array_job_id, job.index), []).append(job)

    def shows(self, user: str) -> bool:
        """Whether jobs of that user would be listed: some are, or this process may see all."""
        return os.geteuid() == 0 or user in self._users or user == _own_name()

    def find(self, element: Element) -> Job | None:
        """Return the element's job. An ended job without an index speaks for all elements of its
        array that have no job of their own."""
        array_id = element.job_id
        if array_id is None:
            array_id = self._find_array(element)
            if array_id is None:
                return None
        for index in (element.index, None):
            for job in self._by_index.get((array_id, index), ()):
                is_meant = index is not None or phase_of(job.state) is Phase.ENDED
                if is_meant and is_of(job, element):
                    return job
        return None

    def knows_array(self, element: Element) -> bool:
        jobs = self._by_array.get(element.job_id or "", ())
        return any(is_of(job, element) for job in jobs)

    def _find_array(self, element: Element) -> str | None:
        for array_id, jobs in self._by_array.items():
            if any(_bears_mark(job, element) for job in jobs):
                return array_id
        return None


def is_of(job: Job, element: Element) -> bool:
    """Whether a job that has the right id is of the submission: ids are used again.

    Its name or comment proves it either way; where a profile switches them off, user and time of
    submission tell.
    """
    if element.cluster and job.cluster and job.cluster != element.cluster:
        return False
    if job.user != element.user:
        return False
    if _bears_mark(job, element):
        return True
    if _MARKED_NAME.fullmatch(job.name) or _MARKED_COMMENT.fullmatch(job.comment):
        return False
    return job.submit_time >= element.since - CLOCK_SLACK_S


def _bears_mark(job: Job, element: Element) -> bool:
    return (
        job.name.endswith(f"@{element.nonce}.{element.array}")
        or job.comment == f"harness {element.submission} {element.array}"
    )


def _clusters(elements: Sequence[Element]) -> frozenset[str]:
    """Return the clusters to ask: none where SLURM named none, all where it named some only for
    some jobs."""
    named = {e.cluster for e in elements}
    if None not in named:
        return frozenset(name for name in named if name is not None)
    return frozenset() if named == {None} else frozenset({"all"})


def _key(element: Element) -> tuple[str, str]:
    return (element.submission, element.run_id)


def _own_name() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())
