"""From the lines that squeue and sacct print to jobs.

Both print one line per job or array element, or one for several elements of an array, with the
fields separated by `SEPARATOR`; times are seconds since the epoch. Text that users choose (name,
comment) stands last, so that no content of it moves another field.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

SEPARATOR = "\x1f"

SQUEUE_FIELDS = (
    "ArrayJobID",
    "ArrayTaskID",
    "State",
    "UserName",
    "NodeList",
    "TimeUsed",
    "TimeLimit",
    "exit_code",
    "SubmitTime",
    "StartTime",
    "RestartCnt",
    "Cluster",
    "Reason",
    "Name",
    "Comment",
)
SACCT_FIELDS = (
    "JobID",
    "State",
    "User",
    "NodeList",
    "ElapsedRaw",
    "TimelimitRaw",
    "ExitCode",
    "Submit",
    "Start",
    "Cluster",
    "Reason",
    "JobName",
    "Comment",
)

_TIME = re.compile(r"(?:(\d+)-)?(?:(?:(\d+):)?(\d+):)?(\d+)")
_RANGE = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?")
_JOB_ID = re.compile(r"(\d+)(?:_(?:(\d+)|\[([^\]]*)\]?))?")
_EMPTY = frozenset({"", "(null)", "N/A", "None", "None assigned", "Unknown"})


@dataclass(frozen=True)
class Job:
    """One job, or one element of a job array, as SLURM sees it.

    Attributes:
        array_job_id: of the array; the job's own id where it is no array.
        index: within the array; None where it is no array.
        state: SLURM's word in upper case, without its tail (`CANCELLED by 0` is `CANCELLED`).
        reason: why it waits or how it ended, in SLURM's words; empty where there is none.
        nodes: as SLURM writes lists of nodes, `gpu[01-02]`; empty before it started.
        elapsed_s: since it was started last; limit_s: its time limit, None where it has none.
        exit_code: `<code>:<signal>`.
        submit_time, start_time: seconds since the epoch; a requeue counts as a submission.
            start_time is None before it started (squeue: or the start that is expected).
        restarts: how often it was started again; None where that isn't told.
        cluster: empty where SLURM names none.
    """

    array_job_id: str
    index: int | None
    state: str
    reason: str = ""
    name: str = ""
    comment: str = ""
    nodes: str = ""
    elapsed_s: float | None = None
    limit_s: float | None = None
    exit_code: str = ""
    submit_time: float = 0.0
    start_time: float | None = None
    restarts: int | None = None
    cluster: str = ""
    user: str = ""

    @property
    def job_id(self) -> str:
        """The id that SLURM's commands take: `12_3`, or `12` where it is no array."""
        return self.array_job_id if self.index is None else f"{self.array_job_id}_{self.index}"


def parse_squeue(text: str) -> list[Job]:
    """Return the jobs in squeue's answer to SQUEUE_FIELDS.

    Once an array is cancelled, those of its elements that never started may stand together as one
    ended job without an index.

    Raises:
        ValueError: a list of array elements is cut short (see `expand_indices`).
    """
    jobs: list[Job] = []
    for fields in _split(text, len(SQUEUE_FIELDS)):
        job_id, tasks, state, user, nodes, elapsed, limit, code, submit, start = fields[:10]
        restarts, cluster, reason, name, comment = fields[10:]
        if not job_id.isdecimal():
            continue
        job = Job(
            array_job_id=job_id,
            index=None,
            state=_word(state),
            reason=_text(reason),
            name=name,
            comment=_text(comment),
            nodes=_text(nodes),
            elapsed_s=parse_duration(elapsed),
            limit_s=parse_duration(limit),
            exit_code=_exit_code(code),
            submit_time=_epoch(submit) or 0.0,
            start_time=_epoch(start),
            restarts=int(restarts) if restarts.isdecimal() else None,
            cluster=_text(cluster),
            user=user,
        )
        jobs.extend(_expand(job, None if tasks in _EMPTY else tasks))
    return jobs


def parse_sacct(text: str) -> list[Job]:
    """Return the jobs in sacct's answer to SACCT_FIELDS: of each the newest row.

    A job that was requeued has one row per start; only the newest says how it stands.

    Raises:
        ValueError: a list of array elements is cut short (see `expand_indices`).
    """
    newest: dict[tuple[str, str, int | None], Job] = {}
    for fields in _split(text, len(SACCT_FIELDS)):
        job_id, state, user, nodes, elapsed, limit_min, code, submit, start = fields[:9]
        cluster, reason, name, comment = fields[9:]
        match = _JOB_ID.fullmatch(job_id)
        if match is None:
            continue
        job = Job(
            array_job_id=match[1],
            index=None,
            state=_word(state),
            reason=_text(reason),
            name=name,
            comment=_text(comment),
            nodes=_text(nodes),
            elapsed_s=float(elapsed) if elapsed.isdecimal() else None,
            limit_s=60.0 * int(limit_min) if limit_min.isdecimal() else None,
            exit_code=_text(code),
            submit_time=_epoch(submit) or 0.0,
            start_time=_epoch(start),
            cluster=_text(cluster),
            user=user,
        )
        for row in _expand(job, match[2] or match[3]):
            key = (row.cluster, row.array_job_id, row.index)
            if key not in newest or _age_order(row) >= _age_order(newest[key]):
                newest[key] = row
    return list(newest.values())


def expand_indices(text: str) -> Iterator[int]:
    """Yield the indices in SLURM's list of array elements: `3-7,9%2`, `1-5:2`, `[0,2]`, `4`.

    Raises:
        ValueError: it isn't one, or is cut short by `...` (SLURM does that to long lists unless
            SLURM_BITSTR_LEN is 0).
    """
    for part in text.strip("[]").partition("%")[0].split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            raise ValueError(f"`{text}` is not a whole list of array elements")
        first = int(match[1])
        last = first if match[2] is None else int(match[2])
        yield from range(first, last + 1, int(match[3] or 1))


def parse_duration(text: str) -> float | None:
    """Return the seconds in `1-02:03:04`, `02:03:04`, `3:04`; None where it is no duration
    (UNLIMITED, NOT_SET, INVALID, N/A, Partition_Limit)."""
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def _split(text: str, num_fields: int) -> Iterator[list[str]]:
    for line in text.split("\n"):
        fields = line.split(SEPARATOR, num_fields - 1)
        if len(fields) == num_fields:  # else: a heading of squeue -M, or the rest of a comment
            fields[-1] = fields[-1].removesuffix(SEPARATOR)
            yield [field.strip() for field in fields]


def _expand(job: Job, tasks: str | None) -> Iterable[Job]:
    if tasks is None:
        return (job,)
    if tasks.isdecimal():
        return (replace(job, index=int(tasks)),)
    return [replace(job, index=index) for index in expand_indices(tasks)]


def _age_order(job: Job) -> tuple[float, float]:
    return (job.submit_time, job.start_time or float("inf"))


def _word(state: str) -> str:
    words = state.split()
    return words[0].upper().rstrip("+") if words else ""


def _exit_code(text: str) -> str:
    """Return `<code>:<signal>`; squeue gives both in one number, as `wait` does."""
    if not text.isdecimal():
        return _text(text)
    number = int(text)
    return f"{number >> 8 & 0xFF}:{number & 0x7F}"


def _text(value: str) -> str:
    return "" if value in _EMPTY else value


def _epoch(text: str) -> float | None:
    return float(text) if text.isdecimal() and int(text) > 0 else None
