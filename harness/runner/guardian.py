"""A process that outlives a killed runner just long enough to end what the runner started.

When a runner dies by SIGKILL, the kernel kills its trainer, but not what the trainer started: a
server in a session of its own would keep its GPU, and no scheduler that follows parents finds it
any more. The guardian waits for the runner's end and then kills every process that was started
with the attempt's marks in its environment.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Mapping
from pathlib import Path

from harness.runner.process import kill_marked

NAME = "harness-guard"
"""What `ps` calls it (15 characters at most)."""

_PR_SET_NAME = 15
_KILL_TIMEOUT_S = 30.0


class Guardian:
    """A guardian that watches this process."""

    def __init__(self, alarm: int) -> None:
        self._alarm = alarm

    def dismiss(self) -> None:
        """Let it go: everything has been ended."""
        with contextlib.suppress(BrokenPipeError):  # somebody killed it
            os.write(self._alarm, b".")
        os.close(self._alarm)


def start_guardian(marks: Mapping[str, str]) -> Guardian:
    """Start a guardian for processes with `marks`. Raises OSError where no process can be made.

    It is nobody's child and has a session of its own, so that what ends this process and its
    descendants leaves it alone. Call this before `adopt_orphans`, or it becomes a descendant.
    """
    watch, alarm = os.pipe()  # neither is inherited by programs that are executed
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            if os.fork() == 0:
                _guard(watch, marks)
        finally:
            os._exit(0)
    os.close(watch)
    os.waitpid(child, 0)
    return Guardian(alarm)


def _guard(watch: int, marks: Mapping[str, str]) -> None:
    """Wait until the other end of `watch` is written to (all is well) or closed by death."""
    signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.valid_signals()))
    ctypes.CDLL(None).prctl(_PR_SET_NAME, NAME.encode(), 0, 0, 0)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    for descriptor in [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]:
        if descriptor > 2 and descriptor != watch:
            with contextlib.suppress(OSError):  # the listing's own
                os.close(descriptor)
    os.chdir("/")
    if os.read(watch, 1) == b"":
        kill_marked(marks, _KILL_TIMEOUT_S)
