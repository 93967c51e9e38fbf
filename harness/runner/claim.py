"""Who may work on a run: the newest submission, one attempt at a time.

Another runner of the same run may be alive on a node that can't be asked. The rules that keep two
of them apart need nothing but the shared folder: a submission that isn't the newest does nothing,
an attempt begins by creating its claim exclusively, and it waits until the heartbeat of the
attempt before has aged out.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from harness.errors import HarnessError
from harness.records.files import create_exclusive, read_json, to_json
from harness.records.layout import AttemptPaths, RunPaths, SubmissionPaths
from harness.records.model import (
    SCHEMA_VERSION,
    Claim,
    Exit,
    Heartbeat,
    Intent,
    PlannedRun,
    read_record,
    read_record_if_there,
    to_record,
)
from harness.runner.machine import VISIBLE_GPUS_ENV, machine_facts, visible_gpu_ids
from harness.runner.process import Liveness, host_name, process_liveness, process_start
from harness.runner.slurm_job import SlurmJob, own_job
from harness.runner.stopping import STOPPED, spent_rules

HEARTBEAT_EVERY_S = 1.0
HEARTBEAT_LIMIT_S = 30.0
"""A heartbeat older than this has aged out (default; profile key `heartbeat_limit_s`)."""

_POLL_S = 0.2


class NoWork(Exception):
    """This runner has nothing to do. Its text says why."""


@dataclass(frozen=True)
class Assignment:
    """What the submission asks of this runner."""

    intent: Intent
    run: PlannedRun

    @property
    def settings(self) -> dict[str, Any]:
        """The profile's, with what the sweep overrides for this run."""
        arrays = (a for a in self.intent.arrays if self.run.run_id in a.run_ids)
        array = next(arrays, None)
        return self.intent.settings if array is None else array.settings

    @property
    def heartbeat_limit_s(self) -> float:
        return float(self.settings.get("heartbeat_limit_s", HEARTBEAT_LIMIT_S))

    @property
    def grace_s(self) -> float:
        return float(self.settings.get("grace_s", 10.0))

    @property
    def stall_limit_s(self) -> float | None:
        """None: no limit."""
        limit_s = self.settings.get("stall_limit_s")
        return None if limit_s is None else float(limit_s)


def find_assignment(paths: RunPaths, submission_id: str) -> Assignment:
    """Return what submission `submission_id` asks for this run.

    Raises:
        NoWork: a newer submission lists the run, or the run is done, or a rule has stopped it in
            this submission.
        HarnessError: the submission doesn't exist or doesn't list the run.
    """
    newest = newest_submission(paths)
    if newest is None or (newest.id != submission_id and not _lists(paths, submission_id)):
        raise HarnessError(f"submission `{submission_id}` doesn't list `{paths.root}`")
    if newest.id != submission_id:
        raise NoWork(f"submission {newest.id} is newer than {submission_id} and lists this run")
    intent = read_record(Intent, newest.intent)
    run = next(r for r in intent.runs if (r.arm, r.seed) == (paths.arm, paths.seed))
    last = _newest_attempt(paths)
    ended = None if last is None else read_record_if_there(Exit, last.exit)
    if ended is not None and ended.reason == "done" and ended.max_steps >= run.max_steps:
        raise NoWork(f"attempt {ended.attempt} has done {ended.max_steps} steps already")
    if last is not None and ended is not None and ended.reason == STOPPED:
        is_of_this = read_record(Claim, last.claim).submission == submission_id
        if is_of_this:
            raise NoWork(f"attempt {ended.attempt} was stopped by `{ended.rule}`")
    return Assignment(intent, run)


def newest_submission(paths: RunPaths) -> SubmissionPaths | None:
    """Return the newest submission whose intent lists the run, or None."""
    for submission in reversed(paths.sweep.submissions()):
        if _lists(paths, submission.id):
            return submission
    return None


