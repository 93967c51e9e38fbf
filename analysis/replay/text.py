"""A replay as plain text: for a terminal, and as Markdown."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from analysis.replay import tables
from analysis.replay.method import describe_method
from analysis.replay.result import ReplayResult
from analysis.replay.wording import describe_findings
from analysis.report.cells import Cell, Table
from analysis.report.control_characters import show_controls
from analysis.report.figures import Figure
from analysis.report.markdown import escape


def render_terminal(result: ReplayResult, *, width: int = 100) -> str:
    """Return rules, examples, recommendation and caveat as plain text without control characters.

    Sentences are folded at `width`; table lines are as long as their columns need.
    """
    lines = _table_lines(tables.rule_table(result))
    if result.examples:
        lines += ["", *_table_lines(tables.example_table(result))]
    lines.append("")
    for sentence in describe_findings(result):
        lines += textwrap.wrap(
            show_controls(sentence), width, initial_indent="* ", subsequent_indent="  "
        )
    return "\n".join(lines) + "\n"


def render_markdown(result: ReplayResult, figures: Sequence[Figure], figures_dir: str) -> str:
    """Return the replay as GitHub-flavoured Markdown; figures are named relative to it."""
    method = "\n".join(f"- **{term}:** {escape(text)}" for term, text in describe_method(result))
    parts = [
        f"# Replay of {escape(result.label)}",
        "\n".join(f"- {escape(sentence)}" for sentence in describe_findings(result)),
        _render_warnings(result),
        *(_render_table(table) for table in tables.main_tables(result)),
        *(
            f"## {escape(figure.title)}\n\n"
            f"![{escape(figure.alt)}]({figures_dir}/{figure.name}.png)\n\n{escape(figure.caption)}"
            for figure in figures
        ),
        *(_render_table(table) for table in tables.detail_tables(result)),
        f"## How it was counted\n\n{method}",
        *(_render_table(table) for table in tables.source_tables(result)),
    ]
    return "\n\n".join(parts) + "\n"


def _table_lines(table: Table) -> list[str]:
    heads = [column.label for column in table.columns]
    rows = [[show_controls("; ".join(cell.lines)) for cell in row] for row in table.rows]
    widths = [max(len(row[place]) for row in [heads, *rows]) for place in range(len(heads))]
    return [
        "  ".join(
            text.rjust(width) if column.is_number else text.ljust(width)
            for text, width, column in zip(row, widths, table.columns, strict=True)
        ).rstrip()
        for row in [heads, *rows]
    ]


def _render_warnings(result: ReplayResult) -> str:
    lines = "\n".join(f"- {escape(warning)}" for warning in result.warnings)
    return f"## Warnings\n\n{lines or 'None.'}"


def _render_table(table: Table) -> str:
    heading = f"## {escape(table.title)}"
    note = f"\n\n{escape(table.note)}" if table.note else ""
    if not table.rows:
        return f"{heading}{note or chr(10) * 2 + 'Nothing to show.'}"
    lines = [
        f"| {' | '.join(escape(column.label) for column in table.columns)} |",
        f"| {' | '.join('--:' if column.is_number else '---' for column in table.columns)} |",
        *(f"| {' | '.join(_render_cell(cell) for cell in row)} |" for row in table.rows),
    ]
    body = "\n".join(lines)
    if table.is_folded:
        body = f"<details><summary>{len(table.rows)} rows</summary>\n\n{body}\n\n</details>"
    return f"{heading}\n\n{body}{note}"


def _render_cell(cell: Cell) -> str:
    return "<br>".join(escape(line) for line in cell.lines)
