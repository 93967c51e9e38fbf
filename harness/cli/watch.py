"""The live view of a sweep: a line for all, a bar, and a row for each run that fits."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from harness.cli.display import open_console
from harness.cli.reading import Placement, Reading, read_placement
from harness.cli.select import count_states, show_counts
from harness.cli.table import (
    GAP,
    GIVE_WAY_TO_NOTES,
    STATE_STYLES,
    format_gpu_hours,
    format_span,
    lay_out,
    note_of,
)
from harness.printable import one_line
from harness.records.layout import SweepPaths
from harness.state.model import FINISHED_STATES, LIVE_STATES, RunState, RunStatus

BAR_WIDTH = 20
_MIN_NOTE_WIDTH = 16
_AROUND = 4
"""Lines around the rows: a blank one, the heading, how many runs have no row, the cursor's."""
_AT_WORK = (RunState.RUNNING, RunState.REQUEUED, RunState.SUBMITTING)
_WAITING = (RunState.QUEUED, RunState.PLANNED)


def watch(paths: SweepPaths, read: Callable[[], Reading]) -> None:
    """Show the sweep on this terminal until Ctrl-C."""
    console = open_console()
    with (
        contextlib.suppress(KeyboardInterrupt),
        Live(console=console, auto_refresh=False, vertical_overflow="crop") as live,
    ):
        while True:
            reading, placement = read(), read_placement(paths)
            live.update(render(paths.name, reading, placement, console), refresh=True)
            time.sleep(placement.poll_s)


def render(sweep: str, reading: Reading, placement: Placement, console: Console) -> Group:
    """Return the view; it is no higher and no wider than the console."""
    states = reading.states
    lines: list[RenderableType] = [_headline(sweep, reading), _overall(states, placement)]
    if reading.stale:
        stale = f"SLURM doesn't answer: {one_line(reading.stale)}; as the runs' own records say"
        lines.append(Text(stale, "yellow", no_wrap=True, overflow="ellipsis"))
    room = max(1, console.height - len(lines) - _AROUND)
    shown = choose_rows(states, room)
    if shown:
        lines += [Text(""), _table(shown, reading.time, console.width)]
    kept = {id(status) for status in shown}
    rest = [status for status in states if id(status) not in kept]
    if rest:
        counts = show_counts(count_states(rest))
        lines.append(Text(f"… {len(rest)} more: {counts}", "dim", no_wrap=True))
    return Group(*lines)


def choose_rows(states: Sequence[RunStatus], room: int) -> list[RunStatus]:
    """Return the runs to show: those in trouble (in half of the rows at most, where others need
    them), those at work, those that wait, those that are through."""
    groups: dict[str, list[RunStatus]] = {"trouble": [], "work": [], "wait": [], "through": []}
    for status in states:
        if status.state in FINISHED_STATES:
            groups["through"].append(status)
        elif status.state in _AT_WORK:
            groups["work"].append(status)
        elif status.state in _WAITING:
            groups["wait"].append(status)
        else:
            groups["trouble"].append(status)
    if len(states) <= room:
        return list(states)  # all of them, in the plan's order
    trouble = groups["trouble"][: max(room // 2, room - len(groups["work"]))]
    rest = [*groups["work"], *groups["wait"], *groups["through"]]
    return [*trouble, *rest][:room]


def sweep_eta_s(states: Sequence[RunStatus]) -> float | None:
    """Return the seconds until all live runs are through at the speed of those that run now."""
    speed = sum(s.steps_per_s or 0.0 for s in states if s.state is RunState.RUNNING)
    if speed <= 0:
        return None
    live = [s for s in states if s.state in LIVE_STATES]
    return sum(max(0, (s.max_steps or 0) - (s.step or 0)) for s in live) / speed


def _headline(sweep: str, reading: Reading) -> Text:
    counts = count_states(reading.states)
    line = Text.assemble((sweep, "bold"), f"{GAP}{len(reading.states)} runs", no_wrap=True)
    for number, (state, count) in enumerate(counts.items()):
        line.append(", " if number else ": ")
        line.append(f"{count} {state}", STATE_STYLES.get(state, ""))
    line.append(f"{GAP}{time.strftime('%H:%M:%S', time.localtime(reading.time))}", "dim")
    return line


def _overall(states: Sequence[RunStatus], placement: Placement) -> Table:
    total = sum(s.max_steps or 0 for s in states)
    done = sum(min(s.step or 0, s.max_steps or 0) for s in states)
    parts = [f"{100 * done / total:.0f} %" if total else "no steps"]
    eta_s = sweep_eta_s(states)
    if eta_s is not None:
        parts.append(f"about {format_span(eta_s)} left")
    used = sum(s.gpu_hours or 0.0 for s in states)
    if used or placement.planned_gpu_hours:
        planned = format_gpu_hours(placement.planned_gpu_hours)
        of = f" of {planned}" if planned else ""
        parts.append(f"{format_gpu_hours(used) or '0'}{of} GPU-hours")
    line = Table.grid(padding=(0, 2, 0, 0))
    line.add_column(width=BAR_WIDTH)
    line.add_column(no_wrap=True)
    line.add_row(_bar(done, total), ", ".join(parts))
    return line


def _table(states: Sequence[RunStatus], now: float, width: int) -> Table:
    notes = [note_of(status) for status in states]
    room = width - BAR_WIDTH - len(GAP)
    grid = lay_out(states, now)
    narrow = grid.fit(room - len(GAP) - _MIN_NOTE_WIDTH, GIVE_WAY_TO_NOTES)
    grid = narrow if any(notes) and narrow.width <= room else grid.fit(room)
    names = [column.name for column in grid.columns]
    room -= grid.width + len(GAP)
    has_notes = any(notes) and room >= _MIN_NOTE_WIDTH
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in grid.columns:
        table.add_column(column.name, justify="left" if column.is_left else "right", no_wrap=True)
        if column.name == "state":
            table.add_column("", width=BAR_WIDTH)
    if has_notes:
        table.add_column("note", no_wrap=True, overflow="ellipsis", max_width=room)
    for row, status in enumerate(states):
        cells: list[RenderableType] = []
        for name, texts in zip(names, grid.cells, strict=True):
            style = STATE_STYLES.get(status.state, "") if name == "state" else ""
            cells.append(Text(texts[row], style))
            if name == "state":
                cells.append(_bar(status.step or 0, status.max_steps or 0))
        if has_notes:
            cells.append(Text(notes[row]))
        table.add_row(*cells)
    return table


def _bar(done: int, total: int) -> ProgressBar:
    return ProgressBar(total=max(1, total), completed=min(done, total), width=BAR_WIDTH)