def wait_for_previous(
    paths: RunPaths, assignment: Assignment, pause: Callable[[float], None]
) -> int:
    """Return the number of the next attempt, once no earlier attempt can still be working.

    An attempt without an exit record may still be working unless its runner is proven dead. Its
    heartbeat must then age out: by the clock where it was written on this machine, otherwise by
    seeing it unchanged for that long, as other machines' clocks may be off.

    Args:
        pause: waits for some seconds; may raise to give up.

    Raises:
        NoWork: a newer submission appeared while waiting.
    """
    seen: tuple[int, float] | None = None
    seen_at = time.monotonic()
    while True:
        last = _newest_attempt(paths)
        if last is None:
            return 1
        if last.exit.is_file():
            return last.number + 1
        claim = read_record(Claim, last.claim)
        beat = last_beat(last, claim)
        if (last.number, beat) != seen:
            seen, seen_at = (last.number, beat), time.monotonic()
        liveness = process_liveness(claim.host, claim.pid, claim.pid_started, claim.time)
        unchanged_s = time.monotonic() - seen_at
        is_here = liveness is Liveness.ALIVE
        age_s = max(time.time() - beat, unchanged_s) if is_here else unchanged_s
        if liveness is Liveness.DEAD or age_s > assignment.heartbeat_limit_s:
            return last.number + 1
        newest = newest_submission(paths)
        if newest is not None and newest.id != assignment.intent.id:
            raise NoWork(f"submission {newest.id} appeared and lists this run")
        pause(_POLL_S)


def last_beat(attempt: AttemptPaths, claim: Claim) -> float:
    """Return when the attempt last showed life, in seconds since the epoch by its own clock."""
    heartbeat = read_record_if_there(Heartbeat, attempt.heartbeat)
    return claim.time if heartbeat is None else max(claim.time, heartbeat.time)


def create_claim(
    paths: RunPaths, assignment: Assignment, number: int, job: SlurmJob | None = None
) -> Claim:
    """Create the claim of attempt `number` and return it.

    Args:
        job: that this runner was started in; None on a local queue.

    Raises:
        NoWork: another runner has created it first.
    """
    intent = assignment.intent
    spent = spent_rules(paths) if intent.stop_when else frozenset()
    claim = Claim(
        schema_version=SCHEMA_VERSION,
        attempt=number,
        submission=intent.id,
        nonce=intent.nonce,
        host=host_name(),
        pid=os.getpid(),
        pid_started=process_start(os.getpid()),
        time=time.time(),
        max_steps=assignment.run.max_steps,
        code_hash=intent.code_hash,
        machine=machine_facts(),
        job_id=_job_id(job),
        node=None if job is None else job.node,
        gpus=_held_gpus(job),
        num_nodes=1 if job is None else job.num_nodes,
        stop_when=tuple(rule.text for rule in intent.stop_when if rule.text not in spent),
    )
    if not create_exclusive(paths.attempt(number).claim, to_json(to_record(claim))):
        raise NoWork(f"another runner has claimed attempt {number}")
    return claim


def has_newer_claim(paths: RunPaths, number: int) -> bool:
    """Whether an attempt after `number` has been claimed."""
    last = _newest_attempt(paths)
    return last is not None and last.number > number


def _newest_attempt(paths: RunPaths) -> AttemptPaths | None:
    attempts = paths.attempts()
    return attempts[-1] if attempts else None


def _lists(paths: RunPaths, submission_id: str) -> bool:
    intent = paths.sweep.submission(submission_id).intent
    if not intent.is_file():
        return False
    runs = read_json(intent).get("runs", [])
    return any((run.get("arm"), run.get("seed")) == (paths.arm, paths.seed) for run in runs)


def _job_id(job: SlurmJob | None) -> str | None:
    around = job or own_job(os.environ)  # a local queue may run inside an allocation
    return None if around is None else around.job_id


def _held_gpus(job: SlurmJob | None) -> tuple[str, ...]:
    if os.environ.get(VISIBLE_GPUS_ENV):
        return visible_gpu_ids()
    return () if job is None else job.gpus
