"""What other sweeps start from, and so must stay."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from harness.errors import HarnessError
from harness.records.layout import SweepPaths
from harness.records.model import PlanRecord, read_record


@dataclass(frozen=True)
class Pin:
    """A checkpoint, or the folder of the run that made it, from which the runs of `sweep` start."""

    path: Path
    sweep: str


def find_pins(root: Path) -> list[Pin]:
    """Return everything that the sweeps in the folder of outputs `root` start from.

    Raises:
        HarnessError: a plan can't be read, so that what its runs start from is unknown.
    """
    pins = []
    for folder in sorted(root.iterdir()) if root.is_dir() else ():
        sweep = SweepPaths(folder)
        if not sweep.plan.is_file():
            continue
        try:
            plan = read_record(PlanRecord, sweep.plan)
        except HarnessError as error:
            raise HarnessError(
                f"what the runs of `{folder}` start from is unknown: {error.message}", error.hint
            ) from error
        for start in plan.start_from:
            places = (start.checkpoint, start.parent_dir)
            pins += [Pin(_resolve(sweep, place), plan.sweep) for place in places if place]
    return pins


def who_needs(path: Path, pins: Iterable[Pin]) -> list[str]:
    """Return the sweeps that start from `path` or from something in it."""
    real = path.resolve()
    return sorted({pin.sweep for pin in pins if pin.path.is_relative_to(real)})


def _resolve(sweep: SweepPaths, place: str) -> Path:
    return Path(os.path.normpath(sweep.root.absolute() / place)).resolve()
