"""What a table of a report is made of, before it is rendered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Report = Mapping[str, Any]
"""The content of report.json."""


@dataclass(frozen=True)
class Cell:
    """Lines of text; `tone` is good, bad, warn, muted or empty; `arm` names one to mark."""

    lines: tuple[str, ...]
    tone: str = ""
    arm: str = ""
    tones: tuple[str, ...] = ()

    def tone_of(self, line: int) -> str:
        return self.tones[line] if self.tones else self.tone


@dataclass(frozen=True)
class Column:
    """A column's heading; `hint` explains it; numbers are set flush right."""

    label: str
    is_number: bool = False
    hint: str = ""


@dataclass(frozen=True)
class Table:
    """A table. `is_folded`: a reader opens it when they want it."""

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    is_folded: bool = False


def make_cell(*lines: str, tone: str = "") -> Cell:
    """Return a cell with these lines, all in one tone."""
    return Cell(tuple(lines), tone)


def make_arm_cell(name: str) -> Cell:
    """Return a cell that names an arm and shows its line style."""
    return Cell((name,), arm=name)
