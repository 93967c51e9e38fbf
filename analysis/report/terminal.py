"""The summary that a terminal shows when a sweep ends."""

from __future__ import annotations

import textwrap

from analysis.report.cells import Report
from analysis.report.control_characters import show_controls
from analysis.report.numbers import format_metric
from analysis.report.tables import verdict_table

_COLUMNS = ("arm", "seeds", "solve rate", "mismatch KL", "masked fraction", "exploded", "collapsed")


def render_terminal(report: Report, *, width: int = 100) -> str:
    """Return findings, the main table and the warnings as plain text, without control characters.

    Sentences are folded at `width`; table lines are as long as their columns need.
    """
    title = f"{report['sweep']}: {report['question']}" if report["question"] else report["sweep"]
    lines = [show_controls(title)]
    if report["note"]:
        lines += _folded(f"Note: {report['note']}", "", width)
    lines += ["", *_render_table(report), ""]
    for sentence in report["findings"]:
        lines += _folded(sentence, "* ", width)
    if report["notices"]:
        lines += ["", "Warnings"]
        for notice in report["notices"]:
            lines += _folded(notice["message"], "! ", width)
    return "\n".join(lines) + "\n"


def _render_table(report: Report) -> list[str]:
    table = verdict_table(report)
    places = [i for i, column in enumerate(table.columns) if column.label in _COLUMNS]
    heads = [table.columns[i].label for i in places]
    # Intervals and steps stand in the report; a terminal has room for the estimates.
    rows = [
        [show_controls(row[i].lines[0].partition(" [")[0]) for i in places] for row in table.rows
    ]
    # After a collapse the final KL says nothing, so the peak stands beside it.
    after = heads.index("mismatch KL") + 1
    heads.insert(after, "peak KL")
    for row, arm in zip(rows, report["arms"], strict=True):
        row.insert(after, format_metric("mismatch_kl", arm["median_peak_kl"]))
    widths = [max(len(row[i]) for row in [heads, *rows]) for i in range(len(heads))]
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
