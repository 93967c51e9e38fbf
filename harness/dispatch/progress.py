"""Shows a submission while it runs: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Iterator
from typing import TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from harness.dispatch.interface import RunProgress, Show, Snapshot
from harness.printable import one_line
from harness.state.status import RunState

MAX_ROWS = 16
MAX_ERROR_LENGTH = 60
_BAR_WIDTH = 24
_STYLES = {
    RunState.DONE: "green",
    RunState.RUNNING: "cyan",
    RunState.FAILED: "red",
    RunState.LOST: "red",
    RunState.TIMEOUT: "red",
    RunState.OUT_OF_MEMORY: "red",
    RunState.PREEMPTED: "red",
    RunState.STALLED: "yellow",
    RunState.REQUEUED: "yellow",
    RunState.CANCELLED: "yellow",
    RunState.UNKNOWN: "yellow",
}
_TROUBLED = frozenset(
    {
        RunState.REQUEUED,
        RunState.STALLED,
        RunState.FAILED,
        RunState.TIMEOUT,
        RunState.OUT_OF_MEMORY,
        RunState.PREEMPTED,
        RunState.LOST,
        RunState.UNKNOWN,
    }
)
"""States whose reason the table shows."""


@contextlib.contextmanager
def show_progress(stream: TextIO | None = None) -> Iterator[Show]:
    """Yield what `follow` calls with its snapshots; it writes to `stream` (default: stderr).

    On a terminal that is a table of the running runs under a line for the whole sweep. Elsewhere
    each run gives one line when it has ended. Where nobody reads `stream` any more, nothing is
    shown, and the runs go on.
    """
    stream = sys.stderr if stream is None else stream
    if not stream.isatty():
        yield _unless_gone(_plain_lines(stream))
        return
    live = Live(console=Console(file=stream), refresh_per_second=4)
    live.start()
    try:
        yield _unless_gone(lambda snapshot: live.update(render_snapshot(snapshot)))
    finally:
        with contextlib.suppress(OSError):
            live.stop()


def render_snapshot(snapshot: Snapshot) -> Group:
    """Return the sweep's line and the table of what runs now and what ended badly."""
    return Group(_headline(snapshot), _table(snapshot))


def render_ended(progress: RunProgress, number: int, total: int) -> str:
    """Return the plain line for a run that has ended, `number` of `total`."""
    step = "no step" if progress.step is None else f"step {progress.step}"
    wanted = progress.run.max_steps
    joint = ", asked" if (progress.step or 0) > wanted else " of"
    facts = [f"{step}{joint} {wanted}"]
    if progress.elapsed_s is not None:
        facts.append(format_duration(progress.elapsed_s))
    if progress.mismatch_kl is not None:
        facts.append(f"KL {progress.mismatch_kl:.3g}")
    if progress.solve_rate is not None:
        facts.append(f"solve rate {progress.solve_rate:.2f}")
    line = f"[{number}/{total}] {progress.run.run_id} {progress.state}: {', '.join(facts)}"
    return f"{line} - {one_line(progress.error)}" if progress.error else line


def format_step(step: int, max_steps: int | None) -> str:
    """Return `40/100`, or `393, asked 5` of a run that went further than is asked for now."""
    if max_steps is None:
        return str(step)
    return f"{step}/{max_steps}" if step <= max_steps else f"{step}, asked {max_steps}"


def format_duration(seconds: float) -> str:
    """Return `8 s`, `3:07` (minutes) or `2:03:07` (hours)."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes}:{rest:02d}"
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


def _plain_lines(stream: TextIO) -> Show:
    shown: set[str] = set()

    def show(snapshot: Snapshot) -> None:
        for progress in snapshot.runs:
            if progress.has_ended and progress.run.run_id not in shown:
                shown.add(progress.run.run_id)
                print(
                    render_ended(progress, len(shown), len(snapshot.runs)),
                    file=stream,
                    flush=True,
                )

    return show


def _unless_gone(show: Show) -> Show:
    """Return `show` that gives up once its stream can't be written."""
    is_gone = False

    def attempt(snapshot: Snapshot) -> None:
        nonlocal is_gone
        if not is_gone:
            try:
                show(snapshot)
            except OSError:
                is_gone = True

    return attempt


def _headline(snapshot: Snapshot) -> Text:
    counts = Counter(progress.state for progress in snapshot.runs)
    total = len(snapshot.runs)
    line = Text.assemble((snapshot.sweep, "bold"), f"  {counts[RunState.DONE]}/{total} done")
    for state, count in counts.items():
        if state is not RunState.DONE:
            line.append(f", {count} {state}", _STYLES.get(state, ""))
    line.append(f"  {format_duration(snapshot.elapsed_s)}")
    if snapshot.eta_s is not None:
        line.append(f", about {format_duration(snapshot.eta_s)} left")
    if snapshot.is_stopping:
        line.append("  stopping (Ctrl-C again: without grace)", "yellow")
    return line


def _table(snapshot: Snapshot) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("arm", "seed", "state", "", "step", "steps/s", "ETA", "KL", "solve"):
        table.add_column(name, justify="left" if name in ("arm", "state", "") else "right")
    running = [p for p in snapshot.runs if p.state is RunState.RUNNING]
    troubled = [p for p in snapshot.runs if p.state in _TROUBLED]
    rows = [*running, *troubled]
    for progress in rows[:MAX_ROWS]:
        table.add_row(*_cells(progress))
    if len(rows) > MAX_ROWS:
        table.add_row(f"… {len(rows) - MAX_ROWS} more")
    return table


def _cells(progress: RunProgress) -> list[Text | ProgressBar | str]:
    run, step, eta_s = progress.run, progress.step or 0, progress.eta_s
    is_running = progress.state is RunState.RUNNING
    bar = ProgressBar(total=run.max_steps, completed=step, width=_BAR_WIDTH)
    return [
        Text(run.arm),
        str(run.seed),
        Text(str(progress.state), _STYLES.get(progress.state, "")),
        bar if is_running else Text(one_line(progress.error)[:MAX_ERROR_LENGTH], "red"),
        format_step(step, run.max_steps),
        _number(progress.steps_per_s, "{:.1f}"),
        "" if eta_s is None else format_duration(eta_s),
        _number(progress.mismatch_kl, "{:.3g}"),
        _number(progress.solve_rate, "{:.2f}"),
    ]


def _number(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)
