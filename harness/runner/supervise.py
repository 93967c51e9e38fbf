"""Starts a trainer, watches it, and ends it with everything that it started."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.runner.process import kill_descendants, reap, send_group_signal, trainer_setup
from harness.trainers.interface import Command

CANCELLED = "cancelled"
WATCHED = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGCHLD})
"""Signals that this process keeps blocked and takes one by one: none is lost, none interrupts."""


@dataclass(frozen=True)
class Ending:
    """How a trainer ended.

    Attributes:
        code, signal: exactly one is not None.
        stop_reason: why it was asked to stop; None where it ended by itself.
        survivors: pids that SIGKILL did not end in time.
    """

    code: int | None
    signal: int | None
    stop_reason: str | None
    survivors: tuple[int, ...]


def block_signals() -> set[signal.Signals]:
    """Block the watched signals from here on and return the mask as it was before."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
    return {signal.Signals(number) for number in mask} - WATCHED


def next_signal(timeout_s: float) -> int | None:
    """Wait for one of the watched signals and return its number, or None after `timeout_s`."""
    info = signal.sigtimedwait(WATCHED, max(0.0, timeout_s))
    return None if info is None else info.si_signo


def start_trainer(
    command: Command, env: Mapping[str, str], log: Path, mask: set[signal.Signals]
) -> subprocess.Popen[bytes]:
    """Start `command` in a session of its own, its output appended to `log`.

    The kernel kills it when this process dies. Raises OSError where it can't be started.
    """
    with log.open("ab") as output:
        return subprocess.Popen(
            command.argv,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=dict(env),
            cwd=command.cwd,
            start_new_session=True,
            preexec_fn=trainer_setup(mask),
        )


def supervise(
    trainer: subprocess.Popen[bytes],
    *,
    grace_s: float,
    every_s: float,
    beat: Callable[[], str | None],
) -> Ending:
    """Wait until the trainer has ended; then end whatever it left behind.

    SIGTERM or SIGINT to this process, or a reason returned by `beat`, stops it: SIGTERM to its
    process group, `grace_s` later SIGKILL. A second signal ends the grace if one of them is a
    SIGINT (schedulers repeat SIGTERM, and two pending signals arrive in any order).

    Args:
        beat: called every `every_s` seconds, also while the trainer is stopping.
    """
    stop_reason: str | None = None
    kill_at: float | None = None
    beat_at = time.monotonic()
    status: int | None = None
    asked: list[int] = []
    while status is None:
        now = time.monotonic()
        if now >= beat_at:
            beat_at = now + every_s
            reason = beat()
            if reason is not None and stop_reason is None:
                stop_reason, kill_at = reason, _terminate(trainer.pid, grace_s)
        if kill_at is not None and now >= kill_at:
            send_group_signal(trainer.pid, signal.SIGKILL)
            kill_at = now + every_s  # once more: members may have been forking
        wake_at = beat_at if kill_at is None else min(beat_at, kill_at)
        number = next_signal(wake_at - now)
        if number in (signal.SIGTERM, signal.SIGINT):
            asked.append(number)
            if stop_reason is None:
                stop_reason, kill_at = CANCELLED, _terminate(trainer.pid, grace_s)
            if len(asked) > 1 and signal.SIGINT in asked:
                kill_at = time.monotonic()
        status = reap().get(trainer.pid)
    code = os.waitstatus_to_exitcode(status)
    trainer.returncode = code
    survivors = tuple(kill_descendants())
    return Ending(
        code=code if code >= 0 else None,
        signal=-code if code < 0 else None,
        stop_reason=stop_reason,
        survivors=survivors,
    )


def _terminate(group: int, grace_s: float) -> float:
    send_group_signal(group, signal.SIGTERM)
    # A stopped process acts on SIGTERM only once it continues.
    send_group_signal(group, signal.SIGCONT)
    return time.monotonic() + grace_s
