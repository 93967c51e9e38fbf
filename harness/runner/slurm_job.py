"""The SLURM job that a runner is in: what it knows from its environment, and what SLURM says.

SLURM counts how often it started a job again (`Restarts`), from the moment it decides to. A runner
compares that with the count that it was started with: a higher one means that SLURM has taken this
start back and makes another, wherever this process still runs.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from harness.scheduler.commands import SlurmError, rename, requeue, show_config, show_job
from harness.scheduler.words import Phase, phase_of

ASK_TIMEOUT_S = 5.0
"""How long one question to SLURM may take: a runner that was told to stop has little time."""
KILL_WAIT_S = 30.0
"""SLURM's default time between SIGTERM and SIGKILL, where it can't be asked."""

_UNKNOWN_JOB = "Invalid job id"
_ENDING_RESERVE = 0.3
"""Share of a known time until SIGKILL that is kept for the records and the requeue."""
_MAX_ENDING_RESERVE_S = 10.0
_MIN_GRACE_S = 1.0
_PASSING = re.compile(
    r"no answer within|contact|timed out|time(d)? ?out|Zero Bytes|Connection|temporar|try again",
    re.IGNORECASE,
)


class JobSign(StrEnum):
    """What becomes of this start of the job, as far as SLURM says."""

    RUNNING = "running"
    """It goes on, or will be ended later (`JobFacts.end_time`)."""
    RESTARTING = "restarting"
    """SLURM starts the job again, or has done so."""
    PREEMPTED = "preempted"
    """SLURM has taken the nodes and doesn't start the job again (PreemptMode=CANCEL)."""
    CANCELLED = "cancelled"
    TIMEOUT = "timeout"
    ENDED = "ended"
    """SLURM ended it for another reason (`JobFacts.reason`), or doesn't know it any more."""
    SILENT = "silent"
    """SLURM doesn't answer, or uses an unknown word."""


@dataclass(frozen=True)
class JobFacts:
    """One answer of SLURM.

    Attributes:
        reason: in SLURM's words; the error where it is silent.
        end_time: when the job will be ended, seconds since the epoch; None for never or unknown.
        is_preempted: whether SLURM has announced that it takes the nodes at `end_time`.
    """

    sign: JobSign
    reason: str = ""
    end_time: float | None = None
    is_preempted: bool = False


SILENT = JobFacts(JobSign.SILENT)


@dataclass(frozen=True)
class SlurmJob:
    """A start of one job: the job's id as SLURM's commands take it, and the count of restarts.

    Attributes:
        node: the first node's name in SLURM.
        gpus: that the job holds on this node.
        name: the job's name when it started.
    """

    job_id: str
    restarts: int = 0
    node: str | None = None
    num_nodes: int = 1
    gpus: tuple[str, ...] = ()
    name: str = ""

    def ask(self) -> JobFacts:
        """Ask SLURM what becomes of the job; SILENT with the error where it doesn't answer."""
        try:
            pairs = show_job(self.job_id, timeout_s=ASK_TIMEOUT_S)
        except SlurmError as error:
            if _UNKNOWN_JOB in error.message:
                return JobFacts(JobSign.ENDED, f"it no longer knows job {self.job_id}")
            return JobFacts(JobSign.SILENT, error.message)
        return read_facts(pairs, self.restarts)

    def rename(self, name: str) -> None:
        """Give the job a name; nothing happens where SLURM doesn't answer or refuses."""
        if name == self.name:
            return
        with contextlib.suppress(SlurmError):
            rename(self.job_id, name, timeout_s=ASK_TIMEOUT_S)

    def requeue(self) -> None:
        """Have the job started again, which ends this start of it. Raises SlurmError."""
        requeue(self.job_id, timeout_s=ASK_TIMEOUT_S)


def own_job(env: Mapping[str, str]) -> SlurmJob | None:
    """Return the job that SLURM's variables name; None outside one."""
    array, index = env.get("SLURM_ARRAY_JOB_ID"), env.get("SLURM_ARRAY_TASK_ID")
    job_id = f"{array}_{index}" if array and index else env.get("SLURM_JOB_ID")
    if not job_id:
        return None
    listed = env.get("SLURM_STEP_GPUS") or env.get("SLURM_JOB_GPUS") or ""
    return SlurmJob(
        job_id=job_id,
        restarts=_count(env.get("SLURM_RESTART_COUNT"), 0),
        node=env.get("SLURMD_NODENAME") or None,
        num_nodes=_count(env.get("SLURM_JOB_NUM_NODES"), 1),
        gpus=tuple(gpu for gpu in listed.split(",") if gpu),
        name=env.get("SLURM_JOB_NAME", ""),
    )


def read_facts(pairs: Mapping[str, str], restarts: int) -> JobFacts:
    """Return what SLURM's description of a job says of the start with `restarts` before it."""
    state = pairs.get("JobState", "").partition(" ")[0]
    reason = "" if pairs.get("Reason") == "None" else pairs.get("Reason", "")
    phase = phase_of(state)
    if _count(pairs.get("Restarts"), 0) > restarts or phase is Phase.WAITING:
        return JobFacts(JobSign.RESTARTING, reason)
    if phase is Phase.UNKNOWN:
        return JobFacts(JobSign.SILENT, f"SLURM says `{state}`")
    is_preempted = _time(pairs.get("PreemptTime", "")) is not None
    if phase is Phase.RUNNING:
        end_time = _time(pairs.get("EndTime", ""))
        return JobFacts(JobSign.RUNNING, reason, end_time, is_preempted=is_preempted)
    if state == "TIMEOUT" or reason == "TimeLimit":
        return JobFacts(JobSign.TIMEOUT, reason)
    if state == "PREEMPTED" or is_preempted:
        return JobFacts(JobSign.PREEMPTED, reason)
    if state == "CANCELLED" or (phase is Phase.ENDING and not reason):
        return JobFacts(JobSign.CANCELLED, reason)
    return JobFacts(JobSign.ENDED, " ".join(text for text in (state, reason) if text))


def is_passing(error: SlurmError) -> bool:
    """Whether the failure may go away by itself: a controller that is down, busy or starting."""
    return _PASSING.search(error.message) is not None


def read_kill_wait() -> float:
    """Return the seconds that SLURM leaves between SIGTERM and SIGKILL."""
    try:
        value = show_config(timeout_s=ASK_TIMEOUT_S).get("KillWait", "")
    except SlurmError:
        return KILL_WAIT_S
    match = re.match(r"\d+", value)  # `30 sec`
    return float(match[0]) if match else KILL_WAIT_S


def allowed_grace(facts: JobFacts, grace_s: float, kill_wait_s: float, now: float) -> float:
    """Return how long a trainer may take to stop, so that its end can still be recorded.

    Args:
        kill_wait_s: until the SIGKILL, where SLURM is ending the job already.
        now: seconds since the epoch.
    """
    if facts.sign is JobSign.RUNNING:
        if facts.end_time is None:
            return grace_s
        left_s = facts.end_time - now
    else:
        left_s = kill_wait_s
    reserve_s = min(_MAX_ENDING_RESERVE_S, _ENDING_RESERVE * left_s)
    return min(grace_s, max(_MIN_GRACE_S, left_s - reserve_s))


def time_left(facts: JobFacts) -> float | None:
    """Return the seconds until SLURM ends a job that runs; None where it won't, or is silent."""
    return None if facts.end_time is None else facts.end_time - time.time()


def _count(text: str | None, default: int) -> int:
    return int(text) if text is not None and text.isdecimal() else default


def _time(text: str) -> float | None:
    return float(text) if text.isdecimal() and int(text) > 0 else None
