"""What a run's state can be, and what a caller is told of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

LOCAL, SLURM = "local", "slurm"
"""Types of profiles."""


class RunState(StrEnum):
    """Every state that a run can be in. `unknown` is neither running nor ended."""

    PLANNED = "planned"
    SUBMITTING = "submitting"
    QUEUED = "queued"
    RUNNING = "running"
    REQUEUED = "requeued"
    STALLED = "stalled"
    DONE = "done"
    STOPPED = "stopped"
    FAILED = "failed"
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out_of_memory"
    PREEMPTED = "preempted"
    CANCELLED = "cancelled"
    LOST = "lost"
    UNKNOWN = "unknown"


FINISHED_STATES = frozenset({RunState.DONE, RunState.STOPPED})
"""Nothing is missing from such a run."""
LIVE_STATES = frozenset(
    {
        RunState.SUBMITTING,
        RunState.QUEUED,
        RunState.RUNNING,
        RunState.REQUEUED,
        RunState.STALLED,
    }
)
"""Something is, or may be, still at work on such a run."""


@dataclass(frozen=True)
class RunStatus:
    """One run at one moment.

    Attributes:
        reason: one line where the state alone doesn't say enough; else empty.
        is_damaged: whether it is unknown because a record, named in `reason`, can't be read.
        hint: what to do about it where it is unknown or SLURM holds it; else empty.
        since: when it came into this state, seconds since the epoch; None where never started. Of
            an unknown run: its newest sign of life.
        is_planned: False for a run that has left the plan.
        attempt, submission, host: of the newest attempt (queued: the submission it waits in).
        job_id: as SLURM's commands take it; None on a local queue.
        node: as SLURM names it; of several the list `gpu[01-02]`.
        step, tokens, mismatch_kl, solve_rate, steps_per_s: the newest that were logged.
        max_steps: what the plan wants (of a run that left it: what its last attempt wanted).
        elapsed_s: of the newest attempt; limit_s: SLURM's time limit for it.
        gpu_hours: held by all attempts together; lost_gpu_hours: what of it no checkpoint kept.
            None where no attempt tells.
        profile_type: of the submission that the state is about; None where there was none.
    """

    arm: str
    seed: int
    state: RunState
    reason: str = ""
    is_damaged: bool = False
    hint: str = ""
    since: float | None = None
    is_planned: bool = True
    attempt: int | None = None
    submission: str | None = None
    host: str | None = None
    job_id: str | None = None
    node: str | None = None
    step: int | None = None
    max_steps: int | None = None
    tokens: int | None = None
    mismatch_kl: float | None = None
    solve_rate: float | None = None
    steps_per_s: float | None = None
    elapsed_s: float | None = None
    limit_s: float | None = None
    gpus: tuple[str, ...] = ()
    gpu_hours: float | None = None
    lost_gpu_hours: float | None = None
    profile_type: str | None = None

    @property
    def run_id(self) -> str:
        return f"{self.arm}/seed_{self.seed}"

    @property
    def eta_s(self) -> float | None:
        """Expected seconds until `max_steps`; None unless it runs and moves."""
        if self.state is not RunState.RUNNING or not self.steps_per_s or self.max_steps is None:
            return None
        return max(0, self.max_steps - (self.step or 0)) / self.steps_per_s


def may_be_at_work(status: RunStatus) -> bool:
    """Whether something is, or may be, at work on a run: it is live, or its job on SLURM may be.

    On a local queue an unknown run is one whose last attempt ended in a way that this version
    doesn't know.
    """
    is_open = status.state is RunState.UNKNOWN and status.profile_type == SLURM
    return status.state in LIVE_STATES or is_open


def may_resubmit(status: RunStatus) -> bool:
    """Whether a run may be handed over again: something is missing, nothing may be at work, and
    its records can be read."""
    is_finished = status.state in FINISHED_STATES
    return not (is_finished or status.is_damaged or may_be_at_work(status))
