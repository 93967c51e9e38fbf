"""SLURM's commands. Each call ends within its time limit and fails with one line that says why.

Nothing of an allocation that this process may run in reaches them (see `clean_env`).
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from harness.errors import HarnessError
from harness.printable import one_line
from harness.scheduler.jobs import (
    SACCT_FIELDS,
    SEPARATOR,
    SQUEUE_FIELDS,
    parse_sacct,
    parse_squeue,
)
from harness.scheduler.jobs import Job as Job

TIMEOUT_S = 30.0

_OWN_PREFIXES = ("SLURM_", "SLURMD_", "SBATCH_", "SALLOC_", "SRUN_", "SUBMITIT_")
_OPTION_PREFIXES = ("SQUEUE_", "SACCT_", "SCANCEL_", "SCONTROL_", "SINFO_")
"""Options that a user has set for the own shell; they would filter or reshape the answers."""
_KEPT = frozenset({"SLURM_CONF", "SLURM_CLUSTERS"})
_IDS_PER_CALL = 1_000
_PAIR = re.compile(r"(?:^|\s+)([A-Z][\w:/.-]*)=")
_WHOLE_LINE_KEYS = frozenset({"Command", "WorkDir", "StdErr", "StdIn", "StdOut", "Comment"})
_GONE = re.compile(r"Invalid job id specified|[Jj]ob/step already completing or completed")


class SlurmError(HarnessError):
    """SLURM can't be asked, or says no. The message names the command and gives its words."""


def clean_env() -> dict[str, str]:
    """Return this process's environment without what SLURM or submitit put into it.

    SLURM_CONF and SLURM_CLUSTERS stay: they say which cluster is meant.
    """
    return {
        name: value
        for name, value in os.environ.items()
        if name in _KEPT or not name.startswith(_OWN_PREFIXES + _OPTION_PREFIXES)
    }


def call(command: Sequence[str], *, timeout_s: float = TIMEOUT_S) -> str:
    """Return what a SLURM command prints.

    Raises:
        SlurmError: it is missing, fails, or doesn't answer in time.
    """
    answer = _run(command, timeout_s)
    if answer.code != 0:
        raise _failure(command, answer.complaints, answer.code)
    return answer.text


def squeue_jobs(user: str, clusters: Collection[str] = ()) -> list[Job]:
    """Return all jobs of a user (or of several: `a,b`) that the controller knows, in one call.

    That includes those that ended lately (MinJobAge). Elements of an array that wait are listed
    one by one: together they would hide which of them is held or was requeued.

    Raises:
        SlurmError: the controller doesn't answer.
    """
    fields = ",".join(f"{name}:0{SEPARATOR}" for name in SQUEUE_FIELDS)
    command = ["squeue", "--noheader", "--array", "--states=all", f"--user={user}"]
    command += [f"--Format={fields}", *_clusters(clusters)]
    answer = _run(command)
    # Of a user that it doesn't know, or a cluster that is down, it complains and exits 0.
    complaints = [c for c in answer.complaints if clusters or "Invalid user" in c]
    if answer.code != 0 or complaints:
        raise _failure(command, complaints or answer.complaints, answer.code)
    return _parse(parse_squeue, "squeue", answer.text)


def sacct_jobs(
    user: str, array_job_ids: Iterable[str] | None, since: float, clusters: Collection[str] = ()
) -> list[Job]:
    """Return how accounting knows some jobs, in one call: of each its newest start.

    Args:
        user: whose jobs; several as `a,b`.
        array_job_ids: None for all jobs of the user.
        since: seconds since the epoch; rows of jobs that had ended before are left out.

    Raises:
        SlurmError: there is no accounting, or it doesn't answer.
    """
    ids = None if array_job_ids is None else ",".join(sorted(set(array_job_ids)))
    if ids == "":
        return []
    start = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(since))
    command = [
        "sacct",
        "--noheader",
        "--parsable2",
        f"--delimiter={SEPARATOR}",
        "--allocations",
        "--duplicates",
        f"--user={user}",
        *([] if ids is None else [f"--jobs={ids}"]),
        f"--starttime={start}",
        f"--format={','.join(SACCT_FIELDS)}",
    ]
    return _parse(parse_sacct, "sacct", call([*command, *_clusters(clusters)]))


def scancel(job_ids: Collection[str], clusters: Collection[str] = ()) -> None:
    """Cancel jobs and array elements (`12`, `12_3`); those that have ended are passed over.

    Raises:
        SlurmError: SLURM can't be asked or refuses.
    """
    ids = list(job_ids)
    for start in range(0, len(ids), _IDS_PER_CALL):
        chunk = ids[start : start + _IDS_PER_CALL]
        command = ["scancel", "--quiet", *_clusters(clusters), *chunk]
        answer = _run(command)
        complaints = [c for c in answer.complaints if not _GONE.search(c)]
        if answer.code != 0 and (complaints or not answer.complaints):
            raise _failure(command, complaints, answer.code)


