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
from harness.runner.signals import STOPS, WARNINGS, Signals
from harness.trainers.interface import Command

CANCELLED, SUPERSEDED = "cancelled", "superseded"


@dataclass(frozen=True)
class Ending:
    """How a trainer ended.

    Attributes:
        code, signal: exactly one is not None; neither where the trainer could not be run.
        stop_reason: why it was asked to stop: what `beat` said, or CANCELLED after a signal; None
            where it ended by itself.
        survivors: pids that SIGKILL did not end in time.
        asked: the stop signals and warnings that came, in order.
    """

    code: int | None
    signal: int | None
    stop_reason: str | None
    survivors: tuple[int, ...]
    asked: tuple[int, ...] = ()


def start_trainer(
    command: Command, env: Mapping[str, str], log: Path, signals: Signals
) -> subprocess.Popen[bytes]:
    """Start `command` in a session of its own, its output appended to `log`.

    The kernel kills it when this process dies. Warnings that this process watches for don't end
    it. Raises OSError where it can't be started.
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
            preexec_fn=trainer_setup(signals.others, signals.watched & WARNINGS),
        )


def supervise(
    trainer: subprocess.Popen[bytes],
    *,
    signals: Signals,
    grace_s: Callable[[int | None], float],
    every_s: float,
    beat: Callable[[], str | None],
    gap_limit_s: float = float("inf"),
    is_superseded: Callable[[], bool] = lambda: False,
    settle_s: float = 0.0,
) -> Ending:
    """Wait until the trainer has ended; then end whatever it left behind.

    A stop signal or a warning to this process, or a reason returned by `beat`, stops the trainer:
    SIGTERM to its process group, later SIGKILL; at once SIGKILL where it is superseded. A second
    signal ends the grace if one of them is a SIGINT (schedulers repeat SIGTERM, and two pending
    signals arrive in any order).

    Args:
        grace_s: called after the SIGTERM, and with each further signal, for the seconds until the
            SIGKILL; gets the signal's number, None after a reason of `beat`. The grace never
            grows again.
        beat: called every `every_s` seconds, also while the trainer is stopping. The first reason
            counts; SUPERSEDED always does.
        gap_limit_s: this process was frozen if it finds itself that late. The trainer, frozen
            with it as a rule, is then held until `is_superseded` says whether it may go on.
        settle_s: how long to wait for a signal to this process after a trainer failed: a
            scheduler signals both, and the trainer may be first to act on it.
    """
    stop_reason: str | None = None
    kill_at = float("inf")
    killed_at = float("-inf")
    beat_at = seen_at = time.monotonic()
    status: int | None = None
    asked: list[int] = []
    while status is None:
        now = time.monotonic()
        if now - seen_at > gap_limit_s and _hold(trainer.pid, is_superseded):
            stop_reason, kill_at = SUPERSEDED, now
        seen_at = now
        if now >= beat_at:
            beat_at = now + every_s
            reason = beat()
            if reason == SUPERSEDED:
                stop_reason, kill_at = SUPERSEDED, now  # what it writes now, another writes, too
            elif reason is not None and stop_reason is None:
                stop_reason = reason
                kill_at = min(kill_at, _terminate(trainer.pid, None, grace_s))
        if now >= kill_at and now >= killed_at + every_s:
            killed_at = now  # again and again: members may have been forking
            send_group_signal(trainer.pid, signal.SIGKILL)
        number = signals.take(min(beat_at, max(kill_at, killed_at + every_s)) - time.monotonic())
        if number in STOPS | WARNINGS:
            asked.append(number)
            stop_reason = stop_reason or CANCELLED
            kill_at = min(kill_at, _terminate(trainer.pid, number, grace_s))
            if len(asked) > 1 and signal.SIGINT in asked:
                kill_at = time.monotonic()
        status = reap().get(trainer.pid)
    code = os.waitstatus_to_exitcode(status)
    trainer.returncode = code
    survivors = tuple(kill_descendants())
    if code != 0 and stop_reason is None and settle_s:
        asked += _late_signals(signals, settle_s)
        stop_reason = CANCELLED if asked else None
    return Ending(
        code=code if code >= 0 else None,
        signal=-code if code < 0 else None,
        stop_reason=stop_reason,
        survivors=survivors,
        asked=tuple(asked),
    )


def _terminate(group: int, number: int | None, grace_s: Callable[[int | None], float]) -> float:
    began = time.monotonic()
    send_group_signal(group, signal.SIGTERM)
    # A stopped process acts on SIGTERM only once it continues.
    send_group_signal(group, signal.SIGCONT)
    return began + grace_s(number)


def _hold(group: int, is_superseded: Callable[[], bool]) -> bool:
    """Stop the trainer while `is_superseded` is asked; let it go on unless that says yes."""
    send_group_signal(group, signal.SIGSTOP)
    if is_superseded():
        return True
    send_group_signal(group, signal.SIGCONT)
    return False


def _late_signals(signals: Signals, settle_s: float) -> list[int]:
    deadline = time.monotonic() + settle_s
    while (left_s := deadline - time.monotonic()) > 0:
        number = signals.take(left_s)
        if number in STOPS | WARNINGS:
            return [number]
    return []
