"""What a fork's parent logged up to the fork: the past that a fork shares with others.

Needs numpy alone, so that a running job can use it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from analysis.curve import Curve
from analysis.live import read_curves
from harness.errors import HarnessError
from harness.records.layout import RunPaths
from harness.records.model import RunRecord, StartRecord, read_record


@dataclass(frozen=True)
class Parent:
    """The run that a fork starts from.

    Attributes:
        name: `sweep/arm/seed_n`; the checkpoint where no run of this project made it.
        step: that the fork starts after.
        place: its folder, or the checkpoint, as run.json of the fork names it.
        curves: its live values up to `step` by canonical metric, with those of its own parents.
        problem: why `curves` are not there; empty where they are.
    """

    name: str
    step: int
    place: str
    curves: Mapping[str, Curve] = field(default_factory=dict)
    problem: str = ""


def read_parent(sweep_dir: Path, start: StartRecord) -> Parent:
    """Return what a run of the sweep in `sweep_dir` starts from. Never raises for what is gone."""
    return _read(sweep_dir, start, frozenset())


def parent_of(run_dir: Path) -> Parent | None:
    """Return what the run in the folder `run_dir` starts from; None where it is no fork."""
    run = RunPaths(run_dir)
    if not run.record.is_file():
        return None
    try:
        start = read_record(RunRecord, run.record).start_from
    except HarnessError:
        return None
    return None if start is None else read_parent(RunPaths(run_dir.absolute()).sweep.root, start)


def join(past: Mapping[str, Curve], own: Mapping[str, Curve]) -> dict[str, Curve]:
    """Return the curves of `own` with their past in front of them."""
    return {name: _join(past.get(name), curve) for name, curve in own.items()}


def _join(past: Curve | None, own: Curve) -> Curve:
    if past is None or not len(own):
        return own
    before = past.up_to(int(own.steps[0]) - 1)
    return Curve(
        np.concatenate([before.steps, own.steps]), np.concatenate([before.values, own.values])
    )


def _read(sweep_dir: Path, start: StartRecord, seen: frozenset[str]) -> Parent:
    parent = Parent(
        start.parent or start.checkpoint, start.step, start.parent_dir or start.checkpoint
    )
    if start.parent_dir is None:
        return _without(parent, "no run of this project made the checkpoint")
    run = RunPaths(Path(os.path.normpath(sweep_dir.absolute() / start.parent_dir)))
    if not run.record.is_file():
        return _without(parent, "its records are gone")
    try:
        record = read_record(RunRecord, run.record)
    except HarnessError:
        return _without(parent, "its records can't be read")
    if record.identity != start.parent_identity:
        return _without(parent, "its folder holds another run now")
    curves = read_curves(run.root, record)
    if not curves:
        return _without(parent, "its metrics are gone")
    grandparent = record.start_from
    if grandparent is not None and str(run.root) not in seen:
        before = _read(run.sweep.root, grandparent, seen | {str(run.root)}).curves
        curves = {**{n: c for n, c in before.items() if n not in curves}, **join(before, curves)}
    cut = {name: curve.up_to(start.step) for name, curve in curves.items()}
    return Parent(parent.name, parent.step, parent.place, {n: c for n, c in cut.items() if len(c)})


def _without(parent: Parent, problem: str) -> Parent:
    return Parent(parent.name, parent.step, parent.place, problem=problem)
