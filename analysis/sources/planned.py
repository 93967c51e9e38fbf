"""The metrics of a run that this project started, by the format that its run.json names.

Most formats are one file. Others are what a framework leaves in a folder (prime-rl's run folder in
every layout, TRL's checkpoints): those are read by the same reader that foreign runs are read by.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from analysis.sources.interface import MetricsFile, Wanted, empty_file
from harness.errors import UsageError
from harness.records.attempt_folders import attempt_folders

RUN_FORMATS: Mapping[str, str] = {
    "prime_rl_run": "prime_rl",
    "verl": "verl",
    "trainer_state": "trl",
    "tensorboard": "tb",
}
"""Format in run.json -> kind of run in `analysis.sources.kinds`."""

_BY_ATTEMPT = ("verl", "tensorboard")
"""Formats that may lie in a folder `attempt_<k>` per attempt, and below a folder of their own."""


@dataclass(frozen=True)
class PlannedFiles:
    """What a run logged.

    Attributes:
        attempt_groups: attempt of the rows of each file that name none themselves.
        framework: whose keys the files hold; empty where the keys themselves tell.
        problems: sentences about what could not be read.
    """

    files: tuple[MetricsFile, ...]
    attempt_groups: tuple[int, ...]
    framework: str = ""
    problems: tuple[str, ...] = ()


def read_planned(path: Path, kind: str, *, wanted: Wanted, step_key: str = "step") -> PlannedFiles:
    """Return the files at `path`, of format `kind`.

    Never raises for what a run left behind: what is missing, unreadable or foreign comes back as an
    empty file with the reason in its provenance.
    """
    from analysis import sources  # noqa: PLC0415 (its registry holds the readers of files)

    if kind not in RUN_FORMATS:
        return PlannedFiles(
            (sources.read_metrics(path, kind, wanted=wanted, step_key=step_key),), (1,)
        )
    if not path.exists():
        return _nothing(path, kind, "missing")
    folders = attempt_folders(path) if kind in _BY_ATTEMPT else {}
    if not folders:
        return _read_run(path, kind, wanted=wanted, step_key=step_key)
    parts = {
        number: _read_run(folder, kind, wanted=wanted, step_key=step_key)
        for number, folder in folders.items()
    }
    # That the later attempts of verl begin late is why each has a folder.
    told = [part for number, part in parts.items() if number == min(parts) or kind != "verl"]
    return PlannedFiles(
        files=tuple(file for part in parts.values() for file in part.files),
        attempt_groups=tuple(number for number, part in parts.items() for _ in part.files),
        framework=next((part.framework for part in parts.values() if part.framework), ""),
        problems=tuple(problem for part in told for problem in part.problems),
    )


def _read_run(path: Path, kind: str, *, wanted: Wanted, step_key: str) -> PlannedFiles:
    from analysis.sources.kinds import (  # noqa: PLC0415 (kinds read runs of this project, too)
        KINDS,
        find_run,
    )

    name = RUN_FORMATS[kind]
    columns = {} if step_key == "step" else {"step": step_key}
    try:
        if kind in _BY_ATTEMPT:
            name, path = find_run(path, name)
        run = KINDS[name].read(path, wanted=wanted, columns=columns)
    except UsageError as error:
        return _nothing(path, kind, error.message)
    except OSError as error:
        return _nothing(path, kind, f"can't be read: {error.strerror or error}")
    if not run.files:
        reason = run.problems[0] if run.problems else "no metrics in it yet"
        return PlannedFiles((empty_file(path, kind, reason),), (1,), run.framework, run.problems)
    return PlannedFiles(run.files, run.attempt_groups, run.framework, run.problems)


def _nothing(path: Path, kind: str, reason: str) -> PlannedFiles:
    framework = "" if kind == "tensorboard" else RUN_FORMATS[kind]
    return PlannedFiles((empty_file(path, kind, reason),), (1,), framework)
