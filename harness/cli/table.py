"""The table of a sweep's runs: which columns it has, and what stands in them.

It is laid out here rather than by rich, whose tables take seconds for a thousand runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.dispatch.progress import format_duration, format_step
from harness.printable import one_line, printable
from harness.state.model import RunState, RunStatus

if TYPE_CHECKING:
    from rich.console import Console

STATE_STYLES: Mapping[RunState, str] = {
    RunState.DONE: "green",
    RunState.STOPPED: "green",
    RunState.RUNNING: "cyan",
    RunState.REQUEUED: "blue",
    RunState.STALLED: "yellow",
    RunState.CANCELLED: "yellow",
    RunState.UNKNOWN: "yellow",
    RunState.PREEMPTED: "yellow",
    RunState.FAILED: "bold red",
    RunState.TIMEOUT: "red",
    RunState.OUT_OF_MEMORY: "red",
    RunState.LOST: "red",
}
GAP = "  "

_WAITING_STATES = frozenset({RunState.SUBMITTING, RunState.QUEUED, RunState.REQUEUED})
"""What is known of the time and speed of such a run is of an earlier attempt."""

_DAY_S = 86_400
_MIN_NOTE_WIDTH = 40


@dataclass(frozen=True)
class Column:
    """One column of the table.

    Attributes:
        show: the text for a run; empty where there is nothing to say.
        is_left: whether it is flush left.
        is_optional: whether the table goes without it where it is empty in all rows.
    """

    name: str
    show: Callable[[RunStatus, float], str]
    is_left: bool = False
    is_optional: bool = False


COLUMNS = (
    Column("arm", lambda s, now: printable(s.arm), is_left=True),
    Column("seed", lambda s, now: str(s.seed)),
    Column("state", lambda s, now: str(s.state), is_left=True),
    Column("age", lambda s, now: "" if s.since is None else format_span(max(0.0, now - s.since))),
    Column("job", lambda s, now: _text(s.job_id), is_left=True, is_optional=True),
    Column("node", lambda s, now: _text(s.node), is_left=True, is_optional=True),
    Column("time", lambda s, now: _spent(s), is_optional=True),
    Column("step", lambda s, now: _step(s)),
    Column("steps/s", lambda s, now: _speed(s), is_optional=True),
    Column("ETA", lambda s, now: "" if s.eta_s is None else format_span(s.eta_s)),
    Column("KL", lambda s, now: _number(s.mismatch_kl, ".3g")),
    Column("solve rate", lambda s, now: _number(s.solve_rate, ".3f")),
    Column("GPU-h", lambda s, now: format_gpu_hours(s.gpu_hours), is_optional=True),
    Column("lost", lambda s, now: format_gpu_hours(s.lost_gpu_hours), is_optional=True),
)
"""`time` is elapsed of the limit; `lost` are GPU-hours that no checkpoint kept."""
LEAST_NEEDED = (
    "steps/s",
    "lost",
    "node",
    "GPU-h",
    "time",
    "job",
    "ETA",
    "solve rate",
    "KL",
    "age",
    "step",
)
"""Columns that a narrow terminal does without, in the order in which they go."""
GIVE_WAY_TO_NOTES = 2
"""So many of LEAST_NEEDED go before notes have to stand below their rows."""


def print_states(
    states: Sequence[RunStatus], console: Console, *, now: float | None = None
) -> None:
    """Print one row per run. Where a note has no room beside its row, it stands below it."""
    from rich.cells import cell_len  # noqa: PLC0415 (only where a table is shown)
    from rich.text import Text  # noqa: PLC0415

    now = time.time() if now is None else now
    notes = [note_of(status) for status in states]
    grid = lay_out(states, now)
    longest = max((min(cell_len(note), _MIN_NOTE_WIDTH) for note in notes), default=0)
    room = len(GAP) + longest if longest else 0
    narrow = grid.fit(console.width - room, GIVE_WAY_TO_NOTES)
    are_beside = narrow.width + room <= console.width
    grid = narrow if are_beside else grid.fit(console.width)
    head, *rows = grid.lines(Painter(console))
    title = f"{head}{GAP}note" if are_beside and longest else head.rstrip()
    console.file.write(f"{Painter(console).paint(title, 'bold')}\n")
    room = console.width - grid.width - len(GAP)
    for row, note in zip(rows, notes, strict=True):
        if note and are_beside:
            lines = Text(note).wrap(console, room)
            console.file.write(f"{row}{GAP}{lines[0].plain.rstrip()}\n")
            for line in lines[1:]:
                console.file.write(f"{' ' * grid.width}{GAP}{line.plain.rstrip()}\n")
            continue
        console.file.write(f"{row.rstrip()}\n")
        for line in Text(note).wrap(console, max(1, console.width - len(GAP))) if note else ():
            console.file.write(f"{GAP}{line.plain.rstrip()}\n")


class Painter:
    """Colours text as a console would; each pair of text and style is worked out once."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._painted: dict[tuple[str, str], str] = {}

    def paint(self, text: str, style: str) -> str:
        if not style or not self._console.is_terminal:
            return text
        if (text, style) not in self._painted:
            from rich.text import Text  # noqa: PLC0415 (only on a terminal)

            with self._console.capture() as capture:
                self._console.print(Text(text, style), end="", no_wrap=True, crop=False)
            self._painted[text, style] = capture.get()
        return self._painted[text, style]


