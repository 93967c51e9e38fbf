"""harness logs, why: one run, from any shell. They read and change nothing."""

from __future__ import annotations

import codecs
import math
import sys
import time
from pathlib import Path

from harness.cli import tell
from harness.cli.reading import read_placement
from harness.cli.select import find_run
from harness.cli.status import status_to_json
from harness.cli.table import format_gpu_hours, format_span
from harness.errors import UsageError
from harness.printable import one_line, printable
from harness.records.files import to_json
from harness.records.layout import RunPaths
from harness.state.explain import (
    Explanation,
    describe_exit,
    describe_job,
    explain,
    find_log,
    read_last_lines,
)
from harness.state.jobs import JobTable
from harness.state.model import RunState
from harness.state.status import may_be_at_work, read_state
from harness.sweep.locate import find_planned

_FOLLOW_INTERVAL_S = 0.5
_Decoder = codecs.getincrementaldecoder("utf-8")
_LAYOUT = "\n\t"
_QUIET_STATES = frozenset({RunState.DONE, RunState.STOPPED, RunState.PLANNED})
"""States whose reason isn't in the log."""


def logs_command(*, sweep: str, target: str, part: str | None, tail: int, follow: bool) -> int:
    """Print the last lines of a run's log to stdout, and go on with --follow.

    A run that never began has the output of its job for a log.

    Args:
        part: of the trainer, whose own log is wanted; None for what it prints itself.
    """
    run = find_run(find_planned(sweep), target)
    log = find_log(run, part)
    if log is None and not follow:
        raise _no_log(run)
    position = 0
    if log is not None:
        position = log.stat().st_size if log.exists() else 0
        for line in read_last_lines(log, tail):
            print(line)
    if follow:
        _follow(run, log, position, part)
    return 0


def why_command(*, sweep: str, target: str, as_json: bool) -> int:
    """Print what is known of one run's state on one screen."""
    paths = find_planned(sweep)
    found = explain(find_run(paths, target))
    if as_json:
        data = {
            "status": status_to_json(found.status),
            "ending": found.ending,
            "job": None if found.job is None else describe_job(found.job),
            "traceback": found.traceback,
            "tail": list(found.tail),
            "log": None if found.log is None else str(found.log),
        }
        sys.stdout.write(to_json(data))
        return 0
    for line in render_explanation(paths.name, found, time.time()):
        print(line)
    return 0


def render_explanation(sweep: str, found: Explanation, now: float) -> list[str]:
    """Return what is known of a run's state in lines for people."""
    status = found.status
    age = "" if status.since is None else f" for {format_span(max(0.0, now - status.since))}"
    lines = [f"{sweep} {status.run_id}: {status.state}{age}"]
    if status.reason:
        lines.append(f"reason: {one_line(status.reason)}")
    if status.hint:
        lines.append(f"hint: {one_line(status.hint)}")
    if found.exit is not None:
        spent = format_span(found.exit.end - found.exit.start)
        lines.append(
            f"attempt {found.exit.attempt}: {describe_exit(found.exit)} after {spent} at step"
            f" {found.exit.last_step or 0} of {found.exit.max_steps}"
            f" on {', '.join(map(printable, found.exit.nodes))}"
        )
    if found.job is not None:
        lines.append(f"SLURM: {one_line(describe_job(found.job))}")
    if status.gpu_hours:
        used = f"GPU-hours: {format_gpu_hours(status.gpu_hours)}"
        lost = format_gpu_hours(status.lost_gpu_hours)
        lines.append(f"{used}, {lost} of them lost" if lost else used)
    if found.traceback:
        lines += ["", printable(found.traceback, keep=_LAYOUT)]
    elif found.tail and status.state not in _QUIET_STATES:
        lines += ["", "last lines of the log:"]
        lines += [f"  {printable(line, keep=_LAYOUT)}" for line in found.tail]
    if found.log is not None:
        lines += ["", f"log: {printable(str(found.log))}"]
    return lines


def _follow(run: RunPaths, log: Path | None, position: int, part: str | None) -> None:
    """Print what is added to the run's log, and to those of its next attempts, until nothing is
    at work on it any more."""
    jobs = JobTable()
    asked_at = -math.inf
    poll_s = read_placement(run.sweep).poll_s
    is_over = False
    decode = _Decoder(errors="replace").decode  # keeps the half of a character for the next read
    if log is None:
        tell(f"waiting for {run.arm}/{run.seed} to begin")
    while True:
        newest = find_log(run, part)
        if newest is not None and newest != log:
            if log is not None:
                tell(f"from here on: {printable(str(newest))}")
            log, position, decode = newest, 0, _Decoder(errors="replace").decode
        text = b"" if log is None else _read_from(log, position)
        position += len(text)
        sys.stdout.write(decode(text))
        sys.stdout.flush()
        if is_over and not text:
            return
        if not text and time.monotonic() - asked_at >= poll_s:
            status = read_state(run.sweep, run.arm, run.seed, jobs=jobs)
            is_over = not may_be_at_work(status)
            asked_at = time.monotonic()
            continue
        time.sleep(_FOLLOW_INTERVAL_S)


def _read_from(path: Path, position: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(position)
            return file.read()
    except OSError:
        return b""


def _no_log(run: RunPaths) -> UsageError:
    status = read_state(run.sweep, run.arm, run.seed)
    name = f"{run.arm}/{run.seed}"
    if may_be_at_work(status):
        return UsageError(
            f"run `{name}` is {status.state} and has no log yet", "--follow waits for it"
        )
    return UsageError(
        f"run `{name}` was never started, so it has no log",
        f"`harness run {run.sweep.name}` starts what is missing",
    )