def show_job(job_id: str, *, timeout_s: float = TIMEOUT_S) -> dict[str, str]:
    """Return what `scontrol show job` says of one job, by SLURM's names (`JobState`, `Reason`).

    Raises:
        SlurmError: the controller doesn't know the job (any more) or doesn't answer.
    """
    return parse_show_job(call(["scontrol", "show", "job", job_id], timeout_s=timeout_s))


def requeue(job_id: str, *, timeout_s: float = TIMEOUT_S) -> None:
    """Have a job started again. Raises SlurmError."""
    call(["scontrol", "requeue", job_id], timeout_s=timeout_s)


def release(job_ids: Sequence[str], *, timeout_s: float = TIMEOUT_S) -> None:
    """Let held jobs start. Raises SlurmError."""
    for start in range(0, len(job_ids), _IDS_PER_CALL):
        some = ",".join(job_ids[start : start + _IDS_PER_CALL])
        call(["scontrol", "release", some], timeout_s=timeout_s)


def rename(job_id: str, name: str, *, timeout_s: float = TIMEOUT_S) -> None:
    """Give a job another name. Raises SlurmError."""
    call(["scontrol", "update", f"JobId={job_id}", f"JobName={name}"], timeout_s=timeout_s)


def show_config(*, timeout_s: float = TIMEOUT_S) -> dict[str, str]:
    """Return the cluster's configuration by SLURM's names. Raises SlurmError."""
    text = call(["scontrol", "show", "config"], timeout_s=timeout_s)
    pairs = (line.partition("=") for line in text.splitlines())
    return {key.strip(): value.strip() for key, equals, value in pairs if equals}


def max_array_size() -> int:
    """Return the cluster's MaxArraySize: indices of array elements are below it.

    Raises:
        SlurmError: the controller doesn't answer, or arrays are switched off.
    """
    value = show_config().get("MaxArraySize", "")
    if not value.isdecimal() or int(value) < 1:
        raise SlurmError(f"the cluster allows no job arrays (MaxArraySize is `{value}`)")
    return int(value)


def ping() -> str | None:
    """Return None where a controller answers, else one line that says what is wrong."""
    try:
        said = call(["scontrol", "ping"])
    except SlurmError as error:
        return error.message
    return None if re.search(r"\bUP\b", said) else one_line(said) or "no controller answers"


def parse_show_job(text: str) -> dict[str, str]:
    """Return the pairs of the first job in the answer of `scontrol show job`."""
    pairs: dict[str, str] = {}
    for line in text.strip().split("\n"):
        if not line.strip():
            break  # the next job
        line = line.strip()
        key, equals, rest = line.partition("=")
        if equals and key in _WHOLE_LINE_KEYS:
            pairs[key] = rest
            continue
        parts = _PAIR.split(line)
        pairs.update(zip(parts[1::2], parts[2::2], strict=True))
    return pairs


@dataclass(frozen=True)
class _Answer:
    """What a command left: exit code, stdout, and the lines on stderr."""

    code: int
    text: str
    complaints: list[str]


def _run(command: Sequence[str], timeout_s: float = TIMEOUT_S) -> _Answer:
    name = command[0]
    try:
        done = subprocess.run(
            list(command),
            env=clean_env() | {"SLURM_BITSTR_LEN": "0", "SLURM_TIME_FORMAT": "%s"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise SlurmError(
            f"`{name}` gave no answer within {timeout_s:g} s", "`scontrol ping` says more"
        ) from None
    except FileNotFoundError:
        raise SlurmError(
            f"`{name}` is not on the PATH",
            "load your site's SLURM module, or work on a login node of the cluster",
        ) from None
    except OSError as error:
        raise SlurmError(f"`{name}` can't be started: {error.strerror or error}") from error
    lines = (one_line(line) for line in done.stderr.decode(errors="replace").splitlines())
    complaints = [line for line in lines if line]
    return _Answer(done.returncode, done.stdout.decode(errors="replace"), complaints)


def _failure(command: Sequence[str], complaints: Sequence[str], code: int) -> SlurmError:
    name = command[0]
    said = complaints[0] if complaints else f"exit code {code}"
    said = said.removeprefix(f"{name}: ").removeprefix("error: ")
    return SlurmError(f"`{name}` failed: {said}")


def _parse(parse: Callable[[str], list[Job]], name: str, text: str) -> list[Job]:
    try:
        return parse(text)
    except ValueError as error:
        raise SlurmError(f"`{name}` gave an answer that can't be read: {error}") from error


def _clusters(clusters: Collection[str]) -> list[str]:
    return [f"--clusters={','.join(sorted(clusters))}"] if clusters else []
