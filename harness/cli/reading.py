"""The states of a sweep's runs at one moment, and what goes with them."""

from __future__ import annotations

import time
from dataclasses import dataclass

from harness.errors import HarnessError
from harness.profile import Profile
from harness.records.layout import SweepPaths
from harness.records.model import Intent, PlanRecord, from_record, read_record
from harness.slurm_profile import SlurmProfile
from harness.state.jobs import JobTable
from harness.state.model import SLURM, RunStatus
from harness.state.status import read_states
from harness.sweep.gpu_hours import planned_gpu_hours

LOCAL_POLL_S = 1.0


@dataclass(frozen=True)
class Reading:
    """All runs of a sweep.

    Attributes:
        time: when it was taken, seconds since the epoch.
        stale: why SLURM couldn't be asked; then states rest on the runs' own records alone. Empty
            where it answered, or wasn't needed.
    """

    states: list[RunStatus]
    time: float
    stale: str = ""


class Reader:
    """Reads the states again and again; SLURM is asked only for what isn't known yet."""

    def __init__(self, paths: SweepPaths) -> None:
        self._paths = paths
        self._jobs = JobTable()

    def read(self) -> Reading:
        """Read all states anew. Raises HarnessError where the sweep has no readable plan."""
        states = read_states(self._paths, jobs=self._jobs)
        return Reading(states, time.time(), self._jobs.error)


@dataclass(frozen=True)
class Placement:
    """Where the newest submission of a sweep runs.

    Attributes:
        profile: with the settings that the submission recorded; None for a local queue, and where
            nothing was submitted yet.
        poll_s: seconds between two looks.
        planned_gpu_hours: of one start of each run of the plan; None where that can't be told.
    """

    profile: Profile | None = None
    poll_s: float = LOCAL_POLL_S
    planned_gpu_hours: float | None = None


def read_placement(paths: SweepPaths) -> Placement:
    """Return where the newest submission runs. A damaged record means that nothing is known."""
    try:
        for submission in reversed(paths.submissions()):
            intent = read_record(Intent, submission.intent)
            if intent.settings.get("type") != SLURM:
                return Placement()
            settings = recorded_settings(intent)
            profile = Profile(intent.profile, settings)
            planned = planned_gpu_hours(read_record(PlanRecord, paths.plan), profile)
            total = None if planned is None else planned.total
            return Placement(profile, settings.poll_s, total)
    except HarnessError:
        pass
    return Placement()


def recorded_settings(intent: Intent) -> SlurmProfile:
    """Return the settings of a submission to SLURM. Raises HarnessError where they don't hold."""
    return from_record(SlurmProfile, intent.settings, where=f"submission {intent.id}")
