"""harness status: the state of every run, from any shell. It reads and changes nothing."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from typing import Any

from harness.cli import tell
from harness.cli.display import open_console
from harness.cli.reading import Placement, Reader, Reading, read_placement
from harness.cli.select import count_states, parse_states, select_runs, show_counts
from harness.cli.table import format_gpu_hours, print_states
from harness.errors import UsageError
from harness.printable import one_line
from harness.records.files import finite_or_text, to_json
from harness.records.layout import SweepPaths
from harness.state.model import RunState, RunStatus
from harness.sweep.locate import find_planned


def status_command(
    *, sweep: str, target: str | None, wanted: str | None, watch: bool, as_json: bool
) -> int:
    """Print one row per run and a line for all, or show them live with --watch."""
    paths = find_planned(sweep)
    states = None if wanted is None else parse_states(wanted)
    if watch:
        return _watch(paths, target, states, as_json=as_json)
    reading = Reader(paths).read()
    chosen = choose(paths, reading, target, states)
    if as_json:
        sys.stdout.write(to_json([status_to_json(status) for status in chosen]))
        tell_stale(reading)
        return 0
    console = open_console()
    if chosen:
        print_states(chosen, console, now=reading.time)
    line = summarize(paths.name, chosen, read_placement(paths), is_whole=target is None)
    console.print(line, markup=False, soft_wrap=True)
    tell_stale(reading)
    return 0


def choose(
    paths: SweepPaths,
    reading: Reading,
    target: str | None,
    wanted: frozenset[RunState] | None,
) -> list[RunStatus]:
    """Return the runs that are asked for. Raises UsageError where the target names none."""
    chosen = select_runs(paths, reading.states, target)
    return [status for status in chosen if wanted is None or status.state in wanted]


def summarize(
    sweep: str, states: Sequence[RunStatus], placement: Placement, *, is_whole: bool = True
) -> str:
    """Return the line below the table: how many runs are in which state, and GPU-hours.

    Args:
        is_whole: whether all runs may be meant, so that what was planned for all compares.
    """
    counts = show_counts(count_states(states))
    line = f"{sweep}: {len(states)} runs" + (f": {counts}" if counts else "")
    used = sum(status.gpu_hours or 0.0 for status in states)
    lost = sum(status.lost_gpu_hours or 0.0 for status in states)
    parts = []
    if used:
        parts.append(f"{format_gpu_hours(used)} GPU-hours used")
    if lost:
        parts.append(f"{format_gpu_hours(lost)} of them lost")
    if placement.planned_gpu_hours and is_whole:
        parts.append(f"{format_gpu_hours(placement.planned_gpu_hours)} planned")
    return "; ".join([line, ", ".join(parts)] if parts else [line])


def status_to_json(status: RunStatus) -> dict[str, Any]:
    """Return all that is known of a run as plain data."""
    plain = dataclasses.asdict(status)
    return {
        key: finite_or_text(value) if isinstance(value, float) else value
        for key, value in {**plain, "eta_s": status.eta_s}.items()
    }


def tell_stale(reading: Reading) -> None:
    """Say on stderr that SLURM couldn't be asked."""
    if reading.stale:
        tell(
            f"warning: SLURM doesn't answer: {one_line(reading.stale)}; the states are from the"
            " runs' own records"
        )


def _watch(
    paths: SweepPaths, target: str | None, wanted: frozenset[RunState] | None, *, as_json: bool
) -> int:
    if as_json:
        raise UsageError("--watch and --json don't go together", "leave one of them out")
    if not sys.stdout.isatty():
        raise UsageError(
            "--watch needs a terminal", f"`harness status {paths.name}` prints the table once"
        )
    from harness.cli.watch import watch  # noqa: PLC0415 (only where something is shown live)

    reader = Reader(paths)

    def read() -> Reading:
        reading = reader.read()
        return dataclasses.replace(reading, states=choose(paths, reading, target, wanted))

    watch(paths, read)
    return 0
