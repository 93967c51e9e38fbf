"""What was found of a sweep on disk: its runs, how far each came, and what is odd about them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import pandas as pd

from analysis.curve import EMPTY_CURVE, Curve
from analysis.metrics import KeyResolution
from analysis.parents import Parent, join
from analysis.sources import FileProvenance
from harness.records.layout import SweepPaths
from harness.records.model import Claim, Exit, Heartbeat, PlannedRun, PlanRecord, RunRecord


class RunState(StrEnum):
    """How far a run came. Only `DONE` runs enter means, shares and verdicts."""

    DONE = "done"
    FAILED = "failed"
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out_of_memory"
    PREEMPTED = "preempted"
    CANCELLED = "cancelled"
    STOPPED = "stopped"
    SHORT = "short"
    """Its trainer ended well, but its metrics end before the planned last step."""
    UNFINISHED = "unfinished"
    """Its newest attempt has left no exit: it is running or was cut off."""
    PLANNED = "planned"
    FOREIGN = "foreign"
    """Its folder holds another run than the plan's; nothing in it is read."""


@dataclass(frozen=True)
class Attempt:
    """The records of one attempt; `exit` is None where it left none."""

    number: int
    claim: Claim
    heartbeat: Heartbeat | None
    exit: Exit | None


@dataclass(frozen=True)
class RunTime:
    """When a run worked. Times are unix s; None where no record says.

    Attributes:
        wall_s: sum over attempts from claim to exit (to the last heartbeat where there is none).
        steps_per_s: steps that stand in the metrics / `wall_s`.
        gpu_hours: that its attempts held, see `harness.records.usage`.
        lost_gpu_hours: the part of them whose steps a later attempt made again.
    """

    start: float | None
    end: float | None
    wall_s: float | None
    steps_per_s: float | None
    gpu_hours: float = 0.0
    lost_gpu_hours: float = 0.0


@dataclass(frozen=True)
class Run:
    """One planned run with everything that it left.

    Attributes:
        record, config: None where run.json or config.json is missing or unreadable.
        files: provenance of its metrics files.
        keys: which trainer key means which metric.
        curves: live values by canonical metric.
        clock: seconds of work behind each step, by the times of its rows; empty without.
        source: what the user named it by, where it is no run of this project.
        framework: whose keys it logs, where the source tells.
        versions: name -> version or commit of what ran, where the source tells.
        problems: what is odd about the source, one sentence each.
        num_superseded: steps whose earlier values a resume has superseded.
        foreign: what its run.json says instead, where its folder holds another run.
        parent: what it starts from, where it is a fork; its curves are not among `curves`.
    """

    planned: PlannedRun
    state: RunState
    record: RunRecord | None = None
    config: dict[str, Any] | None = None
    attempts: tuple[Attempt, ...] = ()
    files: tuple[FileProvenance, ...] = ()
    keys: KeyResolution = field(default_factory=KeyResolution)
    available_keys: frozenset[str] = frozenset()
    curves: dict[str, Curve] = field(default_factory=dict)
    clock: Curve = EMPTY_CURVE
    num_superseded: int = 0
    time: RunTime = field(default_factory=lambda: RunTime(None, None, None, None))
    foreign: str = ""
    source: str = ""
    framework: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    parent: Parent | None = None

    @property
    def arm(self) -> str:
        return self.planned.arm

    @property
    def seed(self) -> int:
        return self.planned.seed

    @property
    def run_id(self) -> str:
        return self.planned.run_id

    @property
    def is_done(self) -> bool:
        return self.state is RunState.DONE

    @property
    def stop(self) -> Exit | None:
        """How a rule ended it; None where none did."""
        if self.state is not RunState.STOPPED or not self.attempts:
            return None
        return self.attempts[-1].exit

    @property
    def last_step(self) -> int | None:
        """The newest step in any live metric."""
        ends = [int(curve.steps[-1]) for curve in self.curves.values() if len(curve)]
        return max(ends, default=None)

    @property
    def first_step(self) -> int | None:
        """The oldest step in any live metric."""
        starts = [int(curve.steps[0]) for curve in self.curves.values() if len(curve)]
        return min(starts, default=None)

    def curve(self, metric: str) -> Curve | None:
        """The live values of `metric`; None where it isn't logged."""
        curve = self.curves.get(metric)
        return curve if curve is not None and len(curve) else None

    @property
    def history(self) -> dict[str, Curve]:
        """Its curves with its parent's in front of them, from the first step of all on."""
        return self.curves if self.parent is None else join(self.parent.curves, self.curves)

    @property
    def fork_step(self) -> int | None:
        """The last step that is its parent's; None for a run that started from scratch."""
        return None if self.parent is None else self.parent.step


@dataclass(frozen=True)
class Notice:
    """Something that a reader of the report must know; `kind` is a fixed word for programs.

    Attributes:
        severity: `warning`, or `error` for what makes a number of the report wrong to rely on.
    """

    kind: str
    message: str
    severity: str = "warning"


@dataclass(frozen=True)
class Sweep:
    """A sweep as it stands on disk.

    Attributes:
        runs: every planned run, in the order of the plan's arms, then by seed.
        table: all logged values, see `analysis.table`.
        notices: what went wrong or looked odd while reading.
    """

    paths: SweepPaths
    plan: PlanRecord
    runs: tuple[Run, ...]
    table: pd.DataFrame
    notices: tuple[Notice, ...]

    def of_arm(self, arm: str) -> list[Run]:
        return [run for run in self.runs if run.arm == arm]
