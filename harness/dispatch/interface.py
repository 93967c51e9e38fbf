"""What every dispatcher does: hand over runs durably, follow them, cancel them."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from harness.dispatch.lock import Lock
from harness.errors import UsageError
from harness.near import did_you_mean
from harness.profile import Profile
from harness.records.layout import SubmissionPaths, SweepPaths
from harness.records.model import AnalysisSpec, ArrayPlan, PlannedRun, StopRule
from harness.state.status import LIVE_STATES, RunState


@dataclass(frozen=True)
class Order:
    """What to start.

    Attributes:
        runs: in the order in which they begin; each stands once.
        code_dir: folder that the runners import `harness` from; None for the live code.
        resources: arm -> keys of the profile that are other values for its runs (SLURM only).
        stop_when: any of these rules stops a run; events are judged by `analysis`.
    """

    sweep: SweepPaths
    runs: tuple[PlannedRun, ...]
    profile: Profile
    code_hash: str
    code_dir: Path | None = None
    resources: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    stop_when: tuple[StopRule, ...] = ()
    analysis: AnalysisSpec | None = None


@dataclass(frozen=True)
class Script:
    """A batch script as it would be handed to SLURM.

    Attributes:
        name: number of the array as text, or FINISH_JOB.
        job_name: with `NONCE` where a submission has its own six digits.
    """

    name: str
    job_name: str
    text: str


@dataclass(frozen=True)
class IgnoredVariable:
    """A variable of the shell that `sbatch` would have obeyed, had it not been taken away.

    Attributes:
        key: what says the same in a profile, for a message; empty where the harness decides it.
    """

    name: str
    key: str


@dataclass(frozen=True)
class Preview:
    """What `submit` would hand over. Empty for a local queue.

    Attributes:
        arrays: with their runs, settings and throttle.
        scripts: one for each array, then the finishing job's.
        max_array_size: of the cluster; None where SLURM can't be asked, and then the arrays are
            split as under SLURM's default.
    """

    arrays: tuple[ArrayPlan, ...] = ()
    scripts: tuple[Script, ...] = ()
    ignored_variables: tuple[IgnoredVariable, ...] = ()
    max_array_size: int | None = None


@dataclass(frozen=True)
class RunProgress:
    """One run of a submission at one moment.

    Attributes:
        elapsed_s: since its runner was started; None while it waits.
        eta_s: expected seconds until `max_steps`; None where nothing can be said.
        error: of a failed run, one line.
        is_open: whether something may be at work on it, although its state is `unknown`.
    """

    run: PlannedRun
    state: RunState
    step: int | None = None
    steps_per_s: float | None = None
    mismatch_kl: float | None = None
    solve_rate: float | None = None
    elapsed_s: float | None = None
    error: str = ""
    is_open: bool = False

    @property
    def has_ended(self) -> bool:
        return not self.is_open and self.state not in LIVE_STATES

    @property
    def eta_s(self) -> float | None:
        if not self.steps_per_s or self.step is None:
            return None
        return max(0, self.run.max_steps - self.step) / self.steps_per_s


@dataclass(frozen=True)
class Snapshot:
    """All runs of a submission at one moment, in the order they were given.

    Attributes:
        slots: how many may run at once.
        is_stopping: whether the user has asked for an end.
    """

    sweep: str
    runs: tuple[RunProgress, ...]
    slots: int
    elapsed_s: float
    is_stopping: bool = False

    @property
    def eta_s(self) -> float | None:
        """Expected seconds until all runs are through: steps left / steps per second now."""
        speed = sum(r.steps_per_s or 0.0 for r in self.runs if r.state is RunState.RUNNING)
        if speed <= 0:
            return None
        left = sum(
            max(0, r.run.max_steps - (r.step or 0))
            for r in self.runs
            if r.state in (RunState.RUNNING, RunState.QUEUED)
        )
        return left / speed


Show = Callable[[Snapshot], None]


@dataclass(frozen=True)
class RunOutcome:
    """How one run of a submission ended.

    Attributes:
        state: final, such as done, failed, cancelled, lost.
        error: one line where it failed or was lost.
        notes: what its runner printed (warnings, why it did nothing).
    """

    run: PlannedRun
    state: RunState
    error: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Result:
    """What became of a submission.

    Attributes:
        outcomes: one for each run, in the given order.
        interrupted_by: the signal that ended it, or the following of it; else None.
        is_detached: whether only the following has ended: nothing was cancelled, and `outcomes`
            holds the states at that moment.
    """

    submission: str
    outcomes: tuple[RunOutcome, ...]
    interrupted_by: int | None = None
    is_detached: bool = False

    @property
    def is_all_done(self) -> bool:
        return all(outcome.state is RunState.DONE for outcome in self.outcomes)


class Handle(Protocol):
    """A submission that was handed over."""

    @property
    def submission(self) -> SubmissionPaths: ...

    def follow(self, show: Show) -> Result:
        """Call `show` with a fresh snapshot now and then, until all runs have ended."""
        ...


class Dispatcher(Protocol):
    """A place where runs execute."""

    def submit(self, order: Order, lock: Lock | None = None) -> Handle:
        """Record the intent durably, then hand the runs over.

        Args:
            lock: the sweep's, where the caller holds it already. It passes to the dispatcher,
                which releases it, also where this raises. None: the dispatcher takes it.

        Raises:
            UsageError: another submission of the sweep is under way, the profile doesn't fit, or
                nothing could be handed over.
            HarnessError: a part was handed over and the rest was not; says how many runs of each.
        """
        ...

    def preview(self, order: Order) -> Preview:
        """Return what `submit` would hand over. Writes and starts nothing.

        Raises:
            UsageError: `submit` would refuse the order, too.
        """
        ...

    def cancel(self, submission: SubmissionPaths, run_ids: Collection[str] | None) -> None:
        """Ask for the end of some runs of a live submission, or of all (None)."""
        ...


DISPATCHERS: Mapping[str, str] = {
    "local": "harness.dispatch.local",
    "slurm": "harness.dispatch.cluster",
}
"""`type` of a profile -> module that holds its dispatcher as `DISPATCHER`."""


def load_dispatcher(profile_type: str) -> Dispatcher:
    """Return the dispatcher for profiles of that type. Raises UsageError."""
    if profile_type not in DISPATCHERS:
        raise UsageError(
            f"there is no dispatcher `{profile_type}`",
            did_you_mean(profile_type, DISPATCHERS, what="dispatchers"),
        )
    dispatcher: Dispatcher = importlib.import_module(DISPATCHERS[profile_type]).DISPATCHER
    return dispatcher
