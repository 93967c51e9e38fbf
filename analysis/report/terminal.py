"""The summary that a terminal shows when a sweep ends."""

from __future__ import annotations

import textwrap

from analysis.report.cells import Report, Table
from analysis.report.control_characters import show_controls
from analysis.report.tables import verdict_table

_COLUMNS = ("arm", "seeds", "solve rate", "mismatch KL", "masked fraction", "exploded", "collapsed")


def render_terminal(report: Report, *, width: int = 100) -> str:
    """Return findings, the main table and the warnings as plain text, without control characters.

    Sentences are folded at `width`; table lines are as long as their columns need.
    """
    title = f"{report['sweep']}: {report['question']}" if report["question"] else report["sweep"]
    lines = [show_controls(title)]
    lines += ["", *_render_table(verdict_table(report)), ""]
    for sentence in report["findings"]:
        lines += _folded(sentence, "* ", width)
    if report["notices"]:
        lines += ["", "Warnings"]
        for notice in report["notices"]:
            lines += _folded(notice["message"], "! ", width)
    return "\n".join(lines) + "\n"


def _render_table(table: Table) -> list[str]:
    places = [i for i, column in enumerate(table.columns) if column.label in _COLUMNS]
    # Intervals and steps stand in the report; a terminal has room for the estimates.
    rows = [
        [show_controls(row[i].lines[0].partition(" [")[0]) for i in places] for row in table.rows
    ]
    heads = [table.columns[i].label for i in places]
    widths = [max(len(row[i]) for row in [heads, *rows]) for i in range(len(places))]
    return ["  ".join(_pad(row, widths)).rstrip() for row in [heads, *rows]]


def _pad(row: list[str], widths: list[int]) -> list[str]:
    return [
        text.ljust(width) if place == 0 else text.rjust(width)
        for place, (text, width) in enumerate(zip(row, widths, strict=True))
    ]


def _folded(text: str, bullet: str, width: int) -> list[str]:
    return textwrap.wrap(
        show_controls(" ".join(text.split())),
        width,
        initial_indent=bullet,
        subsequent_indent=" " * len(bullet),
    )
