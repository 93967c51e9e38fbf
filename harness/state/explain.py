"""Why a run is in the state it is in: everything known of its newest attempt, on one screen."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

from harness.errors import HarnessError, UsageError
from harness.near import did_you_mean
from harness.records.layout import AttemptPaths, RunPaths
from harness.records.model import Claim, Exit, RunRecord, read_record, read_record_if_there
from harness.runner.failure import last_traceback, read_tail, signal_name
from harness.scheduler.jobs import Job
from harness.state.jobs import JobTable
from harness.state.status import LIVE_STATES, RunStatus, read_state
from harness.state.submissions import Submissions

TAIL_LINES = 15
_BLOCK_BYTES = 1 << 16


@dataclass(frozen=True)
class Explanation:
    """What `why` shows.

    Attributes:
        exit: the newest attempt's exit record; None while it goes on, or was cut off.
        ending: the exit code or signal in words; empty without an exit record.
        traceback: the last one in the log; empty where there is none.
        tail: the last lines of the log.
        log: of the newest attempt, or what its batch script printed where that says more; None
            where the run was never started.
        job: as SLURM knows it; None on a local queue, or where SLURM wasn't asked or doesn't know.
    """

    status: RunStatus
    exit: Exit | None
    ending: str
    traceback: str
    tail: tuple[str, ...]
    log: Path | None
    job: Job | None = None


def explain(
    run: RunPaths, *, now: float | None = None, jobs: JobTable | None = None
) -> Explanation:
    """Explain one run from its records, its logs and what SLURM says of its job.

    Raises:
        HarnessError: the sweep has no readable plan.
    """
    jobs = JobTable() if jobs is None else jobs
    status = read_state(run.sweep, run.arm, run.seed, now=now, jobs=jobs)
    job = None if status.submission is None else jobs.find(status.submission, status.run_id)
    attempts = run.attempts()
    ended: Exit | None = None
    if attempts:
        with contextlib.suppress(HarnessError):  # the status says which record is damaged
            ended = read_record_if_there(Exit, attempts[-1].exit)
    log = _log_of_state(run, status, attempts, ended)
    traceback = "" if log is None else last_traceback(read_tail(log))
    for part in () if traceback or log is None else _part_logs(run):
        traceback = traceback or last_traceback(read_tail(part))
    return Explanation(
        status=status,
        exit=ended,
        ending="" if ended is None else describe_exit(ended),
        traceback=traceback,
        tail=() if log is None else tuple(read_last_lines(log, TAIL_LINES)),
        log=log,
        job=job,
    )


def describe_job(job: Job) -> str:
    """Return what SLURM says of a job on one line: `12_3 FAILED, exit code 127, on gpu01`."""
    parts = [f"{job.job_id} {job.state}"]
    if job.reason:
        parts.append(job.reason)
    code, _, signal_number = job.exit_code.partition(":")
    if code not in ("", "0"):
        parts.append(f"exit code {code}")
    if signal_number not in ("", "0"):
        parts.append(signal_name(int(signal_number)))
    if job.nodes:
        parts.append(f"on {job.nodes}")
    if job.restarts:
        parts.append(f"restarts: {job.restarts}")
    return ", ".join(parts)


def describe_exit(ended: Exit) -> str:
    """Return how the trainer's process ended, in words: `exit code 3`, `SIGKILL`."""
    if ended.signal is not None:
        return signal_name(ended.signal)
    return "never started" if ended.code is None else f"exit code {ended.code}"


def find_log(run: RunPaths, part: str | None = None) -> Path | None:
    """Return the log of the newest attempt; where it is missing or empty, what the run's batch
    script printed on SLURM; None where there is neither.

    Args:
        part: of the trainer, whose own log is wanted instead.

    Raises:
        UsageError: the trainer has no log of that part.
    """
    if part is None:
        return _newest_log(run, run.attempts())
    record = read_record(RunRecord, run.record)
    if part not in record.logs:
        raise UsageError(
            f"the trainer `{record.trainer}` has no log of a part `{part}`",
            did_you_mean(part, record.logs, what="parts")
            if record.logs
            else "leave --of out: everything it prints is in one log",
        )
    path = (run.root / record.logs[part]).resolve()
    return path if path.is_file() and path.is_relative_to(run.root.resolve()) else None


def read_last_lines(path: Path, num_lines: int) -> list[str]:
    """Return the last lines of a log, oldest first, without reading more of it than they take.

    A log that can't be read has none.
    """
    try:
        with path.open("rb") as file:
            position = file.seek(0, 2)
            blocks: deque[bytes] = deque()
            num_breaks = 0
            while position > 0 and num_breaks <= num_lines:
                start = max(0, position - _BLOCK_BYTES)
                file.seek(start)
                blocks.appendleft(file.read(position - start))
                num_breaks += blocks[0].count(b"\n")
                position = start
    except OSError:
        return []
    lines = b"".join(blocks).decode("utf-8", errors="replace").split("\n")
    if lines and not lines[-1]:
        lines.pop()
    return [line.rstrip("\r") for line in lines[-num_lines:]] if num_lines > 0 else []


def _log_of_state(
    run: RunPaths, status: RunStatus, attempts: Sequence[AttemptPaths], ended: Exit | None
) -> Path | None:
    """Return the log that says most about the state."""
    is_by_slurm = status.state not in LIVE_STATES and (ended is None or status.since != ended.end)
    if is_by_slurm:
        # The newest start of the job may have come to its end before it claimed an attempt.
        batch_log = _batch_log(run)
        is_newer = not attempts or _changed(batch_log) > _changed(attempts[-1].log)
        if is_newer and _has_text(batch_log):
            return batch_log
    return _newest_log(run, attempts)


def _part_logs(run: RunPaths) -> list[Path]:
    """Return the logs of the trainer's parts that the newest attempt has written to."""
    attempts = run.attempts()
    if not attempts:
        return []
    with contextlib.suppress(HarnessError, OSError):
        record = read_record(RunRecord, run.record)
        began = read_record(Claim, attempts[-1].claim).time
        paths = [run.root / path for path in record.logs.values()]
        return [path for path in paths if path.exists() and path.stat().st_mtime >= began]
    return []


def _newest_log(run: RunPaths, attempts: Sequence[AttemptPaths]) -> Path | None:
    own = attempts[-1].log if attempts else None
    if _has_text(own):
        return own
    batch_log = _batch_log(run)
    return batch_log if own is None or _has_text(batch_log) else own


def _batch_log(run: RunPaths) -> Path | None:
    """Return what the newest job of the run has printed; None where there is no such file."""
    run_id = f"{run.arm}/{run.root.name}"
    with contextlib.suppress(HarnessError):
        for submission in Submissions(run.sweep).with_run(run_id):
            found = submission.element(run_id)
            receipt = None if found is None else submission.job_receipt(found[0])
            if found is not None and receipt is not None and receipt.job_id is not None:
                path = submission.paths.element_log(receipt.job_id, found[1])
                if path.exists():
                    return path
    return None


def _has_text(path: Path | None) -> TypeGuard[Path]:
    try:
        return path is not None and path.stat().st_size > 0
    except OSError:
        return False


def _changed(path: Path | None) -> float:
    try:
        return 0.0 if path is None else path.stat().st_mtime
    except OSError:
        return 0.0
