"""GPU-hours that runs have used, and what was lost, from their records alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from harness.records.layout import RunPaths
from harness.records.model import Claim, Exit, Heartbeat, read_record, read_record_if_there


@dataclass(frozen=True)
class Usage:
    """GPU-hours, summed over nodes and GPUs.

    Attributes:
        used: from each attempt's claim to its end, or its last sign of life.
        lost: the part of it that was spent on steps that a later attempt made again, since it
            went on from a checkpoint before them.
    """

    used: float = 0.0
    lost: float = 0.0

    def __add__(self, other: Usage) -> Usage:
        return Usage(self.used + other.used, self.lost + other.lost)


@dataclass(frozen=True)
class AttemptRecords:
    """What one attempt has left; None where there is no such record (yet)."""

    claim: Claim
    heartbeat: Heartbeat | None = None
    exit: Exit | None = None

    @property
    def duration_s(self) -> float:
        """From the claim to the end, or to the last sign of life."""
        end = self.claim.time
        if self.exit is not None:
            end = self.exit.end
        elif self.heartbeat is not None:
            end = self.heartbeat.time
        return max(0.0, end - self.claim.time)

    @property
    def num_gpus(self) -> int:
        return len(self.claim.gpus) * self.claim.num_nodes

    @property
    def first_step(self) -> int | None:
        """The first step that it logged; None where it logged none."""
        record = self.exit or self.heartbeat
        return None if record is None else record.first_step

    @property
    def last_step(self) -> int | None:
        """The last step that it logged; None where it logged none."""
        if self.first_step is None:
            return None
        if self.exit is not None:
            return self.exit.last_step
        return None if self.heartbeat is None else self.heartbeat.step


def run_usage(attempts: Sequence[AttemptRecords]) -> Usage:
    """Return what the attempts of one run have used and lost.

    Args:
        attempts: oldest first.
    """
    total = Usage()
    for index, attempt in enumerate(attempts):
        hours = attempt.duration_s * attempt.num_gpus / 3600
        total += Usage(hours, hours * _lost_share(attempt, attempts[index + 1 :]))
    return total


def sum_usage(usages: Iterable[Usage]) -> Usage:
    """Return the sum."""
    return sum(usages, Usage())


def read_attempts(paths: RunPaths) -> list[AttemptRecords]:
    """Return the records of a run's attempts, oldest first.

    Raises:
        HarnessError: a record is damaged.
    """
    return [
        AttemptRecords(
            read_record(Claim, attempt.claim),
            read_record_if_there(Heartbeat, attempt.heartbeat),
            read_record_if_there(Exit, attempt.exit),
        )
        for attempt in paths.attempts()
    ]


def read_usage(paths: RunPaths) -> Usage:
    """Return what a run has used and lost. Raises HarnessError where a record is damaged."""
    return run_usage(read_attempts(paths))


def _lost_share(attempt: AttemptRecords, later: Sequence[AttemptRecords]) -> float:
    """Return the share of an attempt's time that came to nothing.

    The time is spread evenly over the steps that it logged. Nothing is known to be lost before a
    later attempt has logged where it went on; then an attempt without a step has lost all.
    """
    resumed_at = min((a.first_step for a in later if a.first_step is not None), default=None)
    if resumed_at is None:
        return 0.0
    first, last = attempt.first_step, attempt.last_step
    if first is None or last is None:
        return 1.0
    num_steps = last - first + 1
    num_again = last - max(resumed_at, first) + 1
    return min(1.0, max(0.0, num_again / num_steps)) if num_steps > 0 else 0.0
