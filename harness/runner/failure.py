"""From a log to the line that explains a failure."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from pathlib import Path

from harness.runner.refusal import explain_box, explain_keys, find_box, names_keys

TAIL_BYTES = 1 << 17
MAX_ERROR_LENGTH = 500

_TRACEBACK = "Traceback (most recent call last):"
_NOISE = re.compile(
    r"wandb: .*|srun: .*|slurmstepd: .*|.*\bresource_tracker\b.*|\s*warnings\.warn\(.*"
    r"|.*\d+%\|.*\|.*|[\W_]*"
)
"""Lines that programs leave after the one that explains: trackers, launchers, progress bars."""
_ERROR = re.compile(
    r"\b(?:traceback|\w*errors?|\w*exception|fatal|killed|abort(?:ed|ing)?|oom|out of memory)\b",
    re.I,
)
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
    """Return the line of `text` that explains its end: what stands in the box that it ends with,
    the last exception, or the last line that says something; "" where there is none."""
    lines = text.splitlines()
    last = next((i for i in reversed(range(len(lines))) if not _NOISE.fullmatch(lines[i])), None)
    if last is None:
        return ""
    boxed = find_box(lines, last)
    if boxed:
        return shorten(explain_box(boxed))
    traceback = last_traceback(text)
    if not traceback:
        return shorten(lines[last])
    exception = traceback.splitlines()[-1]
    return shorten((names_keys(exception) and explain_keys(lines[: last + 1])) or exception)


def explain_exit(
    code: int | None,
    signal_number: int | None,
    last_step: int | None,
    max_steps: int,
    log: Path,
    parts: Mapping[str, Path] | None = None,
) -> str:
    """Return the one line that says why a trainer that wasn't asked to stop didn't finish.

    What it logged last explains a signal only where it looks like an error.

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
    if signal_number is not None:
        said = f"killed by {signal_name(signal_number)}"
        if not line:
            return f"{said} and logged nothing"
        return f"{said}: {line}" if _ERROR.search(line) else said
    if last_traceback(text):
        return line
    for part, path in (parts or {}).items():
        found = last_traceback(read_tail(path))
        if found:
            return f"{part}: {shorten(found.splitlines()[-1])}"
    return f"exited {code}: {line}" if line else f"exited {code} and logged nothing"


def signal_name(number: int) -> str:
    """Return `SIGTERM` for 15; the number as text where it has no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _last_state(line: str) -> str:
    states = [state for state in line.split("\r") if state.strip()]
    return states[-1] if states else ""


def shorten(line: str) -> str:
    """Return `line` without white space around it, cut to MAX_ERROR_LENGTH."""
    line = line.strip()
    return line if len(line) <= MAX_ERROR_LENGTH else f"{line[: MAX_ERROR_LENGTH - 1]}…"
