"""What a plan may take at most: its runs x nodes x GPUs x time limit."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.errors import UsageError
from harness.profile import Profile
from harness.records.model import PlannedRun, PlanRecord
from harness.slurm_profile import SlurmProfile, count_gpus, override_settings
from harness.slurm_time import show_minutes


@dataclass(frozen=True)
class PlannedGpuHours:
    """GPU-hours of one start of each run up to its time limit; None where they can't be told.

    A run that is started again after its limit, a preemption or a failure takes more.

    Attributes:
        total: of all runs.
        arms: of the runs of each arm.
        unknown: why `total` is None, in words; else empty.
        largest: the arm that takes most, as "`ipo`: 12 x 8 GPUs x 24:00:00"; empty without any.
        profile: its name, for messages.
    """

    total: float | None
    arms: dict[str, float | None]
    unknown: str
    largest: str
    profile: str

    def refuse_beyond(self, limit: float) -> None:
        """Raise UsageError where the plan takes more than `limit` GPU-hours, or can't be told."""
        if self.total is None:
            raise UsageError(
                f"--max-gpu-hours {_show(limit)} can't be held against a plan without limits:"
                f" {self.unknown}",
                f"set it in the profile `{self.profile}`, or under `resources` of the sweep",
            )
        if self.total > limit:
            raise UsageError(
                f"the plan takes up to {_show(self.total)} GPU-hours, more than --max-gpu-hours"
                f" {_show(limit)}; most in {self.largest}",
                "lower `time` or `gpus_per_node` of the profile, or plan fewer seeds or arms",
            )


def planned_gpu_hours(
    plan: PlanRecord, profile: Profile, runs: Sequence[PlannedRun] | None = None
) -> PlannedGpuHours | None:
    """Return what `runs` (default: all of the plan) take on `profile`; None on a local queue.

    Raises:
        UsageError: the sweep's `resources` don't fit the profile.
    """
    counts = Counter(run.arm for run in (plan.runs if runs is None else runs))
    return gpu_hours_of(counts, plan.resources, plan.sweep, profile)


def gpu_hours_of(
    counts: Mapping[str, int],
    resources: Mapping[str, Mapping[str, Any]],
    sweep: str,
    profile: Profile,
) -> PlannedGpuHours | None:
    """Return what so many runs of each arm take on `profile`; None on a local queue.

    Args:
        counts: arm -> number of runs.
        resources: arm -> keys of the profile that the sweep overrides.
        sweep: its name, for messages.

    Raises:
        UsageError: the resources don't fit the profile.
    """
    if not isinstance(profile.settings, SlurmProfile):
        return None
    arms: dict[str, float | None] = {}
    shown: dict[str, str] = {}
    missing: dict[str, list[str]] = {}
    for arm, count in counts.items():
        settings = override_settings(
            profile.settings,
            resources.get(arm, {}),
            f"`resources.{arm}` of the sweep `{sweep}`, on the profile `{profile.name}`",
        )
        gpus, minutes = count_gpus(settings), settings.time
        if gpus == 0:
            arms[arm] = 0.0
        elif gpus is None or minutes is None:
            arms[arm] = None
            for key in [
                *(["gpus_per_node"] if gpus is None else []),
                *(["time"] if minutes is None else []),
            ]:
                missing.setdefault(key, []).append(arm)
        else:
            arms[arm] = count * gpus * minutes / 60
            shown[arm] = f"`{arm}`: {count} x {gpus} GPUs x {show_minutes(minutes)}"
    known = {arm: hours for arm, hours in arms.items() if hours}
    largest = max(known, key=lambda arm: known[arm], default="")
    return PlannedGpuHours(
        total=None if missing else math.fsum(known.values()),
        arms=arms,
        unknown=", ".join(_say_missing(key, of, counts) for key, of in missing.items()),
        largest=shown.get(largest, ""),
        profile=profile.name,
    )


def _say_missing(key: str, arms: Sequence[str], all_arms: Collection[str]) -> str:
    if len(arms) == len(all_arms):
        return f"no `{key}` is set"
    more = f" and {len(arms) - 3} more" if len(arms) > 3 else ""
    return f"no `{key}` is set for {', '.join(f'`{arm}`' for arm in arms[:3])}{more}"


def _show(hours: float) -> str:
    return f"{hours:,.2f}".rstrip("0").rstrip(".")
