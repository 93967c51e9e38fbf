"""Hands batch jobs to SLURM through submitit, the only module that talks to it.

submitit writes the script, runs `sbatch` and files the script under the job's id. Its pickles are
not used: an array whose elements wait for files that are renamed after `sbatch` would die with its
submitter. One `sbatch` hands over a whole array, or nothing.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import submitit

from harness.dispatch.environment import without_run_variables
from harness.dispatch.script import BatchJob, command, drop_options, parameters
from harness.printable import one_line
from harness.scheduler.commands import clean_env

SBATCH_TIMEOUT_S = 120.0
_KILL_AFTER_S = 5
_TIMED_OUT = (124, 137, -9)
"""How `timeout` ends when it had to end the command."""
_ANSWER = re.compile(r"\bjob (?P<id>[0-9]+)(?: on cluster (?P<cluster>[\w.-]+))?")
_PARSABLE = re.compile(r"^(?P<id>[0-9]+)(?:;(?P<cluster>[\w.-]+))?$", re.MULTILINE)
_DOUBTFUL = re.compile(
    r"timed? ?out|unable to contact|connect|communicat|socket|unexpected message", re.IGNORECASE
)
_MAX_WORDS = 300


@dataclass(frozen=True)
class Accepted:
    """A job that SLURM has taken. `cluster` is None where it named none."""

    job_id: str
    cluster: str | None


class SbatchError(Exception):
    """`sbatch` did not say that there is a job. There may be one all the same.

    Attributes:
        words: what it said, in one line.
        is_doubtful: whether the controller may still take the job after this.
    """

    def __init__(self, words: str, *, is_doubtful: bool) -> None:
        super().__init__(words)
        self.words = words
        self.is_doubtful = is_doubtful


def render_script(job: BatchJob, folder: Path) -> str:
    """Return the batch script of `job`, whose logs go to `folder`."""
    return _Executor(folder, job).render()


def sbatch(job: BatchJob, folder: Path, timeout_s: float = SBATCH_TIMEOUT_S) -> Accepted:
    """Hand `job` to SLURM in one call; its script is kept in `folder`, which exists.

    Nothing of an allocation that this process runs in reaches `sbatch`, and no option that the
    user has set for the own shell (`SBATCH_…`).

    Raises:
        SbatchError: there was no answer with a job id.
    """
    executor = _Executor(folder, job, timeout_s)
    said = io.StringIO()
    try:
        with _environment(submission_env()), contextlib.redirect_stderr(said):
            executor.submit_script()
    except Exception as error:
        if executor.accepted is not None:
            return executor.accepted  # only filing the script has failed
        raise _explain(error, timeout_s) from error
    if executor.accepted is None:
        raise SbatchError("`sbatch` gave no job id", is_doubtful=True)
    return executor.accepted


def submission_env() -> dict[str, str]:
    """Return the environment that `sbatch` gets and, through SLURM, every run."""
    return without_run_variables(clean_env())


def parse_answer(text: str) -> Accepted | None:
    """Return the job that an answer of `sbatch` names, or None."""
    match = _ANSWER.search(text) or _PARSABLE.search(text)
    return None if match is None else Accepted(match["id"], match["cluster"])


class _Executor(submitit.SlurmExecutor):
    """submitit's executor for one job that runs a command of ours."""

    def __init__(self, folder: Path, job: BatchJob, timeout_s: float = SBATCH_TIMEOUT_S) -> None:
        super().__init__(folder)
        self.accepted: Accepted | None = None
        self._job = job
        self._timeout_s = timeout_s
        self.update_parameters(**parameters(job))
        if job.num_elements is not None:
            self.parameters["map_count"] = job.num_elements

    @classmethod
    def affinity(cls) -> int:
        return 2  # not by whether there is an `srun` on this machine

    def render(self) -> str:
        return self._make_submission_file_text(command(self._job), "")

    def submit_script(self) -> None:
        """Write the script, run `sbatch` once, and set `accepted`."""
        self._submit_command(command(self._job))

    def _make_submission_file_text(self, command: str, uid: str) -> str:
        text: str = super()._make_submission_file_text(command, uid)
        return drop_options(text, self._job)

    def _make_submission_command(self, submission_file_path: Path) -> list[str]:
        # `timeout` also moves sbatch out of the terminal's reach: Ctrl-C must not end it halfway.
        limit = f"{self._timeout_s:g}"
        path = str(submission_file_path)
        return ["timeout", f"--kill-after={_KILL_AFTER_S}", limit, "sbatch", path]

    def _get_job_id_from_submission_command(  # type: ignore[override]  # keeps the cluster
        self, string: bytes | str
    ) -> str:
        text = string.decode(errors="replace") if isinstance(string, bytes) else string
        self.accepted = parse_answer(text)
        if self.accepted is None:
            shown = one_line(text)[:_MAX_WORDS] or "nothing"
            raise SbatchError(f"`sbatch` gave no job id, it said: {shown}", is_doubtful=True)
        return self.accepted.job_id


def _explain(error: Exception, timeout_s: float) -> SbatchError:
    if isinstance(error, SbatchError):
        return error
    cause = error.__cause__
    if isinstance(error, OSError):
        what = f"`{error.filename}`: " if error.filename else ""
        return SbatchError(f"{what}{error.strerror or error}", is_doubtful=False)
    if not isinstance(cause, subprocess.CalledProcessError):
        return SbatchError(f"`sbatch` failed: {one_line(str(error))}", is_doubtful=True)
    if cause.returncode in _TIMED_OUT:
        return SbatchError(f"`sbatch` gave no answer within {timeout_s:g} s", is_doubtful=True)
    words = _first_words(str(cause.stderr or ""))
    if cause.returncode == 127 and "timeout:" in words:
        return SbatchError("`sbatch` is not on the PATH", is_doubtful=False)
    words = words or f"`sbatch` exited {cause.returncode} and said nothing"
    return SbatchError(words, is_doubtful=_DOUBTFUL.search(words) is not None)


def _first_words(complaint: str) -> str:
    lines = [one_line(line).removeprefix("sbatch: ") for line in complaint.splitlines()]
    lines = [line.removeprefix("error: ") for line in lines if line]
    return "; ".join(dict.fromkeys(lines))[:_MAX_WORDS]


@contextlib.contextmanager
def _environment(env: dict[str, str]) -> Iterator[None]:
    """Let this process have exactly `env` for the body: submitit's children inherit it."""
    before = dict(os.environ)
    _become(env)
    try:
        yield
    finally:
        _become(before)


def _become(env: dict[str, str]) -> None:
    for name in os.environ.keys() - env.keys():
        del os.environ[name]
    os.environ.update(env)
