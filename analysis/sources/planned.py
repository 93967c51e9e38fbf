"""The metrics of a run that this project started, by the format that its run.json names.

Most formats are one file. Others are what a framework leaves in a folder (prime-rl's run folder in
every layout): those are read by the same reader that foreign runs are read by.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from analysis.sources.interface import MetricsFile, Wanted, empty_file
from harness.errors import UsageError

RUN_FORMATS: Mapping[str, str] = {"prime_rl_run": "prime_rl"}
"""Format in run.json -> kind of run in `analysis.sources.kinds`."""


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
    from analysis.sources.kinds import KINDS  # noqa: PLC0415 (kinds read runs of this project, too)

    if not path.exists():
        return PlannedFiles((empty_file(path, kind, "missing"),), (1,), RUN_FORMATS[kind])
    columns = {} if step_key == "step" else {"step": step_key}
    try:
        run = KINDS[RUN_FORMATS[kind]].read(path, wanted=wanted, columns=columns)
    except UsageError as error:
        return PlannedFiles((empty_file(path, kind, error.message),), (1,), RUN_FORMATS[kind])
    if not run.files:
        reason = run.problems[0] if run.problems else "no metrics in it yet"
        return PlannedFiles((empty_file(path, kind, reason),), (1,), run.framework, run.problems)
    return PlannedFiles(run.files, run.attempt_groups, run.framework, run.problems)
