"""SLURM's words for the state of a job (22.05 to 24.11), and what each means for a run."""

from __future__ import annotations

from enum import StrEnum


class Phase(StrEnum):
    """What a word says of a job.

    `ENDING` says that SLURM is clearing the job away: it may end, or be started again.
    `UNKNOWN` says nothing, above all not that the job has ended.
    """

    WAITING = "waiting"
    RUNNING = "running"
    ENDING = "ending"
    ENDED = "ended"
    UNKNOWN = "unknown"


SUSPENDED = "SUSPENDED"

_WORDS = {
    Phase.WAITING: (
        "CONFIGURING",  # it has nodes, and they are still starting up
        "LAUNCH_FAILED",
        "PENDING",
        "POWER_UP_NODE",
        "RECONFIG_FAIL",
        "REQUEUED",
        "REQUEUE_FED",
        "REQUEUE_HOLD",
        "RESV_DEL_HOLD",
        "SPECIAL_EXIT",
    ),
    Phase.RUNNING: ("RESIZING", "RUNNING", "SIGNALING", "STOPPED", SUSPENDED),
    Phase.ENDING: ("COMPLETING", "STAGE_OUT"),
    Phase.ENDED: (
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "DEADLINE",
        "FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PREEMPTED",
        "REVOKED",
        "TIMEOUT",
    ),
}
_PHASES = {word: phase for phase, words in _WORDS.items() for word in words}

KNOWN_WORDS = frozenset(_PHASES)


def phase_of(word: str) -> Phase:
    """Return what `word`, in upper case, says of a job."""
    return _PHASES.get(word, Phase.UNKNOWN)


def is_held_after_failure(reason: str) -> bool:
    """Whether SLURM keeps a waiting job back since it could not start it, until it is released.

    Args:
        reason: SLURM's, such as `launch failed requeued held`; newer versions also say
            `launch failed limit exceeded requeued held`.
    """
    words = reason.lower().replace("_", " ")
    return words.startswith("launch failed") and words.endswith("held")
