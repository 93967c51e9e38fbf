"""report.md: the report for a pull request, a notebook or a pager."""

from __future__ import annotations

import re
from collections.abc import Sequence

from analysis.report import background, event_tables, tables
from analysis.report.cells import Cell, Report, Table
from analysis.report.control_characters import show_controls
from analysis.report.figures import Figure
from analysis.report.method import describe_command, describe_method
from analysis.report.numbers import format_time

# Underscores within words and brackets that open no link are text already.
_SPECIAL = re.compile(r"([\\`*#|~]|(?<!\w)_|_(?!\w)|\](?=[\[(:]))")


def render_markdown(report: Report, figures: Sequence[Figure], figures_dir: str) -> str:
    """Return the report as GitHub-flavoured Markdown; figures are named relative to it."""
    parts = [
        f"# {escape(report['sweep'])}",
        f"**Question.** {escape(report['question'])}" if report["question"] else "",
        "\n".join(f"- {escape(sentence)}" for sentence in report["findings"]),
        _render_table(tables.verdict_table(report), level=2),
        _render_notices(report),
        _render_table(tables.change_table(report), level=2),
        *(_render_figure(figure, figures_dir) for figure in figures),
        _render_table(tables.comparison_table(report), level=2),
        _render_table(tables.event_table(report), level=2),
        _render_table(event_tables.parting_table(report), level=2),
        _render_table(event_tables.happening_table(report), level=2),
        _render_table(tables.seed_table(report), level=2),
        _render_table(background.cost_table(report), level=2),
        _render_table(background.time_table(report), level=2),
        "## How it was computed",
        "\n".join(f"- **{term}:** {escape(text)}" for term, text in describe_method(report)),
        _render_table(background.metric_table(report), level=3),
        _render_table(background.difference_table(report), level=2),
        "## Provenance",
        _render_provenance(report),
        _render_table(background.file_table(report), level=3),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def escape(text: str) -> str:
    """Return `text` so that Markdown and the HTML inside it show it as it is, on one line."""
    text = show_controls(" ".join(text.split()))
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _SPECIAL.sub(r"\\\1", text)


def _render_table(table: Table, *, level: int) -> str:
    heading = f"{'#' * level} {escape(table.title)}"
    if not table.rows:
        return f"{heading}\n\nNothing to show."
    lines = [
        f"| {' | '.join(escape(column.label) for column in table.columns)} |",
        f"| {' | '.join('--:' if column.is_number else '---' for column in table.columns)} |",
        *(f"| {' | '.join(_render_cell(cell) for cell in row)} |" for row in table.rows),
    ]
    body = "\n".join(lines)
    if table.is_folded:
        body = f"<details><summary>{len(table.rows)} rows</summary>\n\n{body}\n\n</details>"
    note = f"\n\n{escape(table.note)}" if table.note else ""
    return f"{heading}\n\n{body}{note}"


def _render_cell(cell: Cell) -> str:
    text = "<br>".join(escape(line) for line in cell.lines)
    return f"**{text}**" if cell.arm else text


def _render_notices(report: Report) -> str:
    if not report["notices"]:
        return "## Warnings\n\nNone."
    marks = {"error": "**Error:** "}
    lines = [
        f"- {marks.get(notice['severity'], '')}{escape(notice['message'])}"
        for notice in report["notices"]
    ]
    return "## Warnings\n\n" + "\n".join(lines)


def _render_figure(figure: Figure, figures_dir: str) -> str:
    image = f"![{escape(figure.alt)}]({figures_dir}/{figure.name}.png)"
    return f"## {escape(figure.title)}\n\n{image}\n\n{escape(figure.caption)}"


def _render_provenance(report: Report) -> str:
    code = report["code"]
    dirty = " with uncommitted changes" if code["is_dirty"] else ""
    versions = ", ".join(f"{name} {version}" for name, version in code["versions"].items())
    lines = [
        f"- **Command:** {escape(describe_command(report))}",
        f"- **Newest record:** {format_time(report['newest_record'])} UTC",
        f"- **Code:** {escape(code['hash'])}, commit {escape(str(code['commit']))}{dirty}",
        f"- **Versions:** {escape(versions) or 'not recorded'}",
        f"- **Trainer:** {escape(report['trainer'])}",
    ]
    return "\n".join(lines)
