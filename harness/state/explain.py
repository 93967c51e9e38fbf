"""Why a run is in the state it is in: everything known of its newest attempt, on one screen."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from pathlib import Path

from harness.errors import HarnessError, UsageError
from harness.records.layout import AttemptPaths, RunPaths
from harness.records.model import Exit, read_record_if_there
from harness.runner.failure import last_traceback, read_tail, signal_name
from harness.state.status import RunStatus, read_state

TAIL_LINES = 15
_BLOCK_BYTES = 1 << 16


@dataclass(frozen=True)
class Explanation:
    """What `why` shows.

    Attributes:
        exit: the newest attempt's exit record; None while it goes on, or was cut off.
        ending: the exit code or signal in words; empty without an exit record.
        traceback: the last one in the log; empty where there is none.
        tail: the last lines of the log.
        log: of the newest attempt; None where the run was never started.
    """

    status: RunStatus
    exit: Exit | None
    ending: str
    traceback: str
    tail: tuple[str, ...]
    log: Path | None


def explain(run: RunPaths, *, now: float | None = None) -> Explanation:
    """Explain one run from its records and its log.

    Raises:
        HarnessError: the sweep has no readable plan.
    """
    status = read_state(run.sweep, run.arm, run.seed, now=now)
    attempts = run.attempts()
    if not attempts:
        return Explanation(status, None, "", "", (), None)
    log = attempts[-1].log
    try:
        ended = read_record_if_there(Exit, attempts[-1].exit)
    except HarnessError:
        ended = None  # the status says which record is damaged
    return Explanation(
        status=status,
        exit=ended,
        ending="" if ended is None else describe_exit(ended),
        traceback=last_traceback(read_tail(log)),
        tail=tuple(_last_lines(log, TAIL_LINES)),
        log=log,
    )


def describe_exit(ended: Exit) -> str:
    """Return how the trainer's process ended, in words: `exit code 3`, `SIGKILL`."""
    if ended.signal is not None:
        return signal_name(ended.signal)
    return "never started" if ended.code is None else f"exit code {ended.code}"


def tail_log(run: RunPaths, num_lines: int, *, attempt: int | None = None) -> list[str]:
    """Return the last lines of an attempt's log (default: the newest), oldest first.

    Raises:
        UsageError: the run was never started, or has no such attempt.
    """
    return _last_lines(log_path(run, attempt), num_lines)


def log_path(run: RunPaths, attempt: int | None = None) -> Path:
    """Return the log of an attempt (default: the newest). Raises UsageError."""
    attempts = run.attempts()
    name = f"{run.arm}/{run.root.name}"
    if not attempts:
        raise UsageError(
            f"run `{name}` was never started, so it has no log",
            f"start it with `harness run {run.sweep.name}`",
        )
    found: dict[int, AttemptPaths] = {paths.number: paths for paths in attempts}
    number = max(found) if attempt is None else attempt
    if number not in found:
        raise UsageError(
            f"run `{name}` has no attempt {number}", f"attempts: {', '.join(map(str, found))}"
        )
    return found[number].log


def _last_lines(path: Path, num_lines: int) -> list[str]:
    """Return the last lines without reading more of the file than they take."""
    try:
        with path.open("rb") as file:
            position = file.seek(0, 2)
            blocks: deque[bytes] = deque()
            num_breaks = 0
            while position > 0 and num_breaks <= num_lines:
                start = max(0, position - _BLOCK_BYTES)
                file.seek(start)
                blocks.appendleft(file.read(position - start))
                num_breaks += blocks[0].count(b"\n")
                position = start
    except OSError:
        return []
    lines = b"".join(blocks).decode("utf-8", errors="replace").split("\n")
    if lines and not lines[-1]:
        lines.pop()
    return [line.rstrip("\r") for line in lines[-num_lines:]] if num_lines > 0 else []
