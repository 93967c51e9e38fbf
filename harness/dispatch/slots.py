"""How many runs a machine takes at once, and which GPUs each may use."""

from __future__ import annotations

from dataclasses import dataclass

from harness.errors import UsageError
from harness.profile import AUTO, LocalProfile
from harness.runner.machine import usable_cores, visible_gpu_ids


@dataclass(frozen=True)
class Slots:
    """What the queue hands out.

    Attributes:
        num_slots: runs at once.
        gpus: ids to lease.
        gpus_per_run: ids that each run holds; None where there are no GPUs and the runs' view of
            them is left alone.
    """

    num_slots: int
    gpus: tuple[str, ...]
    gpus_per_run: int | None


def plan_slots(profile: LocalProfile, profile_name: str) -> Slots:
    """Return what `profile` comes to on this machine.

    Raises:
        UsageError: a run needs more GPUs than there are.
    """
    if profile.gpus == AUTO:
        gpus = visible_gpu_ids()
    else:
        gpus = tuple(str(gpu).strip() for gpu in profile.gpus)
    num_slots = profile.slots or max(1, usable_cores() // profile.threads)
    gpus_per_run = profile.gpus_per_run
    if gpus_per_run is None:
        gpus_per_run = 1 if gpus else None
    if not gpus_per_run:
        return Slots(num_slots, gpus, gpus_per_run)
    if gpus_per_run > len(gpus):
        raise UsageError(
            f"profile `{profile_name}`: `gpus_per_run` is {gpus_per_run}, and there are "
            f"{len(gpus)} GPUs",
            "lower `gpus_per_run`, or name the GPUs in `gpus`",
        )
    return Slots(min(num_slots, len(gpus) // gpus_per_run), gpus, gpus_per_run)
