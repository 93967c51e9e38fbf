"""From a log to the line that explains a failure."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from pathlib import Path

TAIL_BYTES = 1 << 17
MAX_ERROR_LENGTH = 500

_TRACEBACK = "Traceback (most recent call last):"
_NOISE = re.compile(
    r"wandb: .*|srun: .*|slurmstepd: .*|.*\bresource_tracker\b.*|\s*warnings\.warn\(.*"
    r"|.*\d+%\|.*\|.*|[\W_]*"
)
"""Lines that programs leave after the one that explains: trackers, launchers, progress bars."""
_TERMINAL_CODES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")


def read_tail(path: Path, max_bytes: int = TAIL_BYTES) -> str:
    """Return the end of a text file from a line's start; "" where it can't be read.

    Of text that a progress bar overwrote (carriage returns) only the last state remains.
    """
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - max_bytes))
            data = file.read()
    except OSError:
        return ""
    if size > max_bytes:
        data = data.partition(b"\n")[2]
    text = _TERMINAL_CODES.sub("", data.decode("utf-8", errors="replace"))
    return "\n".join(_last_state(line) for line in text.split("\n"))


def last_traceback(text: str) -> str:
    """Return the last Python traceback in `text`, up to its exception; "" where there is none."""
    lines = text.splitlines()
    starts = [i for i, line in enumerate(lines) if line.strip().endswith(_TRACEBACK)]
    if not starts:
        return ""
    start = starts[-1]
    indent = lines[start].index(_TRACEBACK)
    for end in range(start + 1, len(lines)):
        body = lines[end][indent:]
        if body and not body[0].isspace():
            return "\n".join(lines[start : end + 1])
    return "\n".join(lines[start:])


def last_error(text: str) -> str:
    """Return the line of `text` that explains its end: the last exception, or the last that says
    something; "" where there is none."""
    traceback = last_traceback(text)
    if traceback:
        return _shorten(traceback.splitlines()[-1])
    for line in reversed(text.splitlines()):
        if not _NOISE.fullmatch(line):
            return _shorten(line)
    return ""


def explain_exit(
    code: int | None,
    signal_number: int | None,
    last_step: int | None,
    max_steps: int,
    log: Path,
    parts: Mapping[str, Path] | None = None,
) -> str:
    """Return the one line that says why a trainer that wasn't asked to stop didn't finish.

    Args:
        parts: name of a part of the trainer -> its own log: where `log` holds no traceback, theirs
            may.
    """
    if signal_number is None and code == 0:
        if last_step is None:
            return f"exited 0 without a logged step, of {max_steps}"
        return f"exited 0 at step {last_step} of {max_steps}"
    text = read_tail(log)
    line = last_error(text)
    if signal_number is None and last_traceback(text):
        return line
    for part, path in (parts or {}).items():
        found = last_traceback(read_tail(path))
        if signal_number is None and found:
            return f"{part}: {_shorten(found.splitlines()[-1])}"
    said = f"exited {code}" if signal_number is None else f"killed by {signal_name(signal_number)}"
    return f"{said}: {line}" if line else f"{said} and logged nothing"


def signal_name(number: int) -> str:
    """Return `SIGTERM` for 15; the number as text where it has no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _last_state(line: str) -> str:
    states = [state for state in line.split("\r") if state.strip()]
    return states[-1] if states else ""


def _shorten(line: str) -> str:
    line = line.strip()
    return line if len(line) <= MAX_ERROR_LENGTH else f"{line[: MAX_ERROR_LENGTH - 1]}…"