@dataclass(frozen=True)
class Grid:
    """Columns with their cells, and the states that colour them."""

    columns: tuple[Column, ...]
    cells: tuple[tuple[str, ...], ...]
    widths: tuple[int, ...]
    states: tuple[RunState, ...]

    @property
    def width(self) -> int:
        return sum(self.widths) + len(GAP) * max(0, len(self.widths) - 1)

    def fit(self, width: int, most: int = len(LEAST_NEEDED)) -> Grid:
        """Return the grid without as many of LEAST_NEEDED as `width` asks for, at most `most`."""
        grid = self
        for name in LEAST_NEEDED[:most]:
            if grid.width <= width:
                break
            grid = grid._without(name)
        return grid

    def lines(self, painter: Painter) -> list[str]:
        """Return the heading and a line per run, all of the grid's width in cells."""
        lines = [GAP.join(self._pad(i, c.name) for i, c in enumerate(self.columns))]
        for row, state in enumerate(self.states):
            parts = []
            for i, column in enumerate(self.columns):
                cell = self._pad(i, self.cells[i][row])
                if column.name == "state":
                    cell = painter.paint(cell, STATE_STYLES.get(state, ""))
                parts.append(cell)
            lines.append(GAP.join(parts))
        return lines

    def _pad(self, index: int, text: str) -> str:
        width = self.widths[index]
        return text.ljust(width) if self.columns[index].is_left else text.rjust(width)

    def _without(self, name: str) -> Grid:
        kept = [i for i, column in enumerate(self.columns) if column.name != name]
        return Grid(
            tuple(self.columns[i] for i in kept),
            tuple(self.cells[i] for i in kept),
            tuple(self.widths[i] for i in kept),
            self.states,
        )


def lay_out(states: Sequence[RunStatus], now: float) -> Grid:
    """Return the runs as a grid, without optional columns that would be empty."""
    columns, cells = [], []
    for column in COLUMNS:
        texts = tuple(column.show(status, now) for status in states)
        if column.is_optional and not any(texts):
            continue
        columns.append(column)
        cells.append(texts)
    widths = (
        max(len(c.name), *map(len, texts)) if texts else len(c.name)
        for c, texts in zip(columns, cells, strict=True)
    )
    return Grid(tuple(columns), tuple(cells), tuple(widths), tuple(s.state for s in states))


def note_of(status: RunStatus) -> str:
    """Return what the columns don't say, in one line."""
    reason = one_line(status.reason)
    return reason if status.is_planned else f"left the plan; {reason}".rstrip("; ")


def format_span(seconds: float) -> str:
    """Return `8 s`, `3:07` (minutes), `26:03:07` (hours), and `3 d 4 h` from two days on."""
    if seconds < 2 * _DAY_S:
        return format_duration(seconds)
    days, rest = divmod(round(seconds), _DAY_S)
    return f"{days} d {rest // 3600} h"


def format_gpu_hours(hours: float | None) -> str:
    """Return `0.04`, `12.3`, `1,234`; empty for none."""
    if not hours:
        return ""
    if hours < 0.01:
        return "<0.01"
    return f"{hours:.2f}" if hours < 10 else f"{hours:,.1f}" if hours < 1000 else f"{hours:,.0f}"


def _spent(status: RunStatus) -> str:
    if status.limit_s is None:
        return ""
    waits = status.state in _WAITING_STATES or status.elapsed_s is None
    elapsed = "-" if waits else format_span(status.elapsed_s or 0.0)
    return f"{elapsed}/{format_span(status.limit_s)}"


def _step(status: RunStatus) -> str:
    if status.step is None and status.max_steps is None:
        return ""
    return format_step(status.step or 0, status.max_steps)


def _speed(status: RunStatus) -> str:
    return _number(status.steps_per_s if status.state is RunState.RUNNING else None, ".1f")


def _text(value: str | None) -> str:
    return "" if value is None else printable(value)


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)
