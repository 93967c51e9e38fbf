"""harness cancel, clean: what changes a sweep that exists."""

from __future__ import annotations

from harness.cli.select import count_states, select_runs, show_counts
from harness.printable import printable
from harness.records.layout import SweepPaths
from harness.state.cancel import cancel
from harness.state.clean import clean
from harness.state.status import read_states
from harness.sweep.locate import find_planned


def cancel_command(*, sweep: str, target: str | None, dry_run: bool) -> int:
    """Ask queued and running runs to end; say which."""
    paths = find_planned(sweep)
    run_ids = _run_ids(paths, target)
    result = cancel(paths, run_ids, dry_run=dry_run)
    word = "would cancel" if dry_run else "cancelling"
    for status in result.runs:
        print(f"{word} {status.run_id} ({status.state})")
    if len(result.runs) > 1:
        print(f"{word} {len(result.runs)} runs: {show_counts(count_states(result.runs))}")
    if not result.runs:
        print("nothing to cancel: no such run is queued or running")
    return 0


def clean_command(*, sweep: str, left: bool, dry_run: bool) -> int:
    """Remove what no run needs; say what and how much."""
    paths = find_planned(sweep)
    found = clean(paths, include_left=left, dry_run=dry_run)
    removed = found.candidates
    word = "would remove" if dry_run else "removed"
    for candidate in removed:
        size = _show_bytes(candidate.num_bytes)
        shown = printable(str(candidate.path))
        print(f"{word} {shown} ({candidate.kind}, {size}): {candidate.reason}")
    for candidate in found.kept:
        print(f"kept {printable(str(candidate.path))} ({candidate.kind}): {candidate.reason}")
    total = _show_bytes(sum(c.num_bytes for c in removed))
    print(f"{word} {len(removed)} things, {total}" if removed else "nothing to remove")
    return 0


def _run_ids(paths: SweepPaths, target: str | None) -> list[str] | None:
    if target is None:
        return None
    return [status.run_id for status in select_runs(paths, read_states(paths), target)]


def _show_bytes(number: float) -> str:
    for unit in ("B", "kB", "MB"):
        if number < 1000:
            return f"{number:.0f} {unit}"
        number /= 1000
    return f"{number:.1f} GB"
