"""SIGINT, SIGTERM and SIGHUP, collected instead of ending the process."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def received_signals(
    then: Callable[[list[int]], None] = lambda received: None,
) -> Iterator[list[int]]:
    """Collect stop signals instead of being ended by them.

    Signals that the process was started to ignore (nohup, background jobs) stay ignored. Outside
    the main thread nothing is collected.

    Args:
        then: called from the handler with what has come so far; what it raises ends the body.
    """
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received
        return

    def note(number: int, frame: FrameType | None) -> None:
        received.append(number)
        then(received)

    before = {number: signal.getsignal(number) for number in _STOP_SIGNALS}
    taken = [number for number, handler in before.items() if handler is not signal.SIG_IGN]
    for number in taken:
        signal.signal(number, note)
    try:
        yield received
    finally:
        for number in taken:
            signal.signal(number, before[number])
