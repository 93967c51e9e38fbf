"""report.md: the report for a pull request, a notebook or a pager."""

from __future__ import annotations

import re
from collections.abc import Sequence

from analysis.report import background, event_tables, tables
from analysis.report.cells import Cell, Report, Table
from analysis.report.control_characters import show_controls
from analysis.report.figures import Figure
from analysis.report.forks import describe_forks
from analysis.report.method import describe_command, describe_method, describe_trainer
from analysis.report.numbers import format_time

MAX_LENGTH = 65_000
"""GitHub takes 65,536 characters."""

_LEAVE_OUT = (
    "files",
    "happenings",
    "time",
    "seeds",
    "differences",
    "metrics",
    "partings",
    "events",
)
"""Names of tables, those first that a reader of a comment misses least."""

# Underscores within words and brackets that open no link are text already.
_SPECIAL = re.compile(r"([\\`*#|~]|(?<!\w)_|_(?!\w)|\](?=[\[(:]))")


def render_markdown(report: Report, figures: Sequence[Figure], figures_dir: str) -> str:
    """Return the report as GitHub-flavoured Markdown; figures are named relative to it.

    It fits a comment on a pull request, of at most `MAX_LENGTH` characters: where it would be
    longer, tables of single runs and files give their place to a line that says where they are.
    """
    left_out: list[str] = []
    text = _render(report, figures, figures_dir, left_out)
    for name in _LEAVE_OUT:
        if len(text) <= MAX_LENGTH:
            break
        left_out.append(name)
        text = _render(report, figures, figures_dir, left_out)
    return text


def _escape_but_code(sentences: Sequence[str]) -> str:
    return escape(" · ".join(sentences)).replace("\\`", "`")


def _render(
    report: Report, figures: Sequence[Figure], figures_dir: str, left_out: Sequence[str]
) -> str:
    def show(table: Table, level: int = 2) -> str:
        return _render_table(table, level=level, is_left_out=table.name in left_out)

    parts = [
        f"# {escape(report['sweep'])}",
        f"**Question.** {escape(report['question'])}" if report["question"] else "",
        f"**Note.** {escape(report['note'])}" if report["note"] else "",
        f"**Of the trainer.** {_escape_but_code(report['remarks'])}" if report["remarks"] else "",
        f"**Recipe of every arm.** {escape(', '.join(report['common']))}"
        if report["common"]
        else "",
        f"**Forks.** {escape(forks)}" if (forks := describe_forks(report)) else "",
        "\n".join(f"- {escape(sentence)}" for sentence in report["findings"]),
        show(tables.verdict_table(report)),
        _render_notices(report),
        show(tables.change_table(report)),
        *(_render_figure(figure, figures_dir) for figure in figures),
        show(tables.comparison_table(report)),
        show(tables.event_table(report)),
        show(event_tables.parting_table(report)),
        show(event_tables.happening_table(report)),
        show(tables.seed_table(report)),
        show(background.cost_table(report)),
        show(background.time_table(report)),
        "## How it was computed",
        "\n".join(f"- **{term}:** {escape(text)}" for term, text in describe_method(report)),
        show(background.metric_table(report), level=3),
        show(background.difference_table(report)),
        "## Provenance",
        _render_provenance(report),
        show(background.file_table(report), level=3),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def escape(text: str) -> str:
    """Return `text` so that Markdown and the HTML inside it show it as it is, on one line."""
    text = show_controls(" ".join(text.split()))
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _SPECIAL.sub(r"\\\1", text)


def _render_table(table: Table, *, level: int, is_left_out: bool = False) -> str:
    heading = f"{'#' * level} {escape(table.title)}"
    if is_left_out:
        return f"{heading}\n\n{len(table.rows)} rows, left out here; they stand in report.html."
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
        f"- **Trainer:** {escape(describe_trainer(report))}",
    ]
    return "\n".join(lines)
