"""The signals that tell a runner something, taken one by one: none is lost, none interrupts."""

from __future__ import annotations

import signal
from dataclasses import dataclass

STOPS = frozenset({signal.SIGTERM, signal.SIGINT})
WARNINGS = frozenset({signal.SIGUSR1, signal.SIGUSR2})
"""What SLURM sends ahead of an end (`--signal`): to every process of a step, trainers included."""


@dataclass(frozen=True)
class Signals:
    """Signals that this process keeps blocked.

    Attributes:
        watched: the ones that `take` returns.
        others: those that were blocked before and that a child keeps blocked.
    """

    watched: frozenset[signal.Signals]
    others: frozenset[signal.Signals]

    def take(self, timeout_s: float) -> int | None:
        """Wait for a watched signal and return its number, or None after `timeout_s`."""
        info = signal.sigtimedwait(self.watched, max(0.0, timeout_s))
        return None if info is None else info.si_signo


def block_signals(*, with_warnings: bool = False) -> Signals:
    """Block the stop signals and SIGCHLD from here on, and the warnings where asked for."""
    watched = STOPS | {signal.SIGCHLD} | (WARNINGS if with_warnings else frozenset())
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    return Signals(watched, frozenset(signal.Signals(number) for number in before) - watched)
